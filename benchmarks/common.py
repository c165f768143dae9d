"""What the benchmarks share: random models, clocks, and the heading of a result."""

import json
import os
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from accredit.reports.environment import environment

RESULTS = Path(__file__).parent / "results"


class Seconds(NamedTuple):
    """A moment or a span on two clocks."""

    wall: float
    cpu: float
    """Of this process; on a busy machine the only one that means anything."""

    def since(self, start: "Seconds") -> "Seconds":
        """What passed between the two moments."""
        return Seconds(self.wall - start.wall, self.cpu - start.cpu)


def moment() -> Seconds:
    """Both clocks as they stand."""
    return Seconds(time.perf_counter(), time.process_time())


@dataclass(frozen=True)
class Shape:
    """A Qwen3 of four query heads and two key heads, its embedding tied."""

    hidden: int
    intermediate: int
    layers: int
    vocabulary: int
    head_width: int = 32

    def random_model(self, stop_token_id: int | None = None) -> Qwen3ForCausalLM:
        """Always the same float32 weights."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            config = Qwen3Config(
                vocab_size=self.vocabulary,
                hidden_size=self.hidden,
                intermediate_size=self.intermediate,
                num_hidden_layers=self.layers,
                num_attention_heads=4,
                num_key_value_heads=2,
                head_dim=self.head_width,
                tie_word_embeddings=True,
                max_position_embeddings=512,
                attention_dropout=0.0,
                bos_token_id=None,
                eos_token_id=stop_token_id,
                pad_token_id=0,
            )
            return Qwen3ForCausalLM(config).eval()


SMALL = Shape(hidden=64, intermediate=192, layers=2, vocabulary=160)
"""133k parameters."""
PACKAGED = Shape(hidden=128, intermediate=256, layers=4, vocabulary=264)
"""0.62M parameters, as many as the packaged model."""


def letters(vocabulary: int) -> list[str]:
    """One character for each token but the padding: digits first, no white space."""
    return [chr(ord("0") + n) for n in range(vocabulary - 1)]


def letter_tokenizer(vocabulary: int, stop_token_id: int) -> PreTrainedTokenizerFast:
    """One token a letter; a stop token of id `vocabulary` is one no model can emit."""
    names = ["<pad>", *letters(vocabulary)]
    ids = {name: index for index, name in enumerate(names)}
    if stop_token_id < vocabulary:
        del ids[names[stop_token_id]]
    ids["<stop>"] = stop_token_id
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<stop>"
    )


def digit_share(text: str) -> float:
    """A trivial reward that differs between siblings."""
    return sum(letter in "0123456789" for letter in text) / max(1, len(text))


def write_result(name: str, content: dict[str, Any], *packages: str) -> None:
    """Writes results/`name`.json: where and when it was measured, then the content."""
    where = environment()
    where["versions"] |= {package: version(package) for package in packages}
    where["torch_threads"] = torch.get_num_threads()
    where["load_average"] = [round(load, 1) for load in os.getloadavg()]
    path = RESULTS / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(where | content, indent=1) + "\n", encoding="utf-8")
    print(f"written to benchmarks/results/{name}.json")
