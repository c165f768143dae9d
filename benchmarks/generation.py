"""Generation against transformers' own, on one model, in alternating rounds.

    python benchmarks/generation.py [--model DIR] [--rounds 5] [--rows 128]

Two loads, temperature 1, whole vocabulary: `even` has prompts of one length and no stop
token; `ragged` has prompts of many lengths, eight siblings each, and stop tokens, as in
training. Every engine gets the same prompts; tokens count up to the first stop token.
Rates are tokens a second of wall time and of this process's CPU time: on a busy machine
only the second means anything. vLLM takes part where it is installed (wall time only,
as it works in processes of its own). Writes benchmarks/results/generation.json.
"""

import argparse
import importlib.util
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

from accredit.engines.completion_mask import completion_mask
from accredit.engines.local.engine import TransformersEngine
from accredit.models.loading import load_model, quiet_transformers
from accredit.types import Request, Sampling

RESULTS = Path(__file__).parent / "results" / "generation.json"
OURS = "accredit"


class Load(NamedTuple):
    """What every engine is asked for."""

    prompts: list[tuple[int, ...]]
    stop_token_ids: tuple[int, ...]
    budget: int


def main() -> None:
    """Runs every load and writes the file."""
    options = parsed_options()
    torch.set_num_threads(options.threads)
    model, stops = chosen_model(options)
    loads = {"even": even_load(model, options), "ragged": ragged_load(model, options)}
    if stops:
        loads["ragged"] = loads["ragged"]._replace(stop_token_ids=stops)
    report: dict[str, Any] = {
        "date": date.today().isoformat(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "machine": {"cores": os.cpu_count(), "load_average": os.getloadavg()},
        "threads": options.threads,
        "model": options.model or "random Qwen3",
        "num_parameters": sum(p.numel() for p in model.parameters()),
        "rows": options.rows,
        "budget": options.budget,
        "loads": {},
    }
    for name, load in loads.items():
        engines = chosen_engines(model, load, options)
        report["loads"][name] = measured(name, engines, options.rounds)
    if "vllm" not in report["loads"]["even"]["rates"]:
        report["left_out"] = {"vllm": "needs --model and an installed vllm"}
        print("vllm left out: needs --model and an installed vllm")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")
    print(f"written to {RESULTS}")


def parsed_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="a Hugging Face directory; random when absent")
    parser.add_argument("--hidden", type=int, default=128, help="of the random model")
    parser.add_argument("--layers", type=int, default=4, help="of the random model")
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--budget", type=int, default=128, help="new tokens a row")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def chosen_model(options: argparse.Namespace) -> tuple[Any, tuple[int, ...]]:
    """The model and its stop tokens; a random one has none of its own."""
    if options.model:
        loaded = load_model(options.model, torch.float32, "cpu")
        return loaded.model, loaded.stop_token_ids
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=104,
        hidden_size=options.hidden,
        intermediate_size=3 * options.hidden,
        num_hidden_layers=options.layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=options.hidden // 4,
        tie_word_embeddings=True,
        max_position_embeddings=1024,
    )
    return Qwen3ForCausalLM(config).eval(), ()


def even_load(model: Any, options: argparse.Namespace) -> Load:
    """Prompts of 24 tokens, eight siblings each; nothing stops."""
    return Load(random_prompts(model, options.rows, [24]), (), options.budget)


def ragged_load(model: Any, options: argparse.Namespace) -> Load:
    """Prompts of 16 to 44 tokens; two stop tokens, so about 52 tokens a row."""
    prompts = random_prompts(model, options.rows, range(16, 45, 4))
    return Load(prompts, (5, 6), options.budget)


def random_prompts(model: Any, rows: int, lengths: Any) -> list[tuple[int, ...]]:
    """Eight siblings a prompt, the lengths in turn."""
    source = torch.Generator().manual_seed(1)
    vocabulary = model.get_input_embeddings().num_embeddings
    lengths = list(lengths)
    prompts = [
        torch.randint(8, vocabulary, (lengths[i % len(lengths)],), generator=source)
        for i in range(-(-rows // 8))
    ]
    return [tuple(prompts[row // 8].tolist()) for row in range(rows)]


def chosen_engines(
    model: Any, load: Load, options: argparse.Namespace
) -> dict[str, Callable[[], int]]:
    """Functions that generate once and return the number of tokens."""
    engines = {
        OURS: accredit_engine(model, load),
        "generate": hugging_face_engine(model, load, None),
        "generate, static cache": hugging_face_engine(model, load, "static"),
    }
    if options.model and importlib.util.find_spec("vllm"):
        engines["vllm"] = vllm_engine(options.model, load)
    return engines


def accredit_engine(model: Any, load: Load) -> Callable[[], int]:
    """This library."""
    engine = TransformersEngine(model, load.stop_token_ids)
    requests = [Request(ids, load.budget, key) for key, ids in enumerate(load.prompts)]

    def generate() -> int:
        completions = engine.generate(requests, Sampling())
        return sum(len(completion.token_ids) for completion in completions)

    return generate


def hugging_face_engine(model: Any, load: Load, cache: str | None) -> Callable[[], int]:
    """`model.generate` on the left-padded batch."""
    width = max(len(ids) for ids in load.prompts)
    padding = [width - len(ids) for ids in load.prompts]
    token_ids = torch.tensor(
        [[0] * pad + list(ids) for pad, ids in zip(padding, load.prompts, strict=True)]
    )
    mask = torch.arange(width)[None] >= torch.tensor(padding)[:, None]
    config = GenerationConfig(
        do_sample=True,
        top_k=0,
        top_p=1.0,
        max_new_tokens=load.budget,
        eos_token_id=list(load.stop_token_ids) or None,
        pad_token_id=0,
        cache_implementation=cache,
    )
    # Defaults of the model's own would fill what is None above.
    model.generation_config = GenerationConfig(pad_token_id=0)

    def generate() -> int:
        with quiet_transformers():
            ids = model.generate(
                token_ids, attention_mask=mask.long(), generation_config=config
            )
        sampled, _ = completion_mask(ids[:, width:], load.stop_token_ids)
        return int(sampled.sum())

    return generate


def vllm_engine(model: str, load: Load) -> Callable[[], int]:
    """vLLM on the same directory and prompts."""
    from vllm import LLM, SamplingParams

    engine = LLM(model, dtype="float32", max_model_len=1024)
    params = SamplingParams(
        max_tokens=load.budget,
        stop_token_ids=list(load.stop_token_ids),
        ignore_eos=not load.stop_token_ids,
        logprobs=0,
    )
    prompts = [{"prompt_token_ids": list(ids)} for ids in load.prompts]

    def generate() -> int:
        outputs = engine.generate(prompts, params, use_tqdm=False)
        return sum(len(output.outputs[0].token_ids) for output in outputs)

    return generate


def measured(
    name: str, engines: dict[str, Callable[[], int]], rounds: int
) -> dict[str, Any]:
    """Rates of each engine and this library's ratios to the others, round by round."""
    rates: dict[str, dict[str, list[float]]] = {
        engine: {"wall": [], "cpu": []} for engine in engines
    }
    for round_ in range(-1, rounds):
        for engine, generate in engines.items():
            wall, cpu = time.perf_counter(), time.process_time()
            tokens = generate()
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            # The first round warms up.
            if round_ >= 0:
                rates[engine]["wall"].append(round(tokens / wall, 1))
                rates[engine]["cpu"].append(round(tokens / cpu, 1))
    ratios = {
        engine: {
            clock: spread(rates[OURS][clock], rates[engine][clock])
            for clock in ("wall", "cpu")
            if engine != "vllm" or clock == "wall"
        }
        for engine in engines
        if engine != OURS
    }
    print(f"{name}: {OURS} {statistics.median(rates[OURS]['cpu']):,.0f} tokens/CPU s")
    for engine, clocks in ratios.items():
        for clock, ratio in clocks.items():
            text = ", ".join(f"{key} {value}" for key, value in ratio.items())
            print(f"  times {engine} ({clock}): {text}")
    return {"rates": rates, "ratios": ratios}


def spread(ours: list[float], theirs: list[float]) -> dict[str, float]:
    """Ratios of the same round."""
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    return {
        "min": round(min(ratios), 2),
        "median": round(statistics.median(ratios), 2),
        "max": round(max(ratios), 2),
    }


if __name__ == "__main__":
    main()
