"""Alignment of a value head on the packaged model, V^new from fresh continuations.

    256 rollouts of the packaged model -> four minibatches of GRPO, clip .2 and .28
    the same rollouts, reweighted     -> targets -> four minibatches of the value head
    error of the critic               <- continuations of the new policy, at prefixes of
                                         its own fresh rollouts on the same problems

The critic has a backbone of its own. Before, it was fitted to V of the packaged model
(exact under the beliefs that the model imitates), once for each length. Steps are
tokens: two of three are forced by the map, their ratios near 1.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from alignment_targets import Target, targets
from torch import Tensor
from walk_model import (
    WalkWorld,
    critic_of,
    learner_of,
    mixed_prompts,
    outcome_targets,
    packaged_world,
    prefixes_at,
)

from accredit.algorithms.build import Parts, build_algorithm
from accredit.algorithms.configs import GRPOConfig
from accredit.algorithms.step import OutcomeAlgorithm
from accredit.batches.decisions import token_steps
from accredit.critics.value_head.critic import ValueHeadCritic
from accredit.randomness import generator
from accredit.records import ValueTargets
from accredit.types import Batch

TARGETS = targets(window=16)
POLICY_RATES = {"small": 1e-4, "medium": 3e-4, "large": 1e-3}
"""Of the policy's AdamW, in four steps; the change they make is measured."""
RATES = (1e-4, 3e-4)
"""Of the critic's AdamW."""
TUNING_SEED = 1000
NUM_PROBLEMS, GROUP_SIZE = 32, 8
NUM_PREFIXES, NUM_CONTINUATIONS = 200, 32
WARM_PHASES = ((2e-3, 6), (7e-4, 3), (2e-4, 2))
"""Learning rate and passes over three batches of the critic's first fit."""

Cell = dict[str, dict[str, float]]


def grpo(num_moves: int) -> OutcomeAlgorithm:
    """Whose credit and objective move the policy."""
    config = GRPOConfig(num_minibatches=4, clip_low=0.2, clip_high=0.28)
    return build_algorithm(config, Parts(3 * num_moves, None, None))


@dataclass(frozen=True)
class Change:
    """An update of the policy, the rollouts it was made from, and fresh ones."""

    world: WalkWorld
    """Its model is the new policy's."""
    batch: Batch
    ratios: Tensor
    fresh: Batch
    places: Tensor
    """(row, t) of prefixes in the fresh rollouts."""
    truth: Tensor
    """Mean reward of the new policy's continuations from them."""

    @cached_property
    def noise(self) -> float:
        """Mean squared error of the truth itself, unbiased."""
        p, k = self.truth, NUM_CONTINUATIONS
        return float((p * (1 - p) / (k - 1)).mean())

    def error(self, values: Tensor) -> dict[str, float]:
        """Of values at the fresh prefixes; the squared one without the truth's noise.

        MAE is to the noisy truth, and so larger than that to V itself.
        """
        found = values[self.places[:, 0], self.places[:, 1]].double()
        errors = found - self.truth
        return {
            "bias": float(errors.mean()),
            "mae": float(errors.abs().mean()),
            "mse": float(errors.square().mean()) - self.noise,
        }


def policy_change(num_moves: int, size: str, seed: int) -> Change:
    """Rolls out, updates, and looks at what the new policy does."""
    world = packaged_world(num_moves, seed)
    prompts = mixed_prompts(world)[:NUM_PROBLEMS]
    batch = world.rolled_out(prompts, GROUP_SIZE, ("old",))
    algorithm = grpo(num_moves)
    values = algorithm.critic.values(batch, batch.rewards)
    credit = algorithm.credit(batch, batch.rewards, values)
    learner = learner_of(world, POLICY_RATES[size])
    update = learner.begin(batch, credit.advantages, algorithm.objective, seed).run()
    log_ratios = learner.logprobs(batch) - update.old_logprobs
    fresh = world.rolled_out(prompts, GROUP_SIZE, ("new",))
    prefixes, places = prefixes_at(fresh, NUM_PREFIXES, generator(seed, "prefixes"))
    return Change(
        world,
        batch,
        torch.where(batch.trainable, log_ratios, 0.0).exp(),
        fresh,
        places,
        world.mean_rewards(prefixes, NUM_CONTINUATIONS, ("truth",)),
    )


def fitted_targets(change: Change, target: Target, values: Tensor) -> ValueTargets:
    """The target's numbers, back on the tokens of the batch."""
    batch = change.batch
    steps = token_steps(batch.sampled, batch.token_mask)
    wanted, weights, accepted = target.aligned(
        steps.sums(change.ratios),
        batch.rewards,
        steps.prefix_values(values),
        steps.step_mask,
    )
    return ValueTargets(
        steps.spread(wanted),
        steps.spread(weights),
        steps.spread(accepted.float()).bool(),
    )


def warm_critic(num_moves: int, folder: Path) -> dict[str, float]:
    """Fits a critic to V of the packaged model and saves it; its error elsewhere."""
    world = packaged_world(num_moves, 0)
    prompts = mixed_prompts(world)
    batches = [world.rolled_out(prompts, 2, ("warm", n)) for n in range(3)]
    critic = None
    for rate, passes in WARM_PHASES:
        fresh = critic_of(world, learning_rate=rate, num_minibatches=8)
        if critic is not None:
            fresh.take(folder)
        critic = fresh
        for n in range(passes):
            for batch in batches:
                exact = torch.where(batch.trainable, world.exact_values(batch), 0.0)
                wanted = ValueTargets(exact, torch.ones_like(exact), batch.trainable)
                critic.update(batch, wanted, n, warming_up=False)
        critic.save(folder)
    seen = world.rolled_out(prompts, 1, ("seen",))
    errors = critic.values(seen, seen.rewards)[:, :-1] - world.exact_values(seen)
    errors = errors[seen.trainable]
    return {"bias": float(errors.mean()), "mae": float(errors.abs().mean())}


def opened(change: Change, folder: Path, rate: float) -> ValueHeadCritic:
    """The warm critic with a learning rate and a fresh optimizer."""
    critic = critic_of(change.world, learning_rate=rate, num_minibatches=4)
    critic.take(folder)
    return critic


def fitted_errors(
    change: Change, folder: Path, rates: Mapping[str, float], seed: int
) -> Cell:
    """Error of the warm critic and of what each target makes of it."""
    warm = opened(change, folder, RATES[0])
    values = warm.values(change.batch, change.batch.rewards)
    errors = {
        "no update": change.error(warm.values(change.fresh, change.fresh.rewards)),
        "exact V^old": change.error(change.world.exact_values(change.fresh)),
    }
    again = change.world.rolled_out(
        change.batch.prompts[::GROUP_SIZE], GROUP_SIZE, ("again",)
    )
    for name, rate in rates.items():
        batch = change.batch if name in TARGETS else again
        if name in TARGETS:
            wanted = fitted_targets(change, TARGETS[name], values)
        else:
            wanted = outcome_targets(batch)
        critic = opened(change, folder, rate)
        critic.update(batch, wanted, seed, warming_up=False)
        errors[name] = change.error(critic.values(change.fresh, change.fresh.rewards))
    return errors


def chosen_rates(num_moves: int, size: str, folder: Path) -> dict[str, float]:
    """The rate of each target with the smallest squared error, on a seed of its own."""
    change = policy_change(num_moves, size, TUNING_SEED)
    names = [*TARGETS, "fresh rollouts"]
    found = {
        rate: fitted_errors(change, folder, dict.fromkeys(names, rate), TUNING_SEED)
        for rate in RATES
    }
    return {n: min(RATES, key=lambda rate: found[rate][n]["mse"]) for n in names}


def described(change: Change) -> dict[str, float]:
    """How large the change was, and what it was worth."""
    ratios = change.ratios[change.batch.trainable].double()
    return {
        "mean_change": float((ratios - 1).abs().mean()),
        "kl": float((ratios - 1 - ratios.log()).mean()),
        "largest_ratio": float(ratios.max()),
        "share_rejected": float((ratios > 6).double().mean()),
        "old_success": float(change.batch.rewards.mean()),
        "new_success": float(change.fresh.rewards.mean()),
        "tokens": float(change.batch.sampled.sum(1).double().mean()),
        "truth_noise": change.noise,
    }


def cells(lengths: Iterable[int], seeds: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Every length and size, all seeds in each."""
    for num_moves in lengths:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            warm = warm_critic(num_moves, folder)
            for size in POLICY_RATES:
                rates = chosen_rates(num_moves, size, folder)
                cell: dict[str, Any] = {"num_moves": num_moves, "size": size}
                cell |= {"warm_mae": warm["mae"], "warm_bias": warm["bias"]}
                cell |= {"rates": rates, "change": [], "critic": []}
                for seed in seeds:
                    change = policy_change(num_moves, size, seed)
                    found = fitted_errors(change, folder, rates, seed)
                    cell["change"].append({"policy": described(change)})
                    cell["critic"].append(found)
                yield cell
