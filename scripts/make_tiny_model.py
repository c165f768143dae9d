"""Trains the packaged model from nothing: seeded, resumable, CPU, one thread.

    python scripts/make_tiny_model.py --folder build/tiny

Interrupted, the same command goes on from the last saved update and arrives at the same
weights. Most updates run a bfloat16 copy of the float32 weights, the last ones the
weights themselves. Once done it is installed into src/accredit/packaged; its card is
written by `scripts/model_card.py`.
"""

import argparse
import copy
import json
import math
import os
import shutil
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tiny_lessons import Lesson, curriculum
from tiny_tokenizer import save_tokenizer
from transformers import Qwen3Config, Qwen3ForCausalLM

from accredit.randomness import generator, keyed_seed

PEAK_LEARNING_RATE = 3e-3
WARM_UP = 150
SAVE_EVERY = 100
BUCKET_ROWS = 10
FINAL_SHARE = 0.1
PACKAGED = Path(__file__).parent.parent / "src" / "accredit" / "packaged"
SHIPPED = (
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
)


def new_model(vocab_size: int, seed: int) -> Qwen3ForCausalLM:
    """A Qwen3 of 0.63 million parameters."""
    torch.manual_seed(keyed_seed(seed, "weights") % 2**63)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=vocab_size,
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=4096,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=1,
            pad_token_id=0,
        )
    )


def learning_rate(update: int, total: int) -> float:
    """Linear warm-up, then a cosine to 2% of the peak."""
    if update < WARM_UP:
        return PEAK_LEARNING_RATE * (update + 1) / WARM_UP
    share = (update - WARM_UP) / max(1, total - WARM_UP)
    return PEAK_LEARNING_RATE * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * share)))


def bucket_loss(
    model: Qwen3ForCausalLM, lessons: list[Lesson], ids: dict[str, int]
) -> tuple[torch.Tensor, float]:
    """Weighted sum of cross-entropies, soft where targets are, and the weight."""
    width = max(len(lesson.tokens) for lesson in lessons)
    tokens = torch.zeros(len(lessons), width, dtype=torch.long)
    weights = torch.zeros(len(lessons), width)
    soft_at, soft_rows = [], []
    for r, lesson in enumerate(lessons):
        n = len(lesson.tokens)
        tokens[r, :n] = torch.tensor([ids[token] for token in lesson.tokens])
        weights[r, :n] = torch.tensor(lesson.weights)
        for t, targets in lesson.soft.items():
            soft_at.append(r * (width - 1) + t - 1)
            row = np.zeros(len(ids), dtype=np.float32)
            for token, share in targets.items():
                row[ids[token]] = share
            soft_rows.append(row)
    hidden = model.model(input_ids=tokens[:, :-1]).last_hidden_state
    flat = weights[:, 1:].reshape(-1)
    where = flat > 0
    positions = torch.full((len(flat),), -1)
    positions[where] = torch.arange(int(where.sum()))
    logits = model.lm_head(hidden.reshape(-1, hidden.shape[-1])[where])
    logprobs = logits.float().log_softmax(1)
    targets = F.one_hot(tokens[:, 1:].reshape(-1)[where], len(ids)).float()
    at = positions[torch.tensor(soft_at)] if soft_at else torch.zeros(0).long()
    rows = torch.tensor(np.array(soft_rows)) if soft_rows else torch.zeros(0, len(ids))
    targets[at[at >= 0]] = rows[at >= 0]
    kept = flat[where]
    return -(targets * logprobs).sum(1) @ kept, float(kept.sum())


def train_update(
    model: Qwen3ForCausalLM,
    worker: Qwen3ForCausalLM,
    optimizer: torch.optim.Optimizer,
    ids: dict[str, int],
    lessons: list[tuple[str, Lesson]],
) -> dict[str, float]:
    """One optimizer step over all lessons; returns the mean loss of each kind.

    `worker` is `model` or its copy in another precision, brought up to date here.
    """
    if worker is not model:
        with torch.no_grad():
            for copied, parameter in zip(
                worker.parameters(), model.parameters(), strict=True
            ):
                copied.copy_(parameter)
    total = sum(w for _, lesson in lessons for w in lesson.weights[1:])
    losses: dict[str, list[float]] = {}
    by_kind: dict[str, list[Lesson]] = {}
    for kind, lesson in lessons:
        by_kind.setdefault(kind, []).append(lesson)
    for kind, members in by_kind.items():
        members.sort(key=lambda lesson: len(lesson.tokens))
        for at in range(0, len(members), BUCKET_ROWS):
            loss, weight = bucket_loss(worker, members[at : at + BUCKET_ROWS], ids)
            (loss / total).backward()
            losses.setdefault(kind, []).append(float(loss.detach()) / weight)
    if worker is not model:
        for copied, parameter in zip(
            worker.parameters(), model.parameters(), strict=True
        ):
            parameter.grad = copied.grad.float()
            copied.grad = None
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return {kind: float(np.mean(values)) for kind, values in losses.items()}


def save_progress(
    folder: Path, update: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Weights and optimizer moments in one file, replaced atomically."""
    tensors = {f"model.{k}": v for k, v in model.named_parameters()}
    for i, moments in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{i}.{k}": v for k, v in moments.items()}
    beside = folder / "progress.tmp"
    save_file(
        {k: v.detach().contiguous() for k, v in tensors.items()},
        beside,
        metadata={"update": str(update)},
    )
    os.replace(beside, folder / "progress.safetensors")


def load_progress(
    folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> int:
    """Restores what `save_progress` wrote; 0 where nothing was."""
    path = folder / "progress.safetensors"
    if not path.exists():
        return 0
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        update = int(file.metadata()["update"])
    tensors = load_file(path)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[f"model.{name}"])
    moments: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith("optimizer."):
            _, i, name = key.split(".")
            moments.setdefault(int(i), {})[name] = value
    state = optimizer.state_dict()
    optimizer.load_state_dict({**state, "state": moments})
    return update


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="where it is made")
    parser.add_argument("--updates", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.folder.mkdir(parents=True, exist_ok=True)
    ids = save_tokenizer(options.folder).get_vocab()
    ids[" "] = ids["Ġ"]
    model = new_model(max(ids.values()) + 1, options.seed)
    inverse = [token for token, _ in sorted(ids.items(), key=lambda item: item[1])]
    ids = {token: ids[token] for token in inverse if token != "Ġ"}
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=0.0, betas=(0.9, 0.98), weight_decay=0.01, fused=True
    )
    first = load_progress(options.folder, model, optimizer)
    half = copy.deepcopy(model).bfloat16()
    half.set_attn_implementation("eager")
    makers = curriculum()
    started = time.time()
    for update in range(first, options.updates):
        optimizer.param_groups[0]["lr"] = learning_rate(update, options.updates)
        draw = generator(options.seed, "lessons", update)
        lessons = [
            (make.__qualname__, make(draw))
            for make, count in makers
            for _ in range(count)
        ]
        final = update >= (1 - FINAL_SHARE) * options.updates
        losses = train_update(model, model if final else half, optimizer, ids, lessons)
        if (update + 1) % 20 == 0:
            shown = {kind: round(value, 4) for kind, value in losses.items()}
            line = {"update": update + 1, "s": round(time.time() - started), **shown}
            with (options.folder / "log.jsonl").open("a") as log:
                log.write(json.dumps(line) + "\n")
        if (update + 1) % SAVE_EVERY == 0 or update + 1 == options.updates:
            save_progress(options.folder, update + 1, model, optimizer)
            model.save_pretrained(options.folder)
    for name in SHIPPED:
        shutil.copyfile(options.folder / name, PACKAGED / name)


if __name__ == "__main__":
    main()
