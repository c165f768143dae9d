"""The nouns of a step: what is made of a batch, what it cost, what is remembered.

    Batch --critic--> values --credit rule--> Credit --learner--> PolicyUpdate
    Batch, PolicyChange --value targets--> ValueTargets --critic--> CriticUpdate

Alignment is that of `types`: index t of a per-token tensor speaks about `token_ids[t]`,
`values` has one more column. The value that credits token t, its target and its weight
share the index t: V of `token_ids[:t]`, read where the logits that predict t are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

from jaxtyping import Bool, Float
from torch import Tensor

from accredit.functional.flops import ModelShape
from accredit.types import EMPTY, Batch, Group


@dataclass(frozen=True, eq=False)
class Credit:
    """What each sampled token is worth, and what a critic should have said."""

    advantages: Float[Tensor, "rollout token"]
    """Exactly 0 where not trainable."""
    value_targets: Float[Tensor, "rollout prefix"] | None = None
    """None where the critic has no parameters."""
    unit: str = "reward"
    """Of the advantages: reward, which a rule may have normalised, or nats."""


@dataclass(frozen=True, eq=False)
class PolicyUpdate:
    """What the learner did with one batch; all per-token tensors align with it."""

    old_logprobs: Float[Tensor, "rollout token"]
    logprobs: Float[Tensor, "rollout token"]
    """As seen by the optimizer step that used the row, before that step."""
    entropies: Float[Tensor, "rollout token"]
    """Nats, at the sampling temperature, where sampled."""
    reference_logprobs: Float[Tensor, "rollout token"] | None
    losses: tuple[float, ...]
    """The optimised scalar of each optimizer step; NaN where it had no token."""
    gradient_norms: tuple[float, ...]
    """L2, before clipping; NaN where the step was skipped."""
    learning_rate: float
    num_skipped: int
    """Optimizer steps left out because loss or gradient was not finite, or empty."""
    num_forward_tokens: int
    num_backward_tokens: int
    displacements: tuple[float, ...] = ()
    """L2 distance that each optimizer step moved the weights; empty where nobody
    measured it."""
    notes: tuple[str, ...] = ()
    """What the learner found out about its model in this update, one line each."""


@dataclass(frozen=True, eq=False)
class PolicyChange:
    """How an update moved the policy on the very tokens it was made from."""

    old_logprobs: Float[Tensor, "rollout token"]
    """The trainer's, before the update."""
    new_logprobs: Float[Tensor, "rollout token"]
    """The trainer's, after it."""
    accepted: Bool[Tensor, "rollout token"]
    """True where the ratio lies in the range that a critic is corrected for."""

    @property
    def ratios(self) -> Float[Tensor, "rollout token"]:
        """new / old of each token, as probabilities."""
        return (self.new_logprobs - self.old_logprobs).exp()


@dataclass(frozen=True, eq=False)
class ValueTargets:
    """What a critic should have said of the prefix before each of some tokens."""

    targets: Float[Tensor, "rollout token"]
    """Reward units; a corrected target may lie outside the range of the rewards."""
    weights: Float[Tensor, "rollout token"]
    """Of each prefix's loss, >= 0; 1 is plain."""
    where: Bool[Tensor, "rollout token"]
    """True at what is trained on; the summed loss is divided by how many there are."""

    def __post_init__(self) -> None:
        shapes = {self.targets.shape, self.weights.shape, self.where.shape}
        if len(shapes) != 1:
            raise ValueError(
                "targets, weights and where must have one shape, got "
                f"{[tuple(shape) for shape in shapes]}"
            )
        if bool((self.weights[self.where] < 0).any()):
            raise ValueError("weights of a value loss must be >= 0")

    def rows(self, index: Tensor) -> "ValueTargets":
        """The named rows."""
        return ValueTargets(self.targets[index], self.weights[index], self.where[index])


@dataclass(frozen=True)
class CriticUpdate:
    """What a critic with parameters did with one batch."""

    losses: tuple[float, ...]
    """Of each optimizer step; NaN where it had no prefix."""
    gradient_norms: tuple[float, ...]
    """L2, before clipping; NaN where the step was skipped."""
    learning_rate: float
    num_skipped: int
    """Steps left out because loss or gradient was not finite, or nothing was asked."""
    train_flops: float
    displacement: float | None = None
    """L2 distance that its steps moved the weights; None where nobody measured it."""
    num_left_out: int = 0
    """Attempts that did not fit the critic's context."""
    num_nonfinite: int = 0
    """Of the skipped steps, those whose loss or gradient was not finite."""
    num_policy_steps: int = 0
    """Of the steps taken, those that moved weights which the policy shares."""


def nothing_fitted(num_left_out: int, learning_rate: float) -> CriticUpdate:
    """An update whose every attempt was too long: no step, but counted."""
    return CriticUpdate((), (), learning_rate, 1, 0.0, num_left_out=num_left_out)


@dataclass(frozen=True)
class Valuation:
    """What a critic said of some attempts, and what asking cost."""

    values: tuple[float | None, ...]
    """Reward units; None where it gave no valid answer, which is not 0."""
    flops: float = 0.0
    """Of reading the attempts and of what it wrote."""
    left_out: tuple[bool, ...] = ()
    """True where an attempt had no room for the question, so that its missing value is
    no error of the critic; empty where all had."""


@dataclass(frozen=True)
class Cost:
    """What a step spent; sums up over a run. FLOPs are counts, not rates."""

    decode_flops: float = 0.0
    prefill_flops: float = 0.0
    train_flops: float = 0.0
    evaluation_flops: float = 0.0
    critic_flops: float = 0.0
    """Of a critic's answers about attempts: reading, and writing."""
    tokens_generated: int = 0
    num_verifications: int = 0
    num_questions: int = 0
    """Attempts that a critic was asked about."""

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.decode_flops + other.decode_flops,
            self.prefill_flops + other.prefill_flops,
            self.train_flops + other.train_flops,
            self.evaluation_flops + other.evaluation_flops,
            self.critic_flops + other.critic_flops,
            self.tokens_generated + other.tokens_generated,
            self.num_verifications + other.num_verifications,
            self.num_questions + other.num_questions,
        )

    @property
    def total_flops(self) -> float:
        """The full ledger."""
        return (
            self.decode_flops
            + self.prefill_flops
            + self.train_flops
            + self.evaluation_flops
            + self.critic_flops
        )


@dataclass(frozen=True)
class Drawn:
    """What an algorithm's `draw` rolled out, for its `learn` to learn from.

    An algorithm that needs to know more about it later has a subclass of its own.
    """

    groups: tuple[Group, ...]
    """To be trained on."""
    rejected: tuple[Group, ...] = ()
    """Rolled out, paid for, and left out."""
    num_drawn: int = 0
    """Problems taken from the source."""
    version: int = 0
    """Of the policy that sampled it."""


@dataclass(frozen=True)
class State:
    """All that an algorithm carries between steps; a checkpoint saves it whole."""

    step: int = 0
    num_draws: int = 0
    """Draws so far; keys the sampling of the next one."""
    num_drawn: int = 0
    """Problems drawn so far; with the seed it fixes which come next."""
    cost: Cost = Cost()
    counters: Mapping[str, int] = field(default_factory=lambda: EMPTY)
    """Running counts (skipped steps, dropped groups, ...), by metric name."""
    memory: Any = None
    """An algorithm's own buffers and gates: a frozen object of the type of its
    `initial_memory`, or None."""

    def advance(self, cost: Cost, **changes: Any) -> "State":
        """The state after one more step that spent `cost`."""
        return replace(self, step=self.step + 1, cost=self.cost + cost, **changes)


@runtime_checkable
class Section(Protocol):
    """What a family of algorithms has to tell of a step besides."""

    @property
    def further_groups(self) -> tuple[Group, ...]:
        """Rolled out in the step for later ones, which it does not learn from."""
        ...

    def metrics(
        self, record: "Record", state: State, shape: ModelShape | None
    ) -> Mapping[str, float | int | None]:
        """Its part of the row of metrics; `shape` is the policy's."""
        ...

    def columns(self, group: int, row: int) -> Mapping[str, Any]:
        """Its part of a row of `rollouts/`, of one group and rollout of the batch."""
        ...


SectionType = TypeVar("SectionType")


@dataclass(frozen=True, eq=False)
class Record:
    """Everything one step saw and did: what metrics and `inspect` are made from."""

    groups: tuple[Group, ...]
    batch: Batch
    shaped_rewards: Float[Tensor, " rollout"]
    values: Float[Tensor, "rollout prefix"]
    credit: Credit
    policy: PolicyUpdate | None
    """None when nothing could be trained on and the update was skipped."""
    cost: Cost = Cost()
    times_s: Mapping[str, float] = field(default_factory=lambda: EMPTY)
    counts: Mapping[str, int] = field(default_factory=lambda: EMPTY)
    """What happened this step that must not stay silent, by metric name."""
    critic: CriticUpdate | None = None
    """None where the critic has no parameters."""
    change: PolicyChange | None = None
    """None where no forward pass was spent on it."""
    valued_by_critic: bool = False
    """True where `values` are a critic's, not a baseline of the group's own rewards."""
    reference_shown: bool = False
    """True where that critic was shown a reference."""
    outcome_known: Bool[Tensor, " rollout"] | None = None
    """False where `shaped_rewards` holds a critic's word in place of an outcome; None
    where every verified rollout has its own."""
    clip_bounds: tuple[float, float] | None = None
    """(clip_low, clip_high) of this step's update; None where they never move."""
    sections: tuple[Section, ...] = ()
    """What the algorithm has to tell besides."""

    def section(self, kind: type[SectionType]) -> SectionType | None:
        """The section of that kind; None where the step has none."""
        found = [one for one in self.sections if isinstance(one, kind)]
        return found[0] if found else None


@dataclass(frozen=True)
class Alarm:
    """A condition on one row of metrics and what it means when it lasts."""

    keys: tuple[str, ...]
    """What it reads; steps that lack one of them neither feed nor end a streak."""
    holds: Callable[..., bool]
    """Called with the values of `keys`."""
    meaning: str
    """What is wrong."""
    turn: str
    """What to do about it, with the keys of the recipe by their full names."""
    at_once: bool = False
    """True for what no run should wait for: told at its first step."""
    is_loud: bool = False
    """True for what makes a run worthless: told again when it ends."""
    present: tuple[str, ...] = ()
    """Keys without which a step is passed over, as one that lacks what is read."""
    absent: tuple[str, ...] = ()
    """Keys with which it is."""
