"""What an update must not do: read behind the mask, step on NaN, move the reference."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from learner_cases import (
    GRPO,
    ragged_advantages,
    ragged_batch,
    same,
    weights_of,
)
from transformers import PreTrainedModel

from accredit.functional.aggregation import token_mean
from accredit.functional.corrections import sequence_truncated_importance
from accredit.functional.divergences import kl_k3
from accredit.functional.policy_losses import (
    clipped_surrogate,
    sequence_clipped_surrogate,
)
from accredit.learner.learner import Learner
from accredit.protocols import Objective


def test_nan_and_foreign_ids_behind_the_mask_stay_there(
    learner: Callable[..., Learner],
) -> None:
    """Case B019: NaN in masked slots, and padding ids of -100, change nothing."""
    batch = ragged_batch(3)
    advantages = ragged_advantages(batch, 3)
    dirty = replace(
        batch,
        token_ids=torch.where(batch.token_mask, batch.token_ids, -100),
        sampling_logprobs=torch.where(
            batch.trainable, batch.sampling_logprobs, math.nan
        ),
        rewards=torch.full_like(batch.rewards, math.nan),
    )
    objective = Objective(
        clipped_surrogate,
        token_mean,
        correction=sequence_truncated_importance,
        kl_estimator=kl_k3,
        kl_coefficient=0.1,
        num_epochs=2,
    )
    clean, soiled = learner(), learner()
    expected = clean.begin(batch, advantages, objective, 0).run()
    found = soiled.begin(
        dirty, torch.where(batch.trainable, advantages, math.nan), objective, 0
    ).run()
    assert same(weights_of(clean), weights_of(soiled))
    assert found.losses == expected.losses
    assert found.num_skipped == 0
    assert torch.equal(found.logprobs, expected.logprobs)
    assert torch.equal(clean.logprobs(batch), soiled.logprobs(dirty))


def test_a_loss_that_trusts_its_inputs_is_safe_too(
    learner: Callable[..., Learner],
) -> None:
    """Inputs hold 0 behind the mask, and what a loss returns there is not read."""

    def trusting(
        logprobs: torch.Tensor,
        old_logprobs: torch.Tensor,
        advantages: torch.Tensor,
        sampled: torch.Tensor,
    ) -> torch.Tensor:
        losses = -(advantages + old_logprobs).sum(1, keepdim=True) * logprobs
        return torch.where(sampled, losses, math.nan)

    batch = ragged_batch(3)
    advantages = ragged_advantages(batch, 3)
    dirty = replace(
        batch,
        sampling_logprobs=torch.where(
            batch.trainable, batch.sampling_logprobs, math.nan
        ),
    )
    objective = replace(GRPO, loss=trusting, old_from_engine=True)
    clean, soiled = learner(), learner()
    expected = clean.begin(batch, advantages, objective, 0).run()
    found = soiled.begin(
        dirty, torch.where(batch.trainable, advantages, math.nan), objective, 0
    ).run()
    assert found.losses == expected.losses
    assert math.isfinite(found.losses[0])
    assert same(weights_of(clean), weights_of(soiled))


def test_unverified_rows_change_nothing(learner: Callable[..., Learner]) -> None:
    """Case B018: rows without a trainable token are not in the denominator."""
    batch = ragged_batch(0)
    assert not batch.verified.all()
    advantages = ragged_advantages(batch)
    index = batch.verified.nonzero()[:, 0]
    whole, smaller = learner(), learner()
    whole.begin(batch, advantages, GRPO, 0).run()
    smaller.begin(batch.rows(index), advantages[index], GRPO, 0).run()
    assert same(weights_of(whole), weights_of(smaller))


def test_a_batch_without_a_trainable_token_is_skipped_and_counted(
    learner: Callable[..., Learner],
) -> None:
    """Case B030: nothing verified gives loss 0, no NaN, no step."""
    batch = ragged_batch(0)
    batch = replace(batch, verified=torch.zeros_like(batch.verified))
    actor = learner(max_consecutive_skips=1)
    before = weights_of(actor)
    for done in (1, 2, 3):
        update = actor.begin(batch, ragged_advantages(batch), GRPO, 0).run()
        assert math.isnan(update.losses[0])
        assert update.num_skipped == 1
        assert math.isnan(update.gradient_norms[0])
        assert (actor.num_updates, actor.version) == (done, 0)
    assert same(before, weights_of(actor))


def test_more_minibatches_than_rows_leave_empty_ones_which_are_counted(
    learner: Callable[..., Learner],
) -> None:
    """Case B031: two rows in five minibatches; no NaN."""
    batch = ragged_batch(1).rows(torch.tensor([0, 1]))
    assert batch.trainable.any(1).all()
    objective = replace(GRPO, num_minibatches=5)
    update = learner().begin(batch, ragged_advantages(batch), objective, 0).run()
    assert (len(update.losses), update.num_skipped) == (5, 3)


def test_a_non_finite_step_is_skipped_and_the_next_one_taken(
    learner: Callable[..., Learner],
) -> None:
    batch = ragged_batch(0)
    advantages = ragged_advantages(batch)
    poisoned = torch.where(batch.trainable, math.inf, 0.0)
    actor = learner(max_consecutive_skips=2)
    before = weights_of(actor)
    for _ in range(3):
        update = actor.begin(batch, poisoned, GRPO, 0).run()
        assert update.num_skipped == 1
        assert math.isnan(update.gradient_norms[0])
        assert same(before, weights_of(actor))
        assert actor.begin(batch, advantages, GRPO, 0).run().num_skipped == 0
        assert not same(before, weights_of(actor))
        before = weights_of(actor)


def test_a_non_finite_gradient_of_a_finite_loss_is_skipped(
    learner: Callable[..., Learner],
) -> None:
    def kinked(
        logprobs: torch.Tensor,
        old_logprobs: torch.Tensor,
        advantages: torch.Tensor,
        sampled: torch.Tensor,
    ) -> torch.Tensor:
        return (logprobs - logprobs.detach()).abs().sqrt()

    actor = learner()
    before = weights_of(actor)
    batch = ragged_batch(0)
    objective = replace(GRPO, loss=kinked)
    update = actor.begin(batch, ragged_advantages(batch), objective, 0).run()
    assert (update.losses, update.num_skipped) == ((0.0,), 1)
    assert same(before, weights_of(actor))


def test_a_non_finite_loss_with_a_finite_gradient_is_skipped(
    learner: Callable[..., Learner],
) -> None:
    def shifted(
        logprobs: torch.Tensor,
        old_logprobs: torch.Tensor,
        advantages: torch.Tensor,
        sampled: torch.Tensor,
    ) -> torch.Tensor:
        return logprobs + math.inf

    actor = learner()
    before = weights_of(actor)
    batch = ragged_batch(0)
    objective = replace(GRPO, loss=shifted)
    update = actor.begin(batch, ragged_advantages(batch), objective, 0).run()
    assert (update.losses, update.num_skipped) == ((math.inf,), 1)
    assert same(before, weights_of(actor))


def test_too_many_skips_in_a_row_end_the_run_and_name_the_limit(
    learner: Callable[..., Learner],
) -> None:
    batch = ragged_batch(0)
    actor = learner(max_consecutive_skips=3)
    poisoned = torch.where(batch.trainable, math.nan, 0.0)
    actor.begin(batch, poisoned, replace(GRPO, num_epochs=2), 0).run()
    with pytest.raises(
        RuntimeError, match=r"of the policy must .*got 3 steps in a row.*max_consec"
    ):
        actor.begin(batch, poisoned, GRPO, 0).run()


def test_misaligned_input_is_refused(learner: Callable[..., Learner]) -> None:
    batch = ragged_batch(0)
    actor = learner()
    with pytest.raises(ValueError, match=r"advantages must align.*got \(12, 12\)"):
        actor.begin(batch, ragged_advantages(batch)[:, 1:], GRPO, 0).run()
    bare = replace(batch, sampled=batch.token_mask, verified=batch.sampled.any(1))
    with pytest.raises(ValueError, match="begin every rollout with its prompt"):
        actor.begin(bare, ragged_advantages(batch), GRPO, 0).run()
    for wrong in ({"num_minibatches": 0}, {"num_epochs": 0}):
        with pytest.raises(ValueError, match="must be >= 1"):
            actor.begin(
                batch, ragged_advantages(batch), replace(GRPO, **wrong), 0
            ).run()


def test_the_reference_is_loaded_only_when_asked_and_never_moves(
    model: Callable[..., PreTrainedModel], learner: Callable[..., Learner]
) -> None:
    loads: list[PreTrainedModel] = []

    def load() -> PreTrainedModel:
        loads.append(model())
        return loads[-1]

    actor = Learner(model(), learner().options, load)
    batch = ragged_batch(0)
    advantages = ragged_advantages(batch)
    start = actor.logprobs(batch)
    assert actor.begin(batch, advantages, GRPO, 0).run().reference_logprobs is None
    assert loads == []
    objective = replace(GRPO, kl_estimator=kl_k3, kl_coefficient=0.1)
    update = actor.begin(batch, advantages, objective, 0).run()
    assert update.reference_logprobs is not None
    expected = torch.where(batch.trainable, start, 0.0)
    torch.testing.assert_close(update.reference_logprobs, expected, atol=1e-5, rtol=0)
    actor.begin(batch, advantages, objective, 0).run()
    torch.testing.assert_close(
        actor.reference_logprobs(batch), start, atol=1e-5, rtol=0
    )
    assert len(loads) == 1


def test_a_learner_without_a_reference_says_so(
    model: Callable[..., PreTrainedModel], learner: Callable[..., Learner]
) -> None:
    actor = Learner(model(), learner().options)
    with pytest.raises(ValueError, match="give Learner a `reference` that loads it"):
        actor.reference_logprobs(ragged_batch(0))
    shared = actor.model
    actor = Learner(shared, learner().options, lambda: shared)
    with pytest.raises(ValueError, match="got the policy itself"):
        actor.reference_logprobs(ragged_batch(0))


def test_one_row_with_a_huge_ratio_does_not_cost_the_step(
    learner: Callable[..., Learner],
) -> None:
    """GSPO without a bound: an infinite loss, and nobody learns from the others."""
    batch = ragged_batch(0)
    far = torch.where(batch.sampled, batch.sampling_logprobs, 0.0)
    far[0] -= 500.0 * batch.sampled[0]
    batch = replace(batch, sampling_logprobs=far, verified=batch.sampled.any(1))
    actor = learner()
    before = weights_of(actor)
    objective = Objective(sequence_clipped_surrogate, token_mean, old_from_engine=True)
    update = actor.begin(batch, ragged_advantages(batch), objective, 0).run()
    assert update.num_skipped == 0
    assert math.isfinite(update.losses[0])
    assert not same(before, weights_of(actor))
