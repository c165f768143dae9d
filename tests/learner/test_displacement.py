"""How far AdamW's last step moved the weights, from its state alone."""

import math
from collections.abc import Callable

import pytest
import torch
from learner_cases import GRPO, ragged_advantages, ragged_batch
from torch import nn

from accredit.learner.learner import Learner
from accredit.models.descent import Descent
from accredit.models.optimizer import AdamWOptions, adamw, displacement

SHAPES = [(4, 3), (5,), (2, 2, 2), ()]


def parameters(seed: int = 0, dtype: torch.dtype = torch.float64):
    """Float64, where a snapshot tells a move apart from its rounding."""
    draws = torch.Generator().manual_seed(seed)
    return [
        nn.Parameter(torch.randn(shape, generator=draws, dtype=dtype))
        for shape in SHAPES
    ]


def distance(after: list[nn.Parameter], before: list[torch.Tensor]) -> float:
    """From a snapshot, in float64."""
    moves = [
        (new.detach().double() - old.double()).flatten()
        for new, old in zip(after, before, strict=True)
    ]
    return float(torch.cat(moves).norm())


def pull(moved: list[nn.Parameter], seed: int, scale: float = 1.0) -> None:
    draws = torch.Generator().manual_seed(seed)
    for parameter in moved:
        noise = torch.randn(parameter.shape, generator=draws)
        parameter.grad = scale * noise.to(parameter)


def two_groups(
    moved: list[nn.Parameter], decay: float, epsilon: float = 1e-8
) -> torch.optim.AdamW:
    return torch.optim.AdamW(
        [
            {"params": moved[:2], "lr": 3e-2, "weight_decay": decay},
            {"params": moved[2:], "lr": 7e-3, "weight_decay": 0.0},
        ],
        betas=(0.8, 0.95),
        eps=epsilon,
    )


def test_the_first_step_by_hand():
    """m_hat / sqrt(v_hat) is the sign of the gradient: two entries move by lr."""
    weight = nn.Parameter(torch.tensor([5.0, -2.0]))
    optimizer = torch.optim.AdamW([weight], lr=0.1, weight_decay=0.0)
    weight.grad = torch.tensor([3.0, -4.0])
    optimizer.step()
    assert displacement(optimizer) == pytest.approx(0.1 * math.sqrt(2), rel=1e-6)


def test_weight_decay_alone_by_hand():
    """Without a gradient to speak of, (3, 4) loses a hundredth: 5 x .01."""
    weight = nn.Parameter(torch.tensor([3.0, 4.0]))
    optimizer = torch.optim.AdamW([weight], lr=0.1, weight_decay=0.1)
    weight.grad = torch.zeros(2)
    optimizer.step()
    torch.testing.assert_close(weight.detach(), torch.tensor([2.97, 3.96]))
    assert displacement(optimizer) == pytest.approx(0.05, rel=1e-6)


@pytest.mark.parametrize("decay", [0.0, 0.1, 3.0])
@pytest.mark.parametrize("epsilon", [1e-8, 0.3])
def test_it_is_the_distance_to_a_snapshot_after_every_step(decay, epsilon):
    """Two groups with rates of their own, gradients of changing size."""
    moved = parameters()
    optimizer = two_groups(moved, decay, epsilon)
    found = []
    for step in range(6):
        before = [p.detach().clone() for p in moved]
        pull(moved, step, scale=10.0 ** (step % 3 - 1))
        optimizer.step()
        found.append(displacement(optimizer))
        assert found[-1] == pytest.approx(distance(moved, before), rel=1e-10)
    assert len(set(found)) == len(found) and min(found) > 1e-3


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)]
)
def test_rates_may_change_from_step_to_step(dtype, tolerance):
    """The fused step, as learners take it."""
    moved = parameters(dtype=dtype)
    optimizer = adamw(nn.ParameterList(moved), AdamWOptions(weight_decay=0.5))
    for rate in (1e-2, 3e-3, 5e-2):
        for group in optimizer.param_groups:
            group["lr"] = rate
        before = [p.detach().clone() for p in moved]
        pull(moved, 1)
        optimizer.step()
        found = displacement(optimizer)
        assert found == pytest.approx(distance(moved, before), rel=tolerance)


def test_reading_it_changes_nothing():
    """Neither weights nor state: the next steps are those of who did not look."""
    watched, alone = parameters(), parameters()
    optimizers = [two_groups(moved, 0.1) for moved in (watched, alone)]
    for step in range(4):
        for moved, optimizer in zip((watched, alone), optimizers, strict=True):
            pull(moved, step)
            optimizer.step()
        assert displacement(optimizers[0]) == displacement(optimizers[0]) > 0
    for ours, theirs in zip(watched, alone, strict=True):
        assert torch.equal(ours, theirs)
        for slot, tensor in optimizers[0].state[ours].items():
            assert torch.equal(tensor, optimizers[1].state[theirs][slot])


def test_nothing_has_moved_before_any_step():
    moved = parameters()
    optimizer = two_groups(moved, 0.1)
    pull(moved, 0)
    assert displacement(optimizer) == 0.0
    assert not optimizer.state


def test_what_never_had_a_gradient_has_not_moved():
    moved = parameters()
    optimizer = two_groups(moved, 0.1)
    before = [p.detach().clone() for p in moved]
    pull(moved[1:3], 0)
    optimizer.step()
    assert displacement(optimizer) == pytest.approx(distance(moved, before), rel=1e-10)


def test_stale_state_counts_only_for_what_is_said_to_have_moved():
    """Three have a state; in the last step one of each group had a gradient."""
    moved = parameters()
    optimizer = two_groups(moved, 0.1)
    pull(moved[:3], 0)
    optimizer.step()
    optimizer.zero_grad()
    before = [p.detach().clone() for p in moved]
    pull(moved[1:3], 1)
    optimizer.step()
    exact = distance(moved, before)
    assert displacement(optimizer, moved[1:3]) == pytest.approx(exact, rel=1e-10)
    assert displacement(optimizer) > 1.5 * exact
    assert displacement(optimizer, []) == 0.0


def test_another_optimizer_is_refused():
    optimizer = torch.optim.SGD(parameters(), lr=1.0)
    with pytest.raises(ValueError, match="AdamW, got SGD; build the optimizer with"):
        displacement(optimizer)


def test_a_descent_knows_who_had_a_gradient_and_whether_it_stepped():
    moved = parameters()
    descent = Descent(
        two_groups(moved, 0.1),
        moved,
        max_gradient_norm=0.5,
        max_consecutive_skips=5,
        owner="the policy",
    )
    assert descent.displacement == 0.0
    for step, part in enumerate((moved, moved[1:3], moved[:1], moved)):
        before = [p.detach().clone() for p in moved]
        pull(part, step)
        descent.step(0.0)
        exact = distance(moved, before)
        assert descent.displacement == pytest.approx(exact, rel=1e-10) and exact > 0
    pull(moved, 9)
    descent.step(math.nan)
    assert descent.displacement == 0.0


@pytest.mark.parametrize("name", ["qwen3", "llama", "gpt2"])
def test_a_learner_reports_how_far_each_of_its_steps_moved_the_model(
    name: str, learner: Callable[..., Learner]
) -> None:
    """Against a snapshot; tied embeddings are one parameter and count once."""
    actor = learner(name, optimizer=AdamWOptions(weight_decay=0.1))
    batch = ragged_batch()
    snapshots: list[list[torch.Tensor]] = []

    def keep() -> None:
        snapshots.append([p.detach().clone() for p in actor.model.parameters()])

    keep()
    advantages = ragged_advantages(batch)
    for _ in range(3):
        update = actor.begin(
            batch, advantages, GRPO, 0, measures_displacement=True
        ).run()
        keep()
        after = list(actor.model.parameters())
        exact = distance(after, snapshots[-2])
        assert update.displacements == (pytest.approx(exact, rel=1e-5),)
        assert exact > 1e-2
