"""What each key of `[algorithm]` changes: losses and gradients of two real steps."""

from collections.abc import Callable
from functools import lru_cache, partial

import pytest

from accredit.recipe.config import RunConfig, union_members
from worlds import (
    ALGORITHMS,
    REPLAYED,
    algorithm,
    small_policy,
    small_world,
    steps,
)

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
    "truncation": ({}, {"truncation": "bootstrap"}),
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
AT_ONCE = {"critic.warmup_steps": 0, "critic.learning_rate": 1e-2}
"""The policy moves from the first step on, and the critic learns visibly."""
MOVING = {"critic.freeze_attention": False}
ADAPTED = {**MOVING, "critic.trunk": "lora"}
CRITIC_CHANGES: dict[str, tuple[Keys, Keys]] = {
    "trunk": (MOVING, {"critic.trunk": "shared"}),
    "output": ({}, {"critic.output": "categorical"}),
    "num_bins": ({"critic.output": "categorical"}, {"critic.num_bins": 11}),
    "bin_sigma": ({"critic.output": "categorical"}, {"critic.bin_sigma": 3.0}),
    "value_clip": (
        {"critic.output": "linear", "critic.num_epochs": 4},
        {"critic.value_clip": 1e-4},
    ),
    "initial_value": ({}, {"critic.initial_value": 0.1}),
    "reward_low": ({}, {"critic.reward_low": -1.0}),
    "reward_high": ({}, {"critic.reward_high": 3.0}),
    "template": ({}, {"critic.template": "{prompt}c"}),
    "learning_rate": ({}, {"critic.learning_rate": 1e-3}),
    "weight_decay": ({}, {"critic.weight_decay": 1.0}),
    "max_gradient_norm": ({}, {"critic.max_gradient_norm": 1e-3}),
    "warmup_steps": ({}, {"critic.warmup_steps": 1}),
    "warmup_epochs": ({"critic.warmup_steps": 1}, {"critic.warmup_epochs": 3}),
    "num_epochs": ({"critic.num_epochs": 1}, {"critic.num_epochs": 3}),
    "num_minibatches": ({}, {"critic.num_minibatches": 2}),
    "freeze_attention": (
        {"critic.freeze_attention": False},
        {"critic.freeze_attention": True},
    ),
    "max_prefixes": ({}, {"critic.max_prefixes": 1}),
    "deviation_floor": ({"group_size": 4}, {"critic.deviation_floor": 0.01}),
    "lora_rank": (ADAPTED, {"critic.lora_rank": 2}),
    "lora_alpha": (ADAPTED, {"critic.lora_alpha": 4.0}),
}
DISTANT = {**SEVERAL, **AT_ONCE}
CLIPPED_ACTOR = {**DISTANT, "actor_loss": "clipped_surrogate"}
LIVELY: dict[str, Keys] = dict.fromkeys(("ppo", "sao", "pact"), AT_ONCE)
OWN_CHANGES: dict[str, tuple[Keys, Keys]] = {
    "gspo.clip_low": (SEVERAL, {"clip_low": 0.5}),
    "gspo.clip_high": (SEVERAL, {"clip_high": 0.5}),
    "ppo.gamma": (AT_ONCE, {"gamma": 0.5}),
    "ppo.lambda_policy": (AT_ONCE, {"lambda_policy": 0.5}),
    "ppo.lambda_critic": (AT_ONCE, {"lambda_critic": 0.5}),
    "ppo.length_adaptive_alpha": (AT_ONCE, {"length_adaptive_alpha": 0.3}),
    "sao.length_adaptive_alpha": (AT_ONCE, {"length_adaptive_alpha": 0.3}),
    "sao.ratio_low": (AT_ONCE, {"ratio_low": 0.99}),
    "sao.ratio_high": (AT_ONCE, {"ratio_high": 1.01}),
    "pact.ratio_low": (DISTANT, {"ratio_low": 0.9999}),
    "pact.ratio_high": (DISTANT, {"ratio_high": 1.0001}),
    "pact.engine_correction": (AT_ONCE, {"engine_correction": "none"}),
    "pact.engine_correction_cap": (AT_ONCE, {"engine_correction_cap": 0.01}),
    "pact.actor_loss": (DISTANT, {"actor_loss": "clipped_surrogate"}),
    "pact.clip_low": (CLIPPED_ACTOR, {"clip_low": 0.001}),
    "pact.clip_high": (CLIPPED_ACTOR, {"clip_high": 0.001}),
    "pact.target": (AT_ONCE, {"target": "doubly_robust"}),
    "pact.accept_low": (AT_ONCE, {"accept_low": 0.999}),
    "pact.accept_high": (AT_ONCE, {"accept_high": 1.001}),
    "pact.window": ({**AT_ONCE, "target": "windowed"}, {"window": 0}),
    "pact.trace_cap": ({**AT_ONCE, "target": "vtrace"}, {"trace_cap": 0.9}),
    "pact.product_cap": ({**AT_ONCE, "target": "full_product"}, {"product_cap": 0.5}),
    "opd.teacher": ({"template": "{prompt}c"}, {"teacher": "self"}),
    "opd.template": ({}, {"template": "{prompt}ccc"}),
    "vine.num_continuations": ({}, {"num_continuations": 2}),
    "vine.chunk_length": ({}, {"chunk_length": 3}),
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
    _, records = steps(algorithm(name, world=world, **dict(keys)), world, 2)
    numbers: list[float] = []
    for record in records:
        numbers += [record.batch.num_rollouts, record.counts["groups_rejected"]]
        numbers += [float(record.values.mean()), record.cost.total_flops]
        if record.policy is not None:
            numbers += [*record.policy.losses, *record.policy.gradient_norms]
        if record.critic is not None:
            numbers += [*record.critic.losses, *record.critic.gradient_norms]
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
        if name in REPLAYED:
            continue  # key_cases_replay
        for key in member.model_fields:
            changes = OWN_CHANGES.get(f"{name}.{key}") or CHANGES.get(key)
            if changes is not None:
                base, change = changes
                base = {**LIVELY.get(name, {}), **base}
                found[f"algorithm.{name}.{key}"] = partial(
                    changes_the_steps, name, base, change
                )
        if "critic" in member.model_fields:
            for key, (base, change) in CRITIC_CHANGES.items():
                found[f"algorithm.{name}.critic.{key}"] = partial(
                    changes_the_steps, name, {**AT_ONCE, **base}, change
                )
    return found


CASES = cases()
