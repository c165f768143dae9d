"""What a model's configuration says of lengths: limits, thresholds, counted columns.

Whoever samples and whoever scores read it here, so that both keep to the same rows. A
log-prob must be a function of its prefix: it may depend neither on what comes later nor
on what lies beside it in a batch. Reads attributes alone; loads no torch.
"""

from collections.abc import Iterator, Mapping
from typing import Any

REVISED = {
    "longrope": "a row longer than this turns by other frequencies, its first tokens "
    "too",
    "dynamic": "a row longer than this turns by frequencies of its own length",
}
"""Kinds of rotary positions that rewrite a prefix when the row has grown past a length:
no cache and no batch agrees with it there, so that rows end at that length."""
LENGTH_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
"""Longest row; the first that is named counts."""
ORIGINAL_LENGTH = "original_max_position_embeddings"
THRESHOLD_KEYS = {
    "sliding_window": "attention sees no further back",
    "sliding_window_size": "attention sees no further back",
    "default_long_sliding_window": "attention sees no further back",
    "window_size": "attention sees no further back",
    "attention_window": "attention sees no further back",
    "attention_chunk_size": "attention begins anew",
    "index_topk": "attention chooses among the tokens before",
    "chunk_size": "a recurrent scan is cut",
    "mamba_chunk_size": "a recurrent scan is cut",
    "floor_scale": "attention has another temperature",
    ORIGINAL_LENGTH: "attention has another temperature, or positions other angles",
}
"""Lengths past which a model reads in another way: equal results below say nothing of
results above, so that both are tried."""
COLUMN_KEYS = {
    "attn_temperature_tuning": "it scales attention by the column, padding included",
}
"""What counts columns where it means positions: no padding may stand before a row."""


def row_limit(config: Any) -> int | None:
    """Longest row whose log-probs hold; None where the configuration says none."""
    text = text_config(config)
    named = [whole(getattr(text, key, None)) for key in LENGTH_KEYS]
    lengths = [length for length in named if length is not None][:1]
    lengths += [length for _, length in revisions(config)]
    return min(lengths, default=None)


def revisions(config: Any) -> list[tuple[str, int]]:
    """Each kind of position that rewrites a prefix, and the length where it begins."""
    text = text_config(config)
    found = []
    for rope in rope_settings(text):
        kind = rope.get("rope_type", rope.get("type"))
        length = whole(rope.get(ORIGINAL_LENGTH, getattr(text, ORIGINAL_LENGTH, None)))
        if kind in REVISED and length is not None:
            found.append((str(kind), length))
    return found


def limit_note(config: Any) -> str | None:
    """Why rows end before the model's last position; None where they do not."""
    text = text_config(config)
    whole_length = whole(getattr(text, LENGTH_KEYS[0], None))
    for kind, length in revisions(config):
        if whole_length is not None and length < whole_length:
            return (
                f"rows end at {length} of the model's {whole_length} positions: under "
                f"{kind} {REVISED[kind]}, and log-probs of its prefixes no longer hold"
            )
    return None


def thresholds(config: Any) -> list[int]:
    """Lengths past which the model reads in another way, ascending, each once."""
    text = text_config(config)
    sources = [vars(text), *rope_settings(text)]
    found = {
        length
        for source in sources
        for key in THRESHOLD_KEYS
        for length in map(whole, listed(source.get(key)))
        if length is not None
    }
    return sorted(found)


def counts_columns(config: Any) -> bool:
    """Whether padding before a row changes what the model says."""
    return any(bool(getattr(text_config(config), key, None)) for key in COLUMN_KEYS)


def rope_settings(config: Any) -> Iterator[Mapping[str, Any]]:
    """What is said of rotary positions, once or by the type of a layer."""
    found = getattr(config, "rope_parameters", None)
    if found is None:
        found = getattr(config, "rope_scaling", None)
    if isinstance(found, Mapping):
        yield found
        yield from (inner for inner in found.values() if isinstance(inner, Mapping))


def text_config(config: Any) -> Any:
    """The part of a configuration that speaks of text."""
    chosen = getattr(config, "get_text_config", None)
    return config if chosen is None else chosen()


def listed(value: Any) -> list[Any]:
    """One value or several, as a list."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def whole(value: Any) -> int | None:
    """A positive whole number; None of anything else."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and value > 0 else None
