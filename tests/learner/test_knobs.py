"""Every knob matters: turned, it changes the weights, and only as it should."""

import math
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any

import pytest
import torch
from learner_cases import GRPO, ragged_advantages, ragged_batch, same, weights_of

from accredit.functional.aggregation import sequence_mean_token_mean
from accredit.functional.corrections import truncated_importance
from accredit.functional.divergences import kl_k3
from accredit.functional.policy_losses import clipped_surrogate, policy_gradient
from accredit.learner.learner import Learner
from accredit.learner.options import LearnerOptions
from accredit.learner.schedules import Schedule
from accredit.models.optimizer import AdamWOptions
from accredit.protocols import Objective

pytestmark = pytest.mark.whole_run

# The surrogate is clipped and the reference is left behind only after a first step.
SEVERAL = replace(GRPO, num_epochs=2)
WITH_KL = replace(SEVERAL, kl_estimator=kl_k3)
OBJECTIVES: dict[str, tuple[Objective, dict[str, Any]]] = {
    "loss": (SEVERAL, {"loss": policy_gradient}),
    "aggregation": (SEVERAL, {"aggregation": sequence_mean_token_mean}),
    "correction": (GRPO, {"correction": truncated_importance}),
    "kl_estimator": (
        replace(SEVERAL, kl_coefficient=0.5),
        {"kl_estimator": kl_k3},
    ),
    "kl_coefficient": (WITH_KL, {"kl_coefficient": 0.5}),
    "entropy_coefficient": (GRPO, {"entropy_coefficient": 0.1}),
    "num_minibatches": (GRPO, {"num_minibatches": 2}),
    "num_epochs": (GRPO, {"num_epochs": 2}),
    "old_from_engine": (GRPO, {"old_from_engine": True}),
    "shuffled": (replace(GRPO, num_minibatches=2), {"shuffled": False}),
}


def after(learner: Learner, objective: Objective, seed: int = 0) -> dict[str, Any]:
    batch = ragged_batch(0)
    learner.begin(batch, ragged_advantages(batch), objective, seed).run()
    return weights_of(learner)


def test_every_field_of_the_objective_is_turned_below() -> None:
    assert set(OBJECTIVES) == {part.name for part in fields(Objective)}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_knob_of_the_objective_changes_the_weights(
    learner: Callable[..., Learner], name: str
) -> None:
    objective, change = OBJECTIVES[name]
    plain = after(learner(), objective)
    assert same(plain, after(learner(), objective))
    assert not same(plain, after(learner(), replace(objective, **change)))


def test_the_clip_range_changes_the_weights(learner: Callable[..., Learner]) -> None:
    narrow = replace(SEVERAL, loss=partial(clipped_surrogate, clip_high=1e-4))
    wide = after(learner(rate=1e-4), SEVERAL)
    assert not same(wide, after(learner(rate=1e-4), narrow))


def test_the_seed_orders_the_minibatches_and_nothing_else(
    learner: Callable[..., Learner],
) -> None:
    split = replace(GRPO, num_minibatches=3)
    assert same(after(learner(), split, 5), after(learner(), split, 5))
    assert not same(after(learner(), split, 5), after(learner(), split, 6))
    assert same(after(learner(), GRPO, 5), after(learner(), GRPO, 6))


@pytest.mark.parametrize(
    "change",
    [
        {"schedule": Schedule(peak=2e-2)},
        {"optimizer": AdamWOptions(betas=(0.5, 0.999))},
        {"optimizer": AdamWOptions(betas=(0.9, 0.5))},
        {"optimizer": AdamWOptions(epsilon=1e-2)},
        {"optimizer": AdamWOptions(weight_decay=0.1)},
        {"max_gradient_norm": 1e-3},
        {"temperature": 0.7},
    ],
    ids=["peak", "beta1", "beta2", "epsilon", "decay", "norm", "temperature"],
)
def test_every_knob_of_the_learner_changes_the_weights(
    learner: Callable[..., Learner], change: dict[str, Any]
) -> None:
    def twice(actor: Learner) -> dict[str, Any]:
        # Gradients of two sizes: after one step Adam knows only their sign.
        for scale in (1.0, 0.1):
            batch = ragged_batch(0)
            advantages = scale * ragged_advantages(batch)
            actor.begin(batch, advantages, GRPO, 0).run()
        return weights_of(actor)

    free = {"max_gradient_norm": None}
    assert not same(twice(learner(**free)), twice(learner(**(free | change))))


def test_weight_decay_shrinks_matrices_only(learner: Callable[..., Learner]) -> None:
    """With advantages 0 and no gradient, AdamW scales by 1 - rate x decay."""
    actor = learner("gpt2", rate=0.1, optimizer=AdamWOptions(weight_decay=0.5))
    before = weights_of(actor)
    batch = ragged_batch(0)
    zero = torch.zeros_like(batch.sampling_logprobs)
    actor.begin(batch, zero, GRPO, 0).run()
    for name, weight in weights_of(actor).items():
        scale = 0.95 if weight.ndim >= 2 else 1.0
        torch.testing.assert_close(weight, scale * before[name], atol=1e-6, rtol=1e-5)


def test_entropy_rises_when_it_alone_is_rewarded(
    learner: Callable[..., Learner],
) -> None:
    """Cases B034, B035: the bonus has a gradient, of the right sign."""
    batch = ragged_batch(0)
    zero = torch.zeros_like(batch.sampling_logprobs)
    actor = learner(rate=3e-3)
    objective = replace(GRPO, entropy_coefficient=1.0)
    means = [
        float(
            actor.begin(batch, zero, objective, 0)
            .run()
            .entropies[batch.trainable]
            .mean()
        )
        for _ in range(6)
    ]
    assert means == sorted(means)
    assert means[-1] > means[0] + 0.1


def test_praised_tokens_become_likelier(learner: Callable[..., Learner]) -> None:
    batch = ragged_batch(0)
    actor = learner(rate=3e-3)
    before = actor.logprobs(batch)[batch.trainable].mean()
    for _ in range(5):
        actor.begin(batch, batch.trainable.float(), GRPO, 0).run()
    assert actor.logprobs(batch)[batch.trainable].mean() > before + 0.5


def test_the_rate_of_each_update_is_the_schedules(
    learner: Callable[..., Learner],
) -> None:
    actor = learner(schedule=Schedule(peak=4e-3, num_warmup_updates=4))
    batch = ragged_batch(0)
    rates = [
        actor.begin(batch, ragged_advantages(batch), SEVERAL, 0).run().learning_rate
        for _ in range(5)
    ]
    assert rates == [1e-3, 2e-3, 3e-3, 4e-3, 4e-3]
    assert actor.num_updates == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_gradient_norm": 0.0}, "max_gradient_norm must be > 0, got 0.0"),
        ({"micro_batch_tokens": 0}, "micro_batch_tokens must be >= 1, got 0"),
        ({"temperature": 0.0}, "temperature must be > 0, got 0.0"),
        ({"temperature": math.inf}, "temperature must be > 0, got inf"),
        ({"max_consecutive_skips": 0}, "max_consecutive_skips must be >= 1, got 0"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LearnerOptions(schedule=Schedule(peak=1.0), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"betas": (0.9, 1.0)}, r"betas must be in \[0, 1\), got \(0.9, 1.0\)"),
        ({"epsilon": 0.0}, r"epsilon must be in .*normal numbers of float32, got 0\.0"),
        ({"weight_decay": -0.1}, "weight_decay must be >= 0, got -0.1"),
    ],
)
def test_impossible_optimizers_are_refused(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        AdamWOptions(**options)
