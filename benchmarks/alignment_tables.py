"""Alignment of a critic on tabular walks, where V of the new policy is exact.

    512 walks of the old policy -> a GRPO step of the table, of a chosen size
    the same walks, reweighted  -> targets -> eight Adam steps of a critic of V^old
    error of the critic         <- exact V^new at prefixes of fresh walks

Everything is paired: within a seed all targets see the same walks, the same policies
and the same first critic.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import torch
from alignment_targets import Target, targets
from torch import Tensor
from torch.nn.functional import softplus
from walk_tables import (
    SUCCESSORS,
    Problems,
    TableCritic,
    Walks,
    changed_policy,
    mixed_problems,
    sampled_walks,
    tensors,
)

from accredit.randomness import generator
from accredit.tasks.walk import Policy, belief_policy, success_values

TARGETS = targets(window=5)
"""The default window is 16 tokens, which are five moves."""
MINIBATCHES = 4
WARMUP_STEPS = 1000
RATES = (1e-4, 3e-4, 1e-3)
PASSES = 2
"""Over the batch, four minibatches each, from the same targets."""
Cell = dict[str, dict[str, float]]


class Change(NamedTuple):
    """An old policy, its walks, the policy they made, and what is known of both."""

    walks: Walks
    old: Policy
    new: Policy
    old_values: np.ndarray
    new_values: np.ndarray
    ratios: Tensor
    fresh: Walks
    """Walks of the new policy on the same problems: where errors are measured."""
    again: Walks
    """Walks of the old policy that had no part in the change."""
    again_ratios: Tensor


def policy_change(
    old: Policy, problems: Problems, num_moves: int, size: float, key: tuple[int, ...]
) -> Change:
    """Rolls out, takes the step, and rolls out again."""
    walks, again, fresh = (generator(*key, use) for use in ("walks", "again", "fresh"))
    made_from = sampled_walks(old, problems, num_moves, walks)
    new = changed_policy(old, made_from, size)
    afresh = sampled_walks(old, problems, num_moves, again)
    return Change(
        made_from,
        old,
        new,
        success_values(old, num_moves),
        success_values(new, num_moves),
        ratio_tensor(made_from, old, new),
        sampled_walks(new, problems, num_moves, fresh),
        afresh,
        ratio_tensor(afresh, old, new),
    )


def ratio_tensor(walks: Walks, old: Policy, new: Policy) -> Tensor:
    """new / old of each move, 1 at padding."""
    return torch.from_numpy(walks.chosen(new) / walks.chosen(old))


def visited(walks: Walks) -> tuple[np.ndarray, ...]:
    """Goal, left and cell of every state in which a move was made."""
    return tuple(part[:, :-1][walks.mask] for part in walks.states)


def warm_critic(policy: Policy, walks: Walks, seed: int) -> TableCritic:
    """A critic fitted to the exact V of a policy at the states of its walks."""
    num_moves = walks.actions.shape[1]
    critic = TableCritic(num_moves, seed)
    states = tensors(visited(walks))
    wanted = torch.from_numpy(success_values(policy, num_moves)[visited(walks)])
    optimizer = torch.optim.Adam(critic.parameters(), 3e-3)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, WARMUP_STEPS)
    draws = torch.Generator().manual_seed(seed)
    for _ in range(WARMUP_STEPS):
        rows = torch.randint(len(wanted), (512,), generator=draws)
        logits = critic(tuple(part[rows] for part in states))
        loss = cross_entropy(logits, wanted[rows].float()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()
    return critic


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """softplus(z) - Y z, for any Y."""
    return softplus(logits) - targets * logits


class Fit:
    """A critic under training by one target."""

    def __init__(self, critic: TableCritic, rate: float, seed: int) -> None:
        self.critic = copy.deepcopy(critic)
        self.optimizer = torch.optim.Adam(self.critic.parameters(), rate)
        self.draws = torch.Generator().manual_seed(seed)

    def update(
        self, walks: Walks, targets: Tensor, weights: Tensor, where: Tensor
    ) -> None:
        """Some passes, each in four minibatches of whole walks."""
        states = tuple(part[:, :-1] for part in tensors(walks.states))
        orders = [
            torch.randperm(len(targets), generator=self.draws) for _ in range(PASSES)
        ]
        for rows in (
            part for order in orders for part in order.tensor_split(MINIBATCHES)
        ):
            kept = where[rows]
            logits = self.critic(tuple(part[rows][kept] for part in states))
            wanted = targets[rows][kept].float()
            losses = weights[rows][kept].float() * cross_entropy(logits, wanted)
            self.optimizer.zero_grad()
            losses.mean().backward()
            self.optimizer.step()

    def learn(self, change: Change, target: Target, seed: int) -> None:
        """One update towards a target, with this critic's own V where it has any."""
        mask = torch.from_numpy(change.walks.mask)
        outcomes = torch.from_numpy(change.walks.outcomes)
        values = self.critic.values(change.walks)
        aligned = target.aligned(change.ratios, outcomes, values, mask, seed)
        self.update(change.walks, *aligned)


def plainly(fit: Fit, walks: Walks, targets: Tensor) -> None:
    """One update with targets of one's own, all of one weight."""
    mask = torch.from_numpy(walks.mask)
    fit.update(walks, targets, torch.ones_like(targets), mask)


def learn_fresh(fit: Fit, change: Change) -> None:
    """Outcomes of fresh walks of the new policy: as many again, which cost as much."""
    outcomes = torch.from_numpy(change.fresh.outcomes)
    mask = change.fresh.mask
    plainly(fit, change.fresh, outcomes[:, None].expand(mask.shape).contiguous())


def learn_exact(fit: Fit, change: Change) -> None:
    """V^new itself at the old walks: what the optimizer reaches without noise."""
    exact = change.walks.along(change.new_values)[:, :-1]
    plainly(fit, change.walks, torch.from_numpy(exact))


def learn_nothing(fit: Fit, change: Change) -> None:
    """The critic as it was."""


REFERENCES: dict[str, Callable[[Fit, Change], None]] = {
    "no update": learn_nothing,
    "fresh rollouts": learn_fresh,
    "exact V^new": learn_exact,
}


def error(critic: TableCritic, change: Change) -> dict[str, float]:
    """Bias and MAE to V^new over the prefixes of the new policy's own walks."""
    mask = change.fresh.mask
    found = critic.values(change.fresh).numpy()[:, :-1][mask]
    exact = change.fresh.along(change.new_values)[:, :-1][mask]
    return {
        "bias": float((found - exact).mean()),
        "mae": float(np.abs(found - exact).mean()),
    }


def fitted_errors(
    change: Change, fits: dict[str, Fit], seed: int
) -> dict[str, dict[str, float]]:
    """Every critic's error after one update of its own."""
    errors = {}
    for name, fit in fits.items():
        if name in TARGETS:
            fit.learn(change, TARGETS[name], seed)
        else:
            REFERENCES[name](fit, change)
        errors[name] = error(fit.critic, change)
    return errors


def target_bias(change: Change) -> dict[str, dict[str, float]]:
    """Mean of target - V^new over the prefixes, with the exact old V as the critic's.

    On the walks that made the change, and on walks of the same policy that did not.
    Walks are weighted alike per move, targets by their own weights.
    """
    found: dict[str, dict[str, float]] = {}
    sources = {
        "reused": (change.walks, change.ratios),
        "independent": (change.again, change.again_ratios),
    }
    for source, (walks, ratios) in sources.items():
        mask = torch.from_numpy(walks.mask)
        outcomes = torch.from_numpy(walks.outcomes)
        values = torch.from_numpy(walks.along(change.old_values))
        exact = torch.from_numpy(walks.along(change.new_values))[:, :-1]
        for name, target in TARGETS.items():
            wanted, weights, where = target.aligned(ratios, outcomes, values, mask)
            errors = (weights * (wanted - exact))[where]
            entry = found.setdefault(name, {})
            entry[source] = float(errors.sum() / weights[where].sum())
            entry[f"{source}_deviation"] = float((wanted - exact)[where].std())
    return found


def expected_targets(change: Change) -> dict[str, np.ndarray]:
    """E[target | prefix] under the old policy, by dynamic programming.

    The critic inside a target says the exact old V. The change of policy is taken as
    given, independent of the data; `full product` uncapped is V^new itself.
    """
    old, new, before = change.old, change.new, change.old_values
    ended = at_goal(before)
    shift = expected_next(new, before, ended) - expected_next(old, before, ended)
    window, running = [shift], shift
    for _ in range(before.shape[1]):
        running = shift + expected_next(old, running, ended)
        window.append(running)
    ratios = new / old
    return {
        "plain": before,
        "pact": before + shift,
        "windowed, 5": before + window[min(5, len(window) - 1)],
        "windowed, whole": before + window[-1],
        "v-trace, cap 1": expected_vtrace(old, ratios.clip(max=1.0), before),
        "v-trace, cap 6": expected_vtrace(old, ratios.clip(max=6.0), before),
    }


def next_values(table: np.ndarray) -> np.ndarray:
    """Of (goal, left, cell, action): the table where a move leads, 0 with none left."""
    following = np.zeros((*table.shape, SUCCESSORS.shape[1]))
    following[:, 1:] = table[:, :-1][:, :, SUCCESSORS]
    return following


def at_goal(values: np.ndarray) -> np.ndarray:
    """Where the walk is over: V is 1 at the goal, and with no move left."""
    ended = np.zeros(values.shape, dtype=bool)
    ended[:, 0] = True
    goals, cells = np.nonzero(values[:, 0] == 1.0)
    ended[goals, :, cells] = True
    return ended


def expected_next(policy: Policy, table: np.ndarray, ended: np.ndarray) -> np.ndarray:
    """E of a table one move later; 0 where the walk is over."""
    expected = (policy[:, None] * next_values(table)).sum(axis=-1)
    return np.where(ended, 0.0, expected)


def expected_vtrace(old: Policy, capped: np.ndarray, values: np.ndarray) -> np.ndarray:
    """X(s) = V(s) + sum_a old(a) capped(a) (X(s') - V(s)), X = V where it is over."""
    found = values.copy()
    ended = at_goal(values)
    weights = (old * capped)[:, None]
    for left in range(1, values.shape[1]):
        here = slice(left, left + 1)
        moved = next_values(found)[:, here] - values[:, here][..., None]
        update = values[:, here] + (weights * moved).sum(axis=-1)
        found[:, here] = np.where(ended[:, here], values[:, here], update)
    return found


def expected_errors(change: Change) -> dict[str, dict[str, float]]:
    """Bias and MAE of the targets' expectations over the new policy's prefixes."""
    mask = change.fresh.mask
    exact = change.fresh.along(change.new_values)[:, :-1][mask]
    errors = {}
    for name, table in expected_targets(change).items():
        found = change.fresh.along(table)[:, :-1][mask]
        errors[name] = {
            "bias": float((found - exact).mean()),
            "mae": float(np.abs(found - exact).mean()),
        }
    return errors


def changes_in_a_row(
    num_moves: int, size: float, count: int, seed: int
) -> list[Change]:
    """A policy that improves step by step, each from the walks of the one before."""
    policy = belief_policy()
    draw = generator(seed, "problems", num_moves)
    problems = mixed_problems(policy, num_moves, draw)
    changes = []
    for k in range(count):
        key = (seed, num_moves, round(1e6 * size), k)
        changes.append(policy_change(policy, problems, num_moves, size, key))
        policy = changes[-1].new
    return changes


def new_fits(
    critic: TableCritic, rates: Mapping[str, float], seed: int
) -> dict[str, Fit]:
    """A copy of the critic for each target, with its learning rate."""
    return {name: Fit(critic, rate, seed) for name, rate in rates.items()}


def chosen_rates(
    num_moves: int, size: float, seeds: Iterable[int], count: int = 1
) -> dict[str, float]:
    """The rate of each target with the smallest MAE, on seeds of their own."""
    names = [*TARGETS, *REFERENCES]
    totals = {rate: dict.fromkeys(names, 0.0) for rate in RATES}
    for seed in seeds:
        changes = changes_in_a_row(num_moves, size, count, seed)
        critic = warm_critic(changes[0].old, changes[0].walks, seed)
        for rate in RATES:
            fits = new_fits(critic, dict.fromkeys(names, rate), seed)
            for change in changes:
                for name, found in fitted_errors(change, fits, seed).items():
                    totals[rate][name] += found["mae"]
    return {name: min(RATES, key=lambda rate: totals[rate][name]) for name in names}


def one_update(
    num_moves: int, size: float, rates: Mapping[str, float], seeds: Iterable[int]
) -> Iterator[tuple[str, Cell]]:
    """Errors of targets and critics, seed by seed, after one change of the policy."""
    for seed in seeds:
        (change,) = changes_in_a_row(num_moves, size, 1, seed)
        critic = warm_critic(change.old, change.walks, seed)
        yield "change", {"policy": described(change)}
        yield "expected", expected_errors(change)
        yield "target", target_bias(change)
        yield "critic", fitted_errors(change, new_fits(critic, rates, seed), seed)


def many_updates(
    num_moves: int,
    size: float,
    count: int,
    rates: Mapping[str, float],
    seeds: Iterable[int],
) -> Iterator[tuple[str, Cell]]:
    """Errors of critics that follow a policy for many steps; mean over the steps."""
    for seed in seeds:
        changes = changes_in_a_row(num_moves, size, count, seed)
        fits = new_fits(
            warm_critic(changes[0].old, changes[0].walks, seed), rates, seed
        )
        errors = [
            fitted_errors(change, fits, seed + k) for k, change in enumerate(changes)
        ]
        yield "change", {"policy": described(changes[-1])}
        yield (
            "critic",
            {
                name: {
                    "bias": float(np.mean([step[name]["bias"] for step in errors])),
                    "mae": float(np.mean([step[name]["mae"] for step in errors])),
                    "last_mae": errors[-1][name]["mae"],
                }
                for name in fits
            },
        )


def described(change: Change) -> dict[str, float]:
    """How large the change was, and what it was worth."""
    ratios = change.ratios.numpy()[change.walks.mask]
    starts = change.walks.problems.goals, -1, change.walks.problems.starts
    return {
        "mean_change": float(np.abs(ratios - 1).mean()),
        "kl": float((ratios - 1 - np.log(ratios.clip(1e-12))).mean()),
        "largest_ratio": float(ratios.max()),
        "old_success": float(change.old_values[starts].mean()),
        "new_success": float(change.new_values[starts].mean()),
        "moves": float(change.walks.mask.sum(axis=1).mean()),
    }
