"""The critic that asks the policy itself: V of a prefix by fresh rollouts from it.

Unbiased whatever the policy, and new at every step; what it costs instead is tokens.
Chosen prefixes are the starts of chunks of sampled tokens. Between them the last known
value is carried forward, and the end of a rollout is worth its outcome. Knows no
gradient and no algorithm.
"""

import math
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from accredit.batches.decisions import Steps, chunk_steps
from accredit.protocols import Environment
from accredit.types import Batch, Group, Prefix, Sampling


@dataclass(frozen=True, eq=False)
class Estimate:
    """What the fresh rollouts say, and the rollouts themselves."""

    values: Float[Tensor, "rollout prefix"]
    """Reward units; 0 before the first chosen prefix, at padding, and where nothing is
    trainable."""
    continuations: tuple[Group, ...]
    """A group for each distinct chosen prefix: all that was paid for."""

    @property
    def num_unverified(self) -> int:
        """Fresh rollouts that did not vote."""
        verdicts = [v for group in self.continuations for v in group.verdicts]
        return [verdict.reward for verdict in verdicts].count(None)


@dataclass(frozen=True)
class MonteCarlo:
    """Mean reward of `num_continuations` fresh rollouts from each chosen prefix.

        V(s) = (1 / |K|) sum_{k in K} R_k,    K = verified continuations of s

    Equal prefixes share their rollouts, within a call: a group's prompt is asked once.
    The rollout that a prefix comes from does not vote, or the value would know its
    future. Where no continuation could be verified nothing is known: the value of the
    last chosen prefix before it that has one stands in, else of the next, so that the
    chunk between them gets no credit.
    """

    num_continuations: int
    chunk_length: int
    """Sampled tokens from one chosen prefix to the next."""

    def __post_init__(self) -> None:
        if self.num_continuations < 1:
            raise ValueError(
                "num_continuations must be >= 1, or no value is known, got "
                f"{self.num_continuations}"
            )

    def estimate(
        self,
        batch: Batch,
        environment: Environment,
        sampling: Sampling,
        key: tuple[int | str, ...],
    ) -> Estimate:
        """Values of all prefixes of trainable rollouts, and what was rolled out.

        Args:
            batch: With its prompts.
            environment: Continues with the budget that a prefix has left.
            sampling: That of the rollouts, or it is another policy's value.
            key: Of the draws; it must differ from that of the rollouts and between
                calls.
        """
        steps = chunk_steps(batch.trainable, batch.token_mask, self.chunk_length)
        prefixes, places = chosen_prefixes(batch, steps)
        groups = (
            environment.continue_from(prefixes, self.num_continuations, sampling, key)
            if prefixes
            else []
        )
        means = [mean_reward(group) for group in groups]
        values = batch.rewards.new_zeros(
            len(batch.token_ids), len(batch.token_ids.T) + 1
        )
        for row, asked in enumerate(places):
            if asked:
                starts = steps.starts[row, : len(asked)].tolist()
                end, outcome = int(steps.lengths[row]), float(batch.rewards[row])
                known = carried([means[place] for place in asked], outcome)
                for first, last, value in zip(
                    starts, [*starts[1:], end], known, strict=True
                ):
                    values[row, first:last] = value
                values[row, end] = outcome
        return Estimate(values, tuple(groups))


def chosen_prefixes(batch: Batch, steps: Steps) -> tuple[list[Prefix], list[list[int]]]:
    """The distinct prefixes that steps start from, and which ones each row has."""
    numbers: dict[tuple[str, tuple[int, ...]], int] = {}
    prefixes: list[Prefix] = []
    places: list[list[int]] = []
    for row, starts in enumerate(steps.starts.tolist()):
        token_ids = batch.token_ids[row].tolist()
        num_steps = int(steps.step_mask[row].sum())
        places.append([])
        for start in starts[:num_steps]:
            prompt = batch.prompts[row]
            name = (prompt.problem.id, tuple(token_ids[:start]))
            if name not in numbers:
                numbers[name] = len(prefixes)
                written = tuple(token_ids[len(prompt.token_ids) : start])
                prefixes.append(Prefix(prompt, written))
            places[-1].append(numbers[name])
    return prefixes, places


def mean_reward(group: Group) -> float | None:
    """Of the verified rollouts; None where there is none."""
    rewards = [v.reward for v in group.verdicts if v.reward is not None]
    return math.fsum(rewards) / len(rewards) if rewards else None


def carried(known: list[float | None], outcome: float) -> list[float]:
    """Each value, and for an unknown one the last before it, else the next after it."""
    first = next((value for value in known if value is not None), outcome)
    filled: list[float] = []
    for value in known:
        last = filled[-1] if filled else first
        filled.append(last if value is None else value)
    return filled
