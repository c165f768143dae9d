"""NaN and infinity: noticed after the step that made them, never saved, never read."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from learner_cases import GRPO, ragged_advantages, ragged_batch
from safetensors.torch import load_file, save_file
from torch import nn

from accredit.learner.learner import OPTIMIZER_FILE, Learner
from accredit.models.descent import Descent
from accredit.models.finite import all_finite, not_finite
from accredit.models.optimizer import AdamWOptions
from accredit.recipe.config import RecipeError, recipe_from

Build = Callable[..., Learner]


def step_of(actor: Learner) -> None:
    batch = ragged_batch(0)
    actor.begin(batch, ragged_advantages(batch), GRPO, 0).run()


@pytest.mark.parametrize(
    "changes",
    [
        {"rate": 1e39},
        {"rate": 1e300},
        {"optimizer": AdamWOptions(weight_decay=1e300)},
        {"optimizer": AdamWOptions(weight_decay=1e41)},
        {"rate": 1e20, "optimizer": AdamWOptions(weight_decay=1e25)},
    ],
    ids=str,
)
def test_a_step_that_breaks_the_weights_ends_the_run_and_says_so(
    learner: Build, changes: dict[str, Any]
) -> None:
    actor = learner(**changes)
    with pytest.raises(RuntimeError, match=r"weights of the policy must be finite af"):
        step_of(actor)


def test_a_step_that_leaves_large_weights_is_no_fault(learner: Build) -> None:
    """Their squares overflow float32, and they do not."""
    actor = learner(rate=1e25)
    step_of(actor)
    largest = max(float(p.detach().abs().max()) for p in actor.model.parameters())
    assert 1e24 < largest < math.inf
    assert all_finite([p.detach() for p in actor.model.parameters()])


@pytest.mark.parametrize("junk", [math.nan, math.inf, -math.inf])
def test_only_the_tensor_that_is_broken_is_named(junk: float) -> None:
    tensors = {"a": torch.ones(3), "n": torch.arange(2), "b": torch.ones(2, 2)}
    assert not_finite(tensors.items()) is None
    tensors["b"][1, 0] = junk
    assert not_finite(tensors.items()) == "b"
    assert not all_finite([tensors["a"], tensors["b"]])


@pytest.mark.parametrize("where", ["weight", "exp_avg", "exp_avg_sq"])
@pytest.mark.parametrize("junk", [math.nan, math.inf])
def test_what_is_not_finite_is_never_saved(
    learner: Build, tmp_path: Path, where: str, junk: float
) -> None:
    actor = learner()
    step_of(actor)
    weight: Any = actor.model.model.norm.weight
    target = weight if where == "weight" else actor._optimizer.state[weight][where]
    with torch.no_grad():
        target[2] = junk
    with pytest.raises(RuntimeError, match=r"must be finite, got NaN.*norm.weight"):
        actor.save(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("file", ["model/model.safetensors", OPTIMIZER_FILE])
def test_what_is_not_finite_is_never_gone_on_with(
    learner: Build, tmp_path: Path, file: str
) -> None:
    actor = learner()
    step_of(actor)
    actor.save(tmp_path)
    learner().load(tmp_path)
    tensors = {name: t.clone() for name, t in load_file(tmp_path / file).items()}
    name = next(name for name, t in tensors.items() if t.ndim == 2)
    tensors[name][0, 0] = math.nan
    save_file(tensors, tmp_path / file, {"format": "pt"})
    with pytest.raises(ValueError, match=r"must be finite, got NaN or infinity in"):
        learner().load(tmp_path)


def test_a_critics_step_is_checked_like_the_policys() -> None:
    weight = nn.Parameter(torch.ones(2, 2))
    optimizer = torch.optim.AdamW([weight], lr=1e39, fused=True)
    descent = Descent(
        optimizer,
        [weight],
        max_gradient_norm=1.0,
        max_consecutive_skips=3,
        owner="the critic",
    )
    weight.grad = torch.ones(2, 2)
    with pytest.raises(
        RuntimeError, match=r"weights of the critic must .* rate 1e\+39"
    ):
        descent.step(0.5)


@pytest.mark.parametrize("epsilon", [1e-46, 1e-45, 1e-39, 1e39, 5e-324])
def test_an_epsilon_that_float32_does_not_hold_is_refused(epsilon: float) -> None:
    with pytest.raises(RecipeError, match=r"learner\.epsilon must be "):
        recipe_from({"learner": {"epsilon": epsilon}}, "test")
    with pytest.raises(ValueError, match=r"normal numbers of float32"):
        AdamWOptions(epsilon=epsilon)


@pytest.mark.parametrize("epsilon", [1.2e-38, 1e-30, 1.0])
def test_an_epsilon_that_float32_holds_makes_no_nan(
    learner: Build, epsilon: float
) -> None:
    assert recipe_from({"learner": {"epsilon": epsilon}}, "test").learner.epsilon
    actor = learner(rate=1e-4, optimizer=AdamWOptions(epsilon=epsilon))
    step_of(actor)
    assert all_finite([p.detach() for p in actor.model.parameters()])
