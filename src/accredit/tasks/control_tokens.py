"""Text that spells a control token, such as `<|im_end|>`, stays text.

A tokenizer turns the spelling of a special token into the token itself, wherever it
stands. Of a rendered prompt only what the chat template writes may become one. So user
text is *marked* before it is rendered: each spelling in it gives way to a mark, which
no template touches. A text without marks is encoded as ever. One with marks is encoded
by a twin of the tokenizer in which special tokens go by secret names: the template's
are written by these, the user's as they were spelled, which in the twin means nothing.
All else of the twin is the same, and so are all ids but those of the spellings.
"""

import json
import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from secrets import token_hex
from typing import Any, TypeAlias

Tokenizer: TypeAlias = Any
"""A tokenizer of transformers, whose own annotations are too wide to check against."""

MARK, SECRET, END = "\ue0f0", "\ue0f1", "\ue0f2"
"""Of Unicode's private use, where no text means anything; user text may hold them."""


def control_tokens(tokenizer: Tokenizer) -> dict[str, int]:
    """Spelling and id of each token that the tokenizer calls special."""
    found = {
        str(token.content): int(index)
        for index, token in tokenizer.added_tokens_decoder.items()
        if token.special
    }
    for spelling in tokenizer.all_special_tokens:
        found.setdefault(spelling, tokenizer.convert_tokens_to_ids(spelling))
    return found


class Spelling:
    """Marks control tokens in user text, and encodes text with marks."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids = control_tokens(tokenizer)
        # The longest first: one token may begin another.
        self._names = sorted(self._ids, key=lambda name: (-len(name), name))
        self._numbers = {name: k for k, name in enumerate(self._names)}
        self._real = re.compile("|".join(map(re.escape, self._names)) or "(?!)")
        self._spelled = re.compile(f"{MARK}|{self._real.pattern}")
        self._marked = re.compile(f"{MARK}([0-9]*){END}")
        # No data can hold a name that nobody can know; no id depends on it.
        self._nonce = token_hex(8)

    def marked(self, text: str) -> str:
        """User text with a mark in place of each control token that it spells."""
        return self._spelled.sub(
            lambda found: f"{MARK}{self._numbers.get(found[0], '')}{END}", text
        )

    def plain(self, text: str) -> str:
        """Marked text as it was."""
        return self._marked.sub(
            lambda found: self._names[int(found[1])] if found[1] else MARK, text
        )

    def ids(self, text: str) -> list[int]:
        """Ids of one rendered text.

        Raises:
            ValueError: it has a mark, and the tokenizer cannot keep that as text.
        """
        if MARK in text:
            return self._twin_ids(text)
        return self._tokenizer(text, add_special_tokens=False)["input_ids"]

    def encoded(self, texts: Sequence[str]) -> list[list[int] | ValueError]:
        """`ids` of many, or why a text has none."""
        unmarked = [text for text in texts if MARK not in text]
        encoded = iter(
            self._tokenizer(unmarked, add_special_tokens=False)["input_ids"]
            if unmarked
            else ()
        )
        return [self._tried(text) if MARK in text else next(encoded) for text in texts]

    def _tried(self, text: str) -> list[int] | ValueError:
        try:
            return self._twin_ids(text)
        except ValueError as error:
            return error

    def _twin_ids(self, text: str) -> list[int]:
        named = self._real.sub(lambda found: self._secret(found[0]), text)
        if self._twin is None:
            ids = []
        else:
            ids = self._twin.encode(self.plain(named), add_special_tokens=False).ids
        known = set(self._ids.values()) - {self._tokenizer.unk_token_id}
        expected = [self._ids[found[0]] for found in self._real.finditer(text)]
        if not ids or [i for i in ids if i in known] != [
            i for i in expected if i in known
        ]:
            found = self._marked.search(text)
            spelled = self.plain(found[0]) if found else ""
            raise ValueError(
                f"it spells the control token {spelled!r}, which the tokenizer cannot "
                "write as text"
            )
        return ids

    def _secret(self, name: str) -> str:
        return f"{SECRET}{self._nonce}x{self._numbers[name]}{END}"

    @cached_property
    def _twin(self) -> Any:
        """The tokenizer with secret names; None where it has no part to copy."""
        from tokenizers import Tokenizer as Core

        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is None:
            return None

        def renamed(name: Any) -> Any:
            return self._secret(name) if name in self._ids else name

        content = json.loads(backend.to_str())
        content["truncation"] = content["padding"] = content["post_processor"] = None
        for token in content["added_tokens"]:
            token["content"] = renamed(token["content"])
        model = content["model"]
        if model.get("unk_token"):
            model["unk_token"] = renamed(model["unk_token"])
        if isinstance(model.get("vocab"), dict):
            model["vocab"] = {renamed(name): i for name, i in model["vocab"].items()}
        else:
            model["vocab"] = [[renamed(name), score] for name, score in model["vocab"]]
        try:
            return Core.from_str(json.dumps(content))
        # The Rust tokenizers raise bare Exception, here where a merge makes a token
        # that is called special.
        except Exception:
            return None


@lru_cache(maxsize=4)
def spelling_of(tokenizer: Tokenizer) -> Spelling:
    """The tokenizer's `Spelling`, made once."""
    return Spelling(tokenizer)
