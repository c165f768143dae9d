"""One update: micro-batches, minibatches, modes, and what is reported."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from learner_cases import (
    GRPO,
    VOCAB,
    ragged_advantages,
    ragged_batch,
    weights_of,
)
from transformers import PreTrainedModel

from accredit.functional.aggregation import AGGREGATIONS, token_mean
from accredit.functional.corrections import sequence_truncated_importance
from accredit.functional.divergences import kl_k2
from accredit.functional.policy_losses import (
    clipped_surrogate,
    policy_gradient,
    sequence_clipped_surrogate,
)
from accredit.learner.learner import Learner
from accredit.models.micro_batches import row_parts
from accredit.protocols import Objective
from accredit.types import Batch


def gradients(
    learner: Learner, batch: Batch, advantages: torch.Tensor, objective: Objective
) -> tuple[dict[str, torch.Tensor], float]:
    """What the optimizer was given, and the loss."""
    seen: dict[str, torch.Tensor] = {}
    step = learner._optimizer.step

    def spy() -> None:
        named = learner.model.named_parameters()
        seen.update({name: p.grad.clone() for name, p in named})
        step()

    learner._optimizer.step = spy
    update = learner.begin(batch, advantages, objective, 0).run()
    return seen, update.losses[0]


@pytest.mark.parametrize("mode", AGGREGATIONS)
def test_1_2_and_4_micro_batches_give_the_same_gradient(
    learner: Callable[..., Learner], mode: str
) -> None:
    """Law 3; cases B020-B022, B024-B026, B028, B033; every term of the objective."""
    aggregation = AGGREGATIONS[mode]
    if mode == "fixed_length_token_sum":
        aggregation = partial(aggregation, max_length=12)
    objective = Objective(
        sequence_clipped_surrogate,
        aggregation,
        correction=sequence_truncated_importance,
        kl_estimator=kl_k2,
        kl_coefficient=0.3,
        entropy_coefficient=0.2,
    )
    batch = ragged_batch(0)
    advantages = ragged_advantages(batch)
    found = []
    counts = []
    for budget in (10_000, 60, 22):
        actor = learner(micro_batch_tokens=budget, max_gradient_norm=None)
        lengths = (batch.trainable * torch.arange(1, 14)).amax(1)
        counts.append(len(row_parts(lengths, actor.options.micro_batch_tokens)))
        found.append(gradients(actor, batch, advantages, objective))
    assert counts == [1, 2, 4]
    for seen, loss in found[1:]:
        assert loss == pytest.approx(found[0][1], abs=1e-6)
        for name, gradient in seen.items():
            torch.testing.assert_close(gradient, found[0][0][name], atol=1e-6, rtol=0)
    assert max(g.abs().max() for g in found[0][0].values()) > 1e-3


def test_the_gradient_is_that_of_the_plain_formula(
    learner: Callable[..., Learner], model: Callable[..., PreTrainedModel]
) -> None:
    """-sum(A log pi) / N by an unpadded loop over rows, entropy bonus included."""
    batch = ragged_batch(2)
    advantages = ragged_advantages(batch, 2)
    objective = Objective(clipped_surrogate, token_mean, entropy_coefficient=0.1)
    seen, loss = gradients(
        learner("llama", max_gradient_norm=None, temperature=0.8),
        batch,
        advantages,
        objective,
    )
    plain = model("llama").train()
    total = torch.zeros(())
    surrogate = 0.0
    for row in range(batch.num_rollouts):
        length = int(batch.token_mask[row].sum())
        ids = batch.token_ids[row, :length]
        table = (plain(input_ids=ids[None]).logits[0] / 0.8).log_softmax(-1)
        for t in batch.trainable[row].nonzero()[:, 0].tolist():
            entropy = -(table[t - 1].exp() * table[t - 1]).sum()
            total = total - advantages[row, t] * table[t - 1, ids[t]] - 0.1 * entropy
            surrogate -= float(advantages[row, t]) + 0.1 * float(entropy.detach())
    count = int(batch.trainable.sum())
    (total / count).backward()
    # At ratio 1 the surrogate's value is -A, its gradient the policy gradient's.
    assert loss == pytest.approx(surrogate / count, abs=1e-5)
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(seen[name], parameter.grad, atol=2e-6, rtol=1e-4)


def test_one_step_has_ratio_exactly_one_and_no_extra_forward(
    learner: Callable[..., Learner],
) -> None:
    """Case B074: a model with dropout .1, in one pass."""
    batch = ragged_batch(4)
    update = learner("gpt2").begin(batch, ragged_advantages(batch), GRPO, 0).run()
    assert torch.equal(update.old_logprobs, update.logprobs)
    assert (update.logprobs[batch.trainable] < 0).all()
    assert not update.logprobs[~batch.trainable].any()
    assert update.num_forward_tokens == update.num_backward_tokens > 0


def test_training_mode_scores_as_evaluation_mode_does(
    learner: Callable[..., Learner],
) -> None:
    """Case B074: dropout changes no log-prob between old and new."""
    batch = ragged_batch(4)
    actor = learner("gpt2")
    before = actor.logprobs(batch)
    update = actor.begin(batch, ragged_advantages(batch), GRPO, 0).run()
    assert torch.equal(update.logprobs[batch.trainable], before[batch.trainable])


def test_gradients_are_taken_in_training_mode_and_all_else_in_evaluation_mode(
    learner: Callable[..., Learner],
) -> None:
    """Case B075, the model's flag as each forward sees it."""
    actor = learner()
    # Past the first updates, so that the model is not probed among the forwards.
    actor._counters.num_updates = 100
    modes: list[tuple[bool, bool]] = []
    actor.model.model.register_forward_pre_hook(
        lambda module, _: modes.append((module.training, torch.is_grad_enabled()))
    )
    batch = ragged_batch(0)
    objective = replace(GRPO, num_minibatches=2)
    for _ in range(2):
        # Whoever shares the model may have left it in either mode.
        actor.model.train()
        actor.begin(batch, ragged_advantages(batch), objective, 0).run()
        actor.model.train()
        actor.logprobs(batch)
    assert set(modes) == {(True, True), (False, False)}
    assert not actor.model.training


def test_gradient_checkpointing_recomputes_and_changes_no_gradient(
    learner: Callable[..., Learner],
) -> None:
    batch = ragged_batch(0)
    advantages = ragged_advantages(batch)
    calls = [0, 0]
    found = []
    for index, checkpointing in enumerate((False, True)):
        actor = learner(gradient_checkpointing=checkpointing)
        # Past the first updates, so that the model is not probed among the forwards.
        actor._counters.num_updates = 100

        def count(*_: object, index: int = index) -> None:
            calls[index] += 1

        actor.model.model.layers[0].mlp.register_forward_pre_hook(count)
        found.append(gradients(actor, batch, advantages, GRPO)[0])
    assert calls[1] == 2 * calls[0]
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient, atol=1e-7, rtol=1e-5)


def test_the_second_forward_of_gradient_checkpointing_is_counted(
    learner: Callable[..., Learner],
) -> None:
    batch = ragged_batch(0)
    actor = learner(gradient_checkpointing=True)
    update = actor.begin(batch, ragged_advantages(batch), GRPO, 0).run()
    lengths = (batch.trainable * torch.arange(1, 14)).amax(1)
    assert update.num_backward_tokens == int(lengths.sum())
    assert update.num_forward_tokens == 2 * int(lengths.sum())


def test_later_minibatches_see_the_policy_from_before_the_update(
    learner: Callable[..., Learner],
) -> None:
    batch = ragged_batch(5)
    actor = learner()
    before = torch.where(batch.trainable, actor.logprobs(batch), 0.0)
    objective = replace(GRPO, num_minibatches=3, num_epochs=2)
    update = actor.begin(batch, ragged_advantages(batch, 5), objective, 0).run()
    torch.testing.assert_close(update.old_logprobs, before, atol=1e-5, rtol=0)
    assert (update.logprobs - before).abs().max() > 1e-2
    assert len(update.losses) == len(update.gradient_norms) == 6
    # Two epochs of gradient, and the rows outside the first minibatch once without.
    assert 2 < update.num_forward_tokens / (update.num_backward_tokens / 2) < 3


def test_the_engines_logprobs_stand_in_for_the_old_policy_when_asked(
    learner: Callable[..., Learner],
) -> None:
    batch = ragged_batch(6)
    objective = replace(GRPO, old_from_engine=True, num_epochs=2)
    update = learner().begin(batch, ragged_advantages(batch), objective, 0).run()
    expected = torch.where(batch.trainable, batch.sampling_logprobs, 0.0)
    assert torch.equal(update.old_logprobs, expected)
    assert update.num_forward_tokens == update.num_backward_tokens


def test_an_update_of_minibatches_equals_one_update_for_each_of_them(
    learner: Callable[..., Learner],
) -> None:
    """Case B032: the last, smaller minibatch is divided by what it holds."""
    batch = ragged_batch(7, num_groups=5, group_size=2)
    advantages = ragged_advantages(batch, 7)
    objective = Objective(policy_gradient, token_mean, num_minibatches=3)
    at_once, apart = learner(), learner()
    rows: list[torch.Tensor] = []

    def spy(sampled: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
        match = [(batch.trainable == row).all(1).nonzero()[:, 0] for row in sampled]
        rows.append(torch.cat(match).unique())
        return token_mean(sampled, groups)

    at_once.begin(batch, advantages, replace(objective, aggregation=spy), 0).run()
    assert sorted(len(index) for index in rows) == [3, 3, 4]
    assert torch.cat(rows).sort().values.tolist() == list(range(10))
    for index in rows:
        single = replace(objective, num_minibatches=1)
        apart.begin(batch.rows(index), advantages[index], single, 0).run()
    for name, weight in weights_of(at_once).items():
        torch.testing.assert_close(weight, weights_of(apart)[name], atol=1e-6, rtol=0)


def test_a_minibatch_holds_its_rows_in_order_and_numbers_its_own_groups(
    learner: Callable[..., Learner],
) -> None:
    batch = ragged_batch(7, num_groups=6, group_size=2)
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def spy(sampled: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
        seen.append((sampled, groups))
        return token_mean(sampled, groups)

    objective = Objective(policy_gradient, spy, num_minibatches=3)
    learner().begin(batch, ragged_advantages(batch, 7), objective, 0).run()
    assert len(seen) == 3
    for sampled, groups in seen:
        match = [(batch.trainable == row).all(1).nonzero()[:, 0] for row in sampled]
        rows = [int(index[0]) for index in match if len(index) == 1]
        assert rows == sorted(rows)
        own = sorted({int(batch.group_index[row]) for row in rows})
        assert groups.unique().tolist() == list(range(int(groups.max()) + 1))
        assert len(own) <= int(groups.max()) + 1 < 6
        assert (groups.diff() >= 0).all()


def test_gradients_are_clipped_to_the_norm_and_reported_unclipped(
    learner: Callable[..., Learner],
) -> None:
    batch = ragged_batch(0)
    advantages = 100 * ragged_advantages(batch)
    actor = learner(max_gradient_norm=0.25)
    seen, _ = gradients(actor, batch, advantages, GRPO)
    norm = torch.stack([g.square().sum() for g in seen.values()]).sum().sqrt()
    assert float(norm) == pytest.approx(0.25, rel=1e-4)
    free = learner(max_gradient_norm=None)
    update = free.begin(batch, advantages, GRPO, 0).run()
    assert update.gradient_norms[0] > 1.0


def test_weights_are_float32_masters_even_of_a_half_precision_model(
    model: Callable[..., PreTrainedModel], learner: Callable[..., Learner]
) -> None:
    actor = Learner(model().to(torch.bfloat16), learner().options)
    batch = ragged_batch(0)
    actor.begin(batch, ragged_advantages(batch), GRPO, 0).run()
    assert {p.dtype for p in actor.model.parameters()} == {torch.float32}
    states = actor._optimizer.state.values()
    assert {t.dtype for state in states for t in state.values()} == {torch.float32}


def test_entropies_are_those_of_the_sampling_temperature(
    learner: Callable[..., Learner],
) -> None:
    batch = ragged_batch(0)
    hot = learner(temperature=50.0)
    update = hot.begin(batch, ragged_advantages(batch), GRPO, 0).run()
    entropies = update.entropies[batch.trainable]
    assert (entropies > 0.98 * math.log(VOCAB)).all()
    assert (entropies < math.log(VOCAB) + 1e-5).all()
    assert not update.entropies[~batch.trainable].any()


def test_who_watches_is_told_of_every_micro_batch(learner: Callable[..., Learner]):
    told: list[tuple[int, int]] = []
    batch = ragged_batch(0)
    watched, plain = (learner(micro_batch_tokens=24) for _ in range(2))
    watched.watch = lambda *numbers: told.append(numbers)
    objective = replace(GRPO, num_minibatches=2)
    for one in (watched, plain):
        one.begin(batch, ragged_advantages(batch), objective, 0).run()
    assert all(
        torch.equal(weight, weights_of(plain)[name])
        for name, weight in weights_of(watched).items()
    )
    first = told[0][1]
    rest = told[first:]
    assert first > 1 and told[:first] == [(i, first) for i in range(first)]
    assert rest == [(i, rest[0][1]) for i in range(rest[0][1])]
