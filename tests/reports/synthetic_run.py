"""Records and runs for the tests of `reports`: made from a seed, with no model."""

import string
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from accredit.records import (
    Cost,
    Credit,
    CriticUpdate,
    PolicyChange,
    PolicyUpdate,
    Record,
    State,
)
from accredit.reports.environment import environment
from accredit.reports.evaluation import evaluation
from accredit.reports.metrics.step import step_metrics
from accredit.reports.rollouts import rollout_rows
from accredit.storage.run_directory import RunDirectory
from accredit.types import (
    Batch,
    Group,
    Message,
    Problem,
    Prompt,
    Rollout,
    StopReason,
    Verdict,
)

ALPHABET = "\n" + string.digits + string.ascii_letters + string.punctuation + " "
ATTACK = "<script>alert('x')</script>"


def decode(ids: Sequence[int]) -> str:
    return "".join(ALPHABET[i % len(ALPHABET)] for i in ids)


def encode(text: str) -> tuple[int, ...]:
    return tuple(ALPHABET.index(c) for c in text)


def rollout(
    prompt: Prompt,
    completion: tuple[int, ...],
    logprobs: Sequence[float],
    stop_reason: StopReason = StopReason.STOP,
    sample: int = 0,
) -> Rollout:
    num_prompt = len(prompt.token_ids)
    return Rollout(
        prompt=prompt,
        token_ids=torch.tensor(prompt.token_ids + completion),
        sampled=torch.tensor([False] * num_prompt + [True] * len(completion)),
        sampling_logprobs=torch.tensor([0.0] * num_prompt + list(logprobs)),
        stop_reason=stop_reason,
        sample=sample,
    )


def problem_prompt(name: str, text: str = "go: ") -> Prompt:
    return Prompt(Problem(name, (Message("user", text),), "7", "hard"), encode(text))


def collated(groups: Sequence[Group]) -> Batch:
    rollouts = [r for g in groups for r in g.rollouts]
    verdicts = [v for g in groups for v in g.verdicts]
    width = max(len(r.token_ids) for r in rollouts)

    def padded(rows: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.stack(
            [torch.nn.functional.pad(row, (0, width - len(row))) for row in rows]
        )

    return Batch(
        token_ids=padded([r.token_ids for r in rollouts]),
        token_mask=padded([torch.ones_like(r.sampled) for r in rollouts]),
        sampled=padded([r.sampled for r in rollouts]),
        sampling_logprobs=padded([r.sampling_logprobs for r in rollouts]),
        rewards=torch.tensor([v.reward or 0.0 for v in verdicts]),
        verified=torch.tensor([v.reward is not None for v in verdicts]),
        truncated=torch.tensor([r.stop_reason == "length" for r in rollouts]),
        group_index=torch.tensor([i for i, g in enumerate(groups) for _ in g.rollouts]),
    )


def synthetic_groups(
    rng: np.random.Generator,
    skill: float,
    num_groups: int,
    group_size: int,
    num_tokens: int,
) -> tuple[Group, ...]:
    groups = []
    for index in range(num_groups):
        goal = f"{rng.integers(10)}{rng.integers(10)}"
        prompt = problem_prompt(f"walk-{index}", f"start 00 goal {goal}: ")
        rollouts, verdicts = [], []
        for sample in range(group_size):
            won = bool(rng.random() < skill)
            text = "".join(
                f"{rng.choice(list('RULD'))}{rng.integers(10)}{rng.integers(10)}"
                for _ in range(num_tokens // 3)
            )
            if sample == 1:
                text = ATTACK + text
            cut = int(rng.integers(num_tokens // 2, num_tokens)) if won else num_tokens
            ids = encode(text[:cut])
            logprobs = -rng.exponential(0.9 - 0.6 * skill, len(ids))
            reason = StopReason.STOP if won else StopReason.LENGTH
            rollouts.append(rollout(prompt, ids, logprobs.tolist(), reason, sample))
            lost = rng.random() < 0.02
            verdicts.append(
                Verdict(None, "verifier timed out after 5 s")
                if lost
                else Verdict(float(won), "goal reached" if won else "out of moves")
            )
        groups.append(Group(prompt, tuple(rollouts), tuple(verdicts)))
    return tuple(groups)


def synthetic_record(
    rng: np.random.Generator,
    skill: float,
    num_groups: int = 8,
    group_size: int = 8,
    num_tokens: int = 48,
) -> Record:
    """A step whose critic foresees the outcome better the longer it has watched."""
    groups = synthetic_groups(rng, skill, num_groups, group_size, num_tokens)
    batch = collated(groups)
    shape = batch.token_ids.shape
    noise = torch.from_numpy(rng.normal(0.0, 0.05, (shape[0], shape[1] + 1)))
    drift = torch.linspace(0.0, 0.8, shape[1] + 1) ** (1.5 - skill)
    values = skill + (batch.rewards[:, None] - skill) * drift + noise.cumsum(1) * 0.2
    values = values.clamp(0.0, 1.0).float()
    kept = batch.trainable
    advantages = torch.where(kept, values[:, 1:] - values[:, :-1], 0.0)
    old = batch.sampling_logprobs + 0.01 * torch.from_numpy(rng.normal(size=shape))
    new = old + 0.08 * torch.from_numpy(rng.normal(size=shape))
    policy = PolicyUpdate(
        old_logprobs=torch.where(batch.sampled, old, 0.0).float(),
        logprobs=torch.where(batch.sampled, new, 0.0).float(),
        entropies=torch.where(batch.sampled, 1.1 - 0.8 * skill, 0.0),
        reference_logprobs=torch.where(batch.sampled, old - 0.2, 0.0).float(),
        losses=(0.02 - 0.01 * skill, 0.018),
        gradient_norms=(0.9 - 0.4 * skill, 0.8),
        learning_rate=3e-4,
        num_skipped=0,
        num_forward_tokens=int(batch.token_mask.sum()),
        num_backward_tokens=int(batch.token_mask.sum()),
    )
    newest = torch.where(batch.sampled, new + 0.02, 0.0).float()
    change = PolicyChange(
        policy.old_logprobs, newest, kept & (newest < policy.old_logprobs + 0.15)
    )
    tokens = int(batch.sampled.sum())
    times = {"generate": 0.42, "verify": 0.03, "update": 0.61, "critic": 0.14}
    times = {k: float(v * rng.uniform(0.9, 1.15)) for k, v in times.items()}
    times["step"] = sum(times.values()) + 0.02
    return Record(
        groups=groups,
        batch=batch,
        shaped_rewards=batch.rewards - 0.05 * batch.truncated,
        values=values,
        credit=Credit(advantages, _targets(batch, change)),
        policy=policy,
        cost=Cost(
            decode_flops=tokens * 2.1e6,
            prefill_flops=3e7,
            train_flops=tokens * 6.3e6,
            tokens_generated=tokens,
            num_verifications=len(batch.rewards),
        ),
        times_s=times,
        counts={"resampled_groups": int(rng.integers(3))},
        critic=CriticUpdate((0.5, 0.48), (0.7, 0.6), 5e-6, 0, tokens * 6e6),
        change=change,
        valued_by_critic=True,
    )


def _targets(batch: Batch, change: PolicyChange) -> torch.Tensor:
    targets = torch.where(batch.trainable, change.ratios * batch.rewards[:, None], 0.0)
    return torch.nn.functional.pad(targets, (0, 1))


def write_synthetic_run(
    path: Path,
    num_steps: int = 120,
    seed: int = 5,
    algorithm: dict[str, Any] | None = None,
) -> RunDirectory:
    """A run that learns: sigmoid success, evaluated every tenth of it."""
    rng = np.random.default_rng(seed)
    run = RunDirectory(path)
    run.start(RECIPE | ({"algorithm": algorithm} if algorithm else {}), environment())
    state = State()
    for step in range(num_steps + 1):
        skill = float(
            0.07 + 0.8 / (1 + np.exp(-(step - 0.45 * num_steps) / (0.1 * num_steps)))
        )
        if step > 0:
            record = synthetic_record(rng, skill)
            has_critic = "critic" in (algorithm or {})
            record = replace(record, valued_by_critic=has_critic)
            counters = {"skipped_steps": 1}
            state = state.advance(record.cost, counters=counters)
            run.append_metrics(step_metrics(record, state, clip_bounds=(0.2, 0.28)))
            if step in (1, num_steps):
                run.write_rollouts(step, rollout_rows(record, step, decode))
        if step % max(1, num_steps // 10) == 0:
            groups = synthetic_groups(rng, skill, 24, 4, 48)
            costs = {
                "step": step,
                "flops/decode": state.cost.decode_flops,
                "flops/total": state.cost.total_flops,
                "tokens/generated": state.cost.tokens_generated,
            }
            run.append_evaluation(costs | evaluation(groups).metrics())
    return run


RECIPE = {
    "seed": 5,
    "model": {"path": "packaged"},
    "task": {"name": "walk", "split": "hard"},
    "algorithm": {"name": "grpo", "clip_low": 0.2, "clip_high": 0.28},
    "tracker": {"wandb_api_key": "do-not-show"},
    "learning_rate": 3e-4,
}
