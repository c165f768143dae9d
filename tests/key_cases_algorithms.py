"""What each key of `[algorithm]` changes: losses and gradients of two real steps."""

from collections.abc import Callable
from functools import lru_cache, partial

import pytest

from accredit.config import RunConfig, union_members
from accredit.records import State
from worlds import ALGORITHMS, algorithm, small_policy, small_world, steps

Keys = dict[str, object]

SEVERAL = {"num_epochs": 3}
"""Ratios leave 1, so that clips and the KL have something to say."""
CORRECTED = {"engine_correction": "truncated_importance"}
PENALTY = {"overlong_cache": 4}

CHANGES: dict[str, tuple[Keys, Keys]] = {
    "prompts_per_step": ({}, {"prompts_per_step": 2}),
    "group_size": ({}, {"group_size": 3}),
    "num_minibatches": ({}, {"num_minibatches": 2}),
    "num_epochs": ({}, {"num_epochs": 2}),
    "entropy_coefficient": ({}, {"entropy_coefficient": 0.1}),
    "engine_correction": ({}, CORRECTED),
    "engine_correction_cap": (CORRECTED, {"engine_correction_cap": 0.01}),
    "clip_low": (SEVERAL, {"clip_low": 0.001}),
    "clip_high": (SEVERAL, {"clip_high": 0.001}),
    "dual_clip": (SEVERAL, {"dual_clip": 1.001}),
    "kl_coefficient": (SEVERAL, {"kl_coefficient": 0.5}),
    "kl_estimator": (
        {**SEVERAL, "kl_coefficient": 0.5},
        {"kl_estimator": "kl_k2"},
    ),
    "max_draws": ({}, {"max_draws": 1}),
    "overlong_cache": ({}, PENALTY),
    "overlong_factor": (PENALTY, {"overlong_factor": 0.5}),
    "overlong_applies_to": (PENALTY, {"overlong_applies_to": "successes"}),
}
"""Key -> the recipe it matters in, and the change."""
OWN_CHANGES: dict[str, tuple[Keys, Keys]] = {
    "gspo.clip_low": (SEVERAL, {"clip_low": 0.5}),
    "gspo.clip_high": (SEVERAL, {"clip_high": 0.5}),
}


def first_letter(text: str) -> float:
    """Often equal among siblings, so that DAPO has to draw again."""
    return float(text.startswith(("a", "b")))


@lru_cache
def outcome(name: str, keys: tuple[tuple[str, object], ...]) -> tuple[float, ...]:
    """Numbers of two steps from one start: sizes, losses and gradient norms.

    The engine begins with other weights than the learner, completions end early.
    """
    world = small_world(
        first_letter, rate=5e-2, stop_token_ids=(7,), max_gradient_norm=None
    )
    world.engine.load(small_policy(seed=5), 0)
    _, records = steps(algorithm(name, **dict(keys)), world, 2, State())
    numbers: list[float] = []
    for record in records:
        numbers += [record.batch.num_rollouts, record.counts["groups_rejected"]]
        if record.policy is not None:
            numbers += [*record.policy.losses, *record.policy.gradient_norms]
    return tuple(numbers)


def changes_the_steps(name: str, base: Keys, change: Keys, *_: object) -> None:
    """The same recipe gives the same steps; the changed one gives others."""
    before = outcome(name, tuple(base.items()))
    after = outcome(name, tuple({**base, **change}.items()))
    assert len(before) > 4
    assert after != pytest.approx(before, rel=1e-5)


def name_chooses(*_: object) -> None:
    outcomes = {outcome(name, ()) for name in ALGORITHMS}
    # At ratio 1 the clipped losses of a group algorithm agree up to their weights.
    assert len(outcomes) >= 5


def cases() -> dict[str, Callable[..., None]]:
    """Every key of every algorithm."""
    found: dict[str, Callable[..., None]] = {"algorithm.name": name_chooses}
    for member in union_members(RunConfig.model_fields["algorithm"]):
        name = member.model_fields["name"].default
        for key in member.model_fields:
            changes = OWN_CHANGES.get(f"{name}.{key}") or CHANGES.get(key)
            if changes is not None:
                found[f"algorithm.{name}.{key}"] = partial(
                    changes_the_steps, name, *changes
                )
    return found


CASES = cases()
