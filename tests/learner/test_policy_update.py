"""Updates taken step by step: what may happen in between, and in which order."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from learner_cases import (
    GRPO,
    ragged_advantages,
    ragged_batch,
    same,
    weights_of,
)
from torch import nn
from transformers import PreTrainedModel

from accredit.batches.rows import minibatch_rows
from accredit.functional.aggregation import token_mean
from accredit.functional.policy_losses import policy_gradient
from accredit.learner.learner import Learner
from accredit.learner.update import step_rows
from accredit.protocols import Objective
from accredit.records import PolicyUpdate
from accredit.types import Batch

pytestmark = pytest.mark.whole_run

SEVERAL = replace(GRPO, num_minibatches=2, num_epochs=2, shuffled=False)


Between = Callable[[int], None]
"""Called with the number of a step."""


def nothing(index: int) -> None:
    """Neither a gradient nor a step."""


def updated(
    actor: Learner,
    add: Between | None = None,
    after: Between | None = None,
    objective: Objective = SEVERAL,
    batch: Batch | None = None,
) -> PolicyUpdate:
    """All steps, with another gradient added to each, or something done after it."""
    batch = ragged_batch() if batch is None else batch
    update = actor.begin(
        batch, ragged_advantages(batch), objective, 3, measures_displacement=True
    )
    for index in range(update.num_steps):
        if update.backward(index) and add is not None:
            add(index)
        update.descend()
        if after is not None:
            after(index)
    return update.result()


def steps_of(actor: Learner, before: Callable[[int], None]) -> None:
    """Calls `before` with the number of each optimizer step, before it is taken."""
    step, count = actor._optimizer.step, iter(range(100))

    def spy() -> None:
        before(next(count))
        step()

    actor._optimizer.step = spy


@pytest.mark.parametrize("add", [None, nothing])
@pytest.mark.parametrize("after", [None, nothing])
def test_steps_taken_apart_are_those_of_a_run(
    learner: Callable[..., Learner], add: Between | None, after: Between | None
) -> None:
    """Bit for bit, over two updates: weights, optimizer and what is reported."""
    plain, disturbed = learner(), learner()
    for _ in range(2):
        batch = ragged_batch()
        expected = plain.begin(batch, ragged_advantages(batch), SEVERAL, 3).run()
        found = updated(disturbed, add, after)
        for name in ("old_logprobs", "logprobs", "entropies"):
            assert torch.equal(getattr(found, name), getattr(expected, name))
        assert found.losses == expected.losses
        assert found.gradient_norms == expected.gradient_norms
        assert found.num_forward_tokens == expected.num_forward_tokens
        assert expected.displacements == ()
        assert len(found.displacements) == 4 and min(found.displacements) > 1e-3
    assert same(weights_of(plain), weights_of(disturbed))
    for p, q in zip(
        plain.model.parameters(), disturbed.model.parameters(), strict=True
    ):
        for slot, tensor in plain._optimizer.state[p].items():
            assert torch.equal(tensor, disturbed._optimizer.state[q][slot])


def test_everything_happens_in_its_order(learner: Callable[..., Learner]) -> None:
    """Backward passes, the other gradient, the step, what follows it; four times."""
    actor = learner(micro_batch_tokens=30)
    events: list[tuple[Any, ...]] = []
    backward = torch.Tensor.backward

    def seen(self: torch.Tensor, *rest: Any, **more: Any) -> None:
        events.append(("backward",))
        backward(self, *rest, **more)

    def noted(name: str) -> Callable[[int], None]:
        def note(index: int) -> None:
            has_gradient = any(p.grad is not None for p in actor.model.parameters())
            events.append((name, index, has_gradient))

        return note

    steps_of(actor, noted("step"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "backward", seen)
        updated(actor, noted("add"), noted("after"))
    parts = [event for event in events if event != ("backward",)]
    assert parts == [
        (name, index, has_gradient)
        for index in range(4)
        for name, has_gradient in (("add", True), ("step", True), ("after", False))
    ]
    kinds = [event[0] for event in events]
    for index in range(4):
        place = kinds.index("add")
        assert place >= 2 and set(kinds[:place]) == {"backward"}, index
        kinds = kinds[place + 3 :]
    assert kinds == []


def weight_penalty(actor: Learner, scale: float) -> torch.Tensor:
    return scale * sum(p.square().sum() for p in actor.model.parameters())


def test_an_added_gradient_is_that_of_the_summed_loss(
    learner: Callable[..., Learner],
) -> None:
    """scale |weights|^2 at each step, whose gradient is 2 scale weights."""
    plain, actor = learner(max_gradient_norm=None), learner(max_gradient_norm=None)
    once = replace(SEVERAL, num_minibatches=1, num_epochs=1)
    alone: dict[str, torch.Tensor] = {}
    summed: dict[str, torch.Tensor] = {}

    def keep(of: Learner, into: dict[str, torch.Tensor]) -> Callable[[int], None]:
        def copy(index: int) -> None:
            named = of.model.named_parameters()
            into.update({n: p.grad.clone() for n, p in named if p.grad is not None})

        return copy

    steps_of(plain, keep(plain, alone))
    steps_of(actor, keep(actor, summed))
    before = weights_of(actor)

    def add(index: int) -> None:
        weight_penalty(actor, 0.25).backward()

    expected = updated(plain, objective=once)
    found = updated(actor, add, objective=once)
    assert alone.keys() == summed.keys() == before.keys()
    for name, gradient in summed.items():
        torch.testing.assert_close(gradient, alone[name] + 0.5 * before[name])
    assert found.losses == expected.losses
    norm = torch.stack([g.square().sum() for g in summed.values()]).sum().sqrt()
    assert found.gradient_norms == (pytest.approx(float(norm), rel=1e-5),)
    assert found.gradient_norms[0] > 1.5 * expected.gradient_norms[0]


def test_the_clip_covers_the_sum(learner: Callable[..., Learner]) -> None:
    actor = learner(max_gradient_norm=0.5)
    norms: list[float] = []

    def note(index: int) -> None:
        gradients = [p.grad for p in actor.model.parameters() if p.grad is not None]
        norms.append(float(torch.nn.utils.get_total_norm(gradients)))

    steps_of(actor, note)
    update = updated(actor, lambda i: weight_penalty(actor, 9.0).backward())
    assert norms == pytest.approx([0.5] * 4, rel=1e-4)
    assert min(update.gradient_norms) > 10.0


def test_an_added_gradient_that_is_not_finite_costs_the_step(
    learner: Callable[..., Learner],
) -> None:
    """The first of four; what follows it happens, and it has moved nothing."""
    actor = learner()
    before = weights_of(actor)
    unmoved: list[bool] = []

    def add(index: int) -> None:
        if index == 0:
            weight_penalty(actor, math.inf).backward()

    def after(index: int) -> None:
        unmoved.append(same(before, weights_of(actor)))

    update = updated(actor, add, after)
    assert unmoved == [True, False, False, False]
    assert update.num_skipped == 1 and math.isnan(update.gradient_norms[0])
    assert all(map(math.isfinite, update.losses))
    assert update.displacements[0] == 0.0 and min(update.displacements[1:]) > 1e-3


def test_a_minibatch_without_a_token_adds_nothing_and_is_followed(
    learner: Callable[..., Learner],
) -> None:
    """Two rows in three minibatches, and the first of the two unverified."""
    actor = learner()
    batch = ragged_batch(1).rows(torch.tensor([0, 1]))
    batch = replace(batch, verified=torch.tensor([False, True]))
    calls: list[tuple[str, int]] = []
    update = updated(
        actor,
        lambda index: calls.append(("add", index)),
        lambda index: calls.append(("after", index)),
        replace(GRPO, num_minibatches=3, shuffled=False),
        batch,
    )
    assert calls == [("after", 0), ("add", 1), ("after", 1), ("after", 2)]
    assert update.num_skipped == 2
    assert [math.isnan(loss) for loss in update.losses] == [True, False, True]
    assert update.displacements[0] == update.displacements[2] == 0.0
    assert update.displacements[1] > 1e-3


def test_later_minibatches_are_compared_with_the_policy_from_before_everything(
    learner: Callable[..., Learner],
) -> None:
    """Weights change by a tenth after the first step; its rows come first."""
    batch = ragged_batch()
    actor = learner()
    before = torch.where(batch.trainable, actor.logprobs(batch), 0.0)
    middle: list[torch.Tensor] = []
    ratios: list[torch.Tensor] = []

    def shrink(index: int) -> None:
        with torch.no_grad():
            for parameter in actor.model.parameters():
                parameter.mul_(0.9)
        middle.append(torch.where(batch.trainable, actor.logprobs(batch), 0.0))

    def spy(
        logprobs: torch.Tensor,
        old_logprobs: torch.Tensor,
        advantages: torch.Tensor,
        sampled: torch.Tensor,
    ) -> torch.Tensor:
        ratios.append((logprobs - old_logprobs).detach()[sampled])
        return policy_gradient(logprobs, old_logprobs, advantages, sampled)

    objective = Objective(spy, token_mean, num_minibatches=2, shuffled=False)
    update = updated(actor, after=shrink, objective=objective)
    torch.testing.assert_close(update.old_logprobs, before, atol=1e-5, rtol=0)
    assert not ratios[0].any()
    # Rows 6 to 11 were scored by the weights as they were left in between.
    late = batch.trainable.clone()
    late[:6] = False
    torch.testing.assert_close(
        update.logprobs[late], middle[0][late], atol=1e-5, rtol=0
    )
    gap = (middle[0] - before)[late]
    assert gap.abs().max() > 1e-2
    torch.testing.assert_close(
        ratios[1].sort().values, gap.sort().values, atol=1e-5, rtol=0
    )


def test_modes_and_gradients_that_it_leaves_do_not_reach_the_next_step(
    learner: Callable[..., Learner],
) -> None:
    """It evaluates, asks, learns by itself and forgets its gradients."""
    clean, soiled = learner(), learner()
    modes: list[bool] = []

    def gentle(index: int) -> None:
        with torch.no_grad():
            clean.model.get_input_embeddings().weight.mul_(0.99)

    def rude(index: int) -> None:
        soiled.logprobs(ragged_batch(2))
        with torch.no_grad():
            soiled.model.get_input_embeddings().weight.mul_(0.99)
        weight_penalty(soiled, 5.0).backward()
        soiled.model.eval()

    soiled.model.model.register_forward_pre_hook(
        lambda module, _: modes.append(module.training and torch.is_grad_enabled())
    )
    # Past the first updates, so that the model is not probed among the forwards.
    clean._counters.num_updates = soiled._counters.num_updates = 100
    expected = updated(clean, after=gentle)
    found = updated(soiled, after=rude)
    assert found.losses == expected.losses
    assert found.gradient_norms == expected.gradient_norms
    assert same(weights_of(clean), weights_of(soiled))
    assert all(p.grad is None for p in soiled.model.parameters())
    assert not soiled.model.training
    # One forward for the frozen log-probs, then a step and a question in turn.
    assert modes == [False] + [True, False] * 4


def test_displacements_are_of_the_policys_own_steps(
    learner: Callable[..., Learner],
) -> None:
    """Somebody else moves the same weights far more in between."""
    plain, disturbed = learner(), learner()

    def jump(index: int) -> None:
        with torch.no_grad():
            for parameter in disturbed.model.parameters():
                parameter.add_(1e-6 if index < 3 else 100.0)

    expected = updated(plain).displacements
    found = updated(disturbed, after=jump).displacements
    assert found == pytest.approx(expected, rel=1e-2)


def test_the_version_counts_the_steps_that_moved_the_weights(
    learner: Callable[..., Learner],
) -> None:
    """Four steps, then four of which the first is not finite, then a critic's two."""
    actor = learner()
    updated(actor)
    assert actor.version == 4
    updated(
        actor,
        lambda index: weight_penalty(actor, math.inf if index == 0 else 0.0).backward(),
    )
    assert actor.version == 7
    actor.moved_by_others(2)
    assert actor.version == 9


def test_steps_are_taken_in_their_order_and_all_of_them(
    learner: Callable[..., Learner],
) -> None:
    batch = ragged_batch()
    update = learner().begin(batch, ragged_advantages(batch), SEVERAL, 3)
    with pytest.raises(ValueError, match="step 0 of an update comes next, got 1"):
        update.step(1)
    update.step(0)
    with pytest.raises(ValueError, match="after its 4 steps, got 1"):
        update.result()


def test_an_error_amid_an_update_is_not_swallowed(
    learner: Callable[..., Learner],
) -> None:
    def fail(index: int) -> None:
        raise KeyError("critic")

    with pytest.raises(KeyError, match="critic"):
        updated(learner(), after=fail)


@pytest.mark.parametrize(
    ("num_rows", "num_minibatches", "expected"),
    [
        (4, 2, [[0, 1], [2, 3]]),
        (5, 2, [[0, 1, 2], [3, 4]]),
        (7, 3, [[0, 1, 2], [3, 4], [5, 6]]),
        (2, 3, [[0], [1], []]),
        (3, 1, [[0, 1, 2]]),
    ],
)
def test_unshuffled_minibatches_are_cut_from_the_batchs_own_order(
    num_rows: int, num_minibatches: int, expected: list[list[int]]
) -> None:
    """Every epoch alike, whatever the seed."""
    for seed in (0, 1):
        found = minibatch_rows(num_rows, num_minibatches, 2, seed, shuffled=False)
        assert [rows.tolist() for rows in found] == expected * 2


def test_an_objective_says_whether_its_minibatches_are_shuffled() -> None:
    batch = ragged_batch(num_groups=8)
    objective = Objective(policy_gradient, token_mean, num_minibatches=2)
    halves = [list(range(12)), list(range(12, 24))]
    unshuffled = step_rows(batch, replace(objective, shuffled=False), 5)
    assert [rows.tolist() for rows in unshuffled] == halves
    drawn = [rows.tolist() for rows in step_rows(batch, objective, 5)]
    assert drawn != halves
    assert sorted(drawn[0] + drawn[1]) == list(range(24))
    assert [rows.tolist() for rows in minibatch_rows(24, 2, 1, 5)] == drawn


def test_entropies_are_those_of_the_plain_forward(
    learner: Callable[..., Learner], model: Callable[..., PreTrainedModel]
) -> None:
    """Row by row without padding, at temperature .7; unverified rows too."""
    batch, plain = ragged_batch(3), model("llama")
    actor = learner("llama", temperature=0.7, micro_batch_tokens=40)
    found = actor.entropies(batch)
    assert not found.requires_grad and not actor.model.training
    assert not batch.verified.all()
    for row, length in enumerate(batch.token_mask.sum(1).tolist()):
        ids = batch.token_ids[row : row + 1, :length]
        with torch.no_grad():
            logits = plain(input_ids=ids).logits[0, :-1] / 0.7
        table = logits.log_softmax(-1)
        expected = torch.zeros(batch.token_ids.shape[1])
        expected[1:length] = -(table.exp() * table).sum(-1)
        expected = torch.where(batch.sampled[row], expected, 0.0)
        torch.testing.assert_close(found[row], expected, atol=1e-5, rtol=1e-5)
    assert found[batch.sampled].min() > 0.1


def test_entropies_before_an_update_are_those_that_it_reports(
    learner: Callable[..., Learner],
) -> None:
    actor, batch = learner(), ragged_batch()
    before = actor.entropies(batch)
    nn.init.zeros_(actor.model.get_input_embeddings().weight)
    flat = actor.entropies(batch)[batch.sampled]
    assert flat == pytest.approx(math.log(24), abs=1e-5)
    other = learner()
    update = updated(other, objective=GRPO)
    trainable = batch.trainable
    torch.testing.assert_close(update.entropies[trainable], before[trainable])
