"""Every random draw is keyed, so that resume, worker count and batch split cannot
change it. Knows nothing but the standard library and numpy.
"""

import hashlib

import numpy as np


def keyed_seed(*key: int | str) -> int:
    """A 64-bit seed that depends on every part of `key` and on their order.

    The parts are (seed, purpose, step, problem, sample) or a prefix of them. Parts are
    length-prefixed and typed before hashing, so ("ab", "c"), ("a", "bc") and 1, "1"
    never collide.
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in key:
        kind = b"i" if isinstance(part, int) else b"s"
        text = str(part).encode("utf-8", "surrogatepass")
        digest.update(kind + len(text).to_bytes(8, "big") + text)
    return int.from_bytes(digest.digest(), "big")


def generator(*key: int | str) -> np.random.Generator:
    """A counter-based generator for one key."""
    return np.random.Generator(np.random.Philox(keyed_seed(*key)))
