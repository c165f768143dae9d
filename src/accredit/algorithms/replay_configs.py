"""What can be set about algorithms that go on from stored rollouts. Loads no torch.

The defaults are the paper's settings of AC2, arXiv:2609.39247; algorithms/ac2.py says
where they differ. Those that make sense at one size of a step alone are in proportion
to `prompts_per_step`, and the paper's at its 192.
"""

import math
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from accredit.algorithms.base_configs import (
    OutcomeConfig,
    Positive,
    Share,
    UnitShare,
)
from accredit.base_config import BaseConfig, require_used
from accredit.critics.prefix_configs import (
    ExactConfig,
    HeadConfig,
    PrefixCriticConfig,
    PromptedConfig,
    prompted_unless_named,
)

CHUNKS_PER_BUDGET = 5
"""Where the recipe gives no chunk length."""


class ReplayConfig(OutcomeConfig):
    """What every algorithm has that goes on from the prefixes of stored rollouts."""

    prompts_per_step: Positive = 192
    """Prefixes, or slots, of a step."""
    group_size: Positive = 16
    """Continuations of a prefix."""
    num_refill: Positive | None = None
    """Fresh problems a step whose rollouts are stored for later ones; none is as many
    as prompts_per_step."""
    refill_every: Positive = 1
    """Steps between refills; each then draws as many as all those steps would."""
    replay_capacity: Positive | None = None
    """Rollouts in store; the oldest go first; none is 4/3 of prompts_per_step, and at
    least what a refill brings."""
    admission: Literal["all", "passed"] = "all"
    """Whose rollouts are stored: every judged one's, or only those that passed."""
    pass_mark: float = 6 / 7
    """Reward from which a rollout passes, to within a millionth."""
    chunk_length: Positive | None = None
    """Tokens after which a rollout may be stopped; none is a fifth of the budget."""
    cut_grid: Positive | None = None
    """Prefixes end at its multiples, in tokens; none is chunk_length."""
    largest_cut_share: Annotated[float, Field(gt=0, lt=1)] = 0.9
    """Of a stored rollout's tokens, the most that a prefix may hold."""
    baseline: Literal["group_mean", "leave_one_out", "value"] = "group_mean"
    """What a continuation is compared with: all siblings, the others, or the critic's
    value of the prefix."""
    unverified: Literal["masked", "zero"] = "masked"
    """A completion that could not be judged teaches nothing, or is worth 0."""
    num_minibatches: Positive = 2
    """Optimizer steps a pass over the batch, cut in its own order."""
    aggregation: Literal["token_mean", "sequence_mean_token_mean"] = "token_mean"
    """Every token of a minibatch counts alike, as in the paper, or every continuation.
    Where failures are longer than successes a mean over tokens pushes down what is
    sampled, and up what is not."""
    clip_low: UnitShare = 0.2
    """Ratios below 1 - clip_low earn nothing more for a bad token."""
    clip_high: Share = 0.28
    """Ratios above 1 + clip_high (and the entropy control's offset) earn nothing more
    for a good token."""
    dual_clip: Annotated[float, Field(gt=1)] | None = 3.0
    """Largest ratio that a bad token's loss counts; none bounds nothing."""
    entropy_control: bool = True
    """Moves clip_high by steps of .02, up while the entropy is below its target."""
    entropy_target: Share = 0.28
    """Mean entropy of a token that the control aims at, nats."""

    @model_validator(mode="after")
    def _siblings_for_a_group(self) -> "ReplayConfig":
        if self.group_size < 2 and self.baseline != "value":
            raise ValueError(
                f"algorithm.baseline = {self.baseline!r} compares siblings, got "
                f"group_size = {self.group_size}; take 2 or more"
            )
        require_used(
            self, ("entropy_target",), self.entropy_control, "entropy_control = true"
        )
        return self

    @property
    def fresh_per_step(self) -> int:
        """Problems of a step's refill: `num_refill`, or as derived."""
        return self.num_refill or self.prompts_per_step

    @property
    def store_size(self) -> int:
        """Rollouts in store: `replay_capacity`, or as derived; 256 in the paper."""
        derived = -(-4 * self.prompts_per_step // 3)
        at_once = self.fresh_per_step * self.refill_every
        return self.replay_capacity or max(derived, at_once)

    def chunk(self, max_new_tokens: int) -> int:
        """Tokens of a chunk under that budget."""
        return self.chunk_length or -(-max_new_tokens // CHUNKS_PER_BUDGET)

    def grid(self, max_new_tokens: int) -> int:
        """Tokens between possible cuts under that budget."""
        return self.cut_grid or self.chunk(max_new_tokens)

    def check_budget(self, max_new_tokens: int) -> None:
        """Chunks and cuts lie inside the budget."""
        for key, length in (
            ("chunk_length", self.chunk(max_new_tokens)),
            ("cut_grid", self.grid(max_new_tokens)),
        ):
            if length > max_new_tokens:
                raise ValueError(
                    f"algorithm.{key} must not exceed the budget of {max_new_tokens} "
                    f"tokens (sampling.max_new_tokens), got {length}"
                )


class PrefixGRPOConfig(ReplayConfig):
    """GRPO on continuations of replayed prefixes: AC2 without a critic."""

    name: Literal["prefix_grpo"] = "prefix_grpo"
    baseline: Literal["group_mean", "leave_one_out"] = "group_mean"
    """What a continuation is compared with: all siblings, or the others."""

    @model_validator(mode="after")
    def _keys_are_read(self) -> "PrefixGRPOConfig":
        passed_only = self.admission == "passed"
        require_used(self, ("pass_mark",), passed_only, "admission = 'passed'")
        return self


class GateConfig(BaseConfig):
    """When a critic is trusted with a problem."""

    rule: Literal["last_visit", "pooled"] = "last_visit"
    """The error of this visit alone, as in the paper, or all visits' with its standard
    error."""
    window: Positive = 5
    """Complete steps whose errors are averaged for the global test."""
    tau_global: Annotated[float, Field(gt=0)] = 0.20
    """The mean error over the window must lie below it, reward units."""
    tau_local: Annotated[float, Field(gt=0)] = 0.18
    """A problem's own error must lie below it, reward units; 2 switches the test
    off."""
    require_bank: bool = True
    """Only problems with a passing completion in the bank."""
    require_nonzero: bool = True
    """Only problems for which the critic has ever said something other than 0."""
    error_against: Literal["group_mean", "rewards"] = "group_mean"
    """Errors are taken against the mean of the endpoints, the critic's own words among
    them, or only where all of a group was judged."""
    standard_errors: Share = 1.0
    """Of `pooled`: how many of them the mean error must lie below tau_local."""
    min_errors: Annotated[int, Field(ge=2)] = 2
    """Of `pooled`: errors of a problem, one a prefix, before their mean is tested; the
    prior's count."""
    prior_errors: Annotated[int, Field(ge=0)] = 0
    """Of `pooled`: errors like the window's that are added to a problem's own, so that
    one visit is enough where the critic is right about all others."""
    revocable: bool = False
    """Whether an audited visit whose errors fail the local test takes trust back."""

    @model_validator(mode="after")
    def _keys_are_read(self) -> "GateConfig":
        require_used(
            self,
            ("standard_errors", "min_errors", "prior_errors"),
            self.rule == "pooled",
            "rule = 'pooled'",
        )
        return self


class AC2Config(ReplayConfig):
    """Actor-critic with action chunking."""

    name: Literal["ac2"] = "ac2"
    grouping: Literal["siblings", "prefixes"] = "siblings"
    """A ready slot holds siblings of one prefix, or as many prefixes of one rollout
    with a continuation each, compared with their own values and never audited."""
    audit_share: UnitShare = 0.25
    """Of the ready slots, those that run to their end all the same, rounded up."""
    ready_lambda: UnitShare = 0.0
    """Of a ready slot: 0 stops at the chunk and takes the critic's value; above 0 all
    run to their end and their reward gets this weight beside it."""
    chunk_weight: Share = 1.0
    """Weight of the tokens of rollouts that were stopped, beside those that ran to
    their end."""
    critic_targets: Literal["mixed", "monte_carlo", "bootstrap"] = "mixed"
    """What the critic is taught: what each group's endpoints say; only groups that were
    judged throughout; or values one chunk on, for all."""
    critic_capacity: Positive | None = None
    """Prefixes in the critic's buffer; the oldest go first; none is 10 times
    prompts_per_step."""
    records_per_step: Positive | None = None
    """Prefixes of the buffer that the critic is taught in a step; none is 4 times
    prompts_per_step."""
    critic_steps: Positive = 1
    """Optimizer steps of the critic's turn, which share the records among them."""
    min_valid: Positive | None = None
    """Valued siblings that a group's target needs; none is half of them."""
    grid_size: Annotated[int, Field(ge=2)] = 11
    """Values between 0 and 1 that the critic can say."""
    target_rounding: Literal["nearest", "none"] = "nearest"
    """Targets on the grid, ties down; or between two of its values, each taught by its
    share."""
    order: Literal["actor_critic_actor", "actor_critic", "critic_actor"] = (
        "actor_critic_actor"
    )
    """When the critic learns: after the first minibatch of the policy, after the last,
    or before the first."""
    joint_loss: bool = False
    """One step of the policy's optimizer takes the critic's loss along, in place of a
    step of the critic's own."""
    rate_floor: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Smallest learning rate of the critic, as a share of its first."""
    displacement_limit: Annotated[float, Field(gt=0)] | None = math.sqrt(2)
    """The critic's rate is halved after two steps in a row in which it moved the
    weights this many times as far as the policy's updates; none never halves it."""
    gate: GateConfig = GateConfig()
    """When the critic is trusted; a section of its own."""
    critic: PrefixCriticConfig = PromptedConfig()
    """Who values the prefixes; a section of its own."""

    @property
    def lessons_in_store(self) -> int:
        """Of the critic's buffer: `critic_capacity`, or as derived; 1,920 in the
        paper."""
        return self.critic_capacity or 10 * self.prompts_per_step

    @property
    def lessons_per_step(self) -> int:
        """Taught in a step: `records_per_step`, or as derived; 768 in the paper."""
        return self.records_per_step or 4 * self.prompts_per_step

    @model_validator(mode="before")
    @classmethod
    def _critic_is_prompted_unless_named(cls, content: Any) -> Any:
        return prompted_unless_named(content)

    @model_validator(mode="after")
    def _parts_fit(self) -> "AC2Config":
        critic = self.critic
        if self.joint_loss and not (
            isinstance(critic, PromptedConfig) and critic.weights == "tied"
        ):
            raise ValueError(
                "algorithm.joint_loss needs critic.kind = 'prompted' with "
                "critic.weights = 'tied', got "
                f"{critic.kind!r} and {getattr(critic, 'weights', 'none')!r}; set "
                "those, or leave joint_loss out"
            )
        if isinstance(critic, HeadConfig) and critic.template:
            raise ValueError(
                "algorithm.critic.template goes with critics of whole rollouts, got "
                "one for single prefixes; leave it out"
            )
        audits = self.grouping == "siblings" and self.ready_lambda == 0.0
        learns = not isinstance(critic, ExactConfig)
        for keys, used, by in (
            (("audit_share",), audits, "grouping = 'siblings' and ready_lambda = 0"),
            (("chunk_weight",), self.ready_lambda == 0.0, "ready_lambda = 0"),
            (
                ("critic_steps", "order", "rate_floor", "displacement_limit"),
                not self.joint_loss,
                "joint_loss = false",
            ),
            (
                (
                    "critic_steps",
                    "critic_capacity",
                    "records_per_step",
                    "rate_floor",
                    "displacement_limit",
                ),
                learns,
                "a critic that learns",
            ),
        ):
            require_used(self, keys, used, by)
        if self.gate.revocable and not (audits and self.audit_share > 0):
            raise ValueError(
                "algorithm.gate.revocable needs audits that can fail, got none "
                f"(audit_share = {self.audit_share}, grouping = {self.grouping!r}, "
                f"ready_lambda = {self.ready_lambda}); switch it off"
            )
        if self.min_valid is not None and self.min_valid > self.group_size:
            raise ValueError(
                "algorithm.min_valid must not exceed group_size, got "
                f"{self.min_valid} of {self.group_size}"
            )
        return self


class AC2PlusConfig(AC2Config):
    """AC2 with what the paper leaves open."""

    name: Literal["ac2_plus"] = "ac2_plus"
    target_rounding: Literal["nearest", "none"] = "none"
    """Targets on the grid, ties down; or between two of its values, each taught by its
    share."""
    gate: GateConfig = GateConfig(
        rule="pooled", revocable=True, error_against="rewards", prior_errors=2
    )
    """When the critic is trusted; a section of its own."""
    critic: PrefixCriticConfig = PromptedConfig(
        readout="expectation", weights="separate"
    )
    """Who values the prefixes; a section of its own."""
    border_credit: bool = True
    """An audited rollout is paid chunk by chunk, by what each changed in the critic's
    value, with its reward at the end."""
    border_lambda: UnitShare = 0.7
    """Share of the next chunk's pay that a chunk gets beside its own change; 1 pays
    all of them the reward, less V where they begin."""
    border_lessons: bool = True
    """A rollout that ran to its end teaches the critic at a chunk border of its own,
    beside what its group teaches."""
    correction: Literal["none", "doubly_robust"] = "none"
    """How the critic's targets follow the policy's first minibatch."""
    correction_cap: Annotated[float, Field(ge=1)] = 2.0
    """Largest ratio of a continuation that the correction counts."""
    recalibration_steps: Annotated[int, Field(ge=0)] = 4
    """Steps whose outcomes say by which factor the odds of all the critic's values are
    moved; 0 takes them as they were said."""
    audit_half_life: Annotated[float, Field(gt=0)] | None = 8.0
    """Audits of a problem after which its share of audits is halved; none keeps it."""
    smallest_audit_share: UnitShare = 0.1
    """That it does not fall below."""
    chunk_signal: Annotated[float, Field(gt=0)] | None = None
    """A problem's chunks grow until their credit is this many times the critic's error;
    none keeps the one length."""
    max_chunks: Positive = 3
    """Largest multiple of chunk_length."""

    @property
    def recalibrates(self) -> bool:
        """Whether values are moved; an exact critic is right already."""
        return self.recalibration_steps > 0 and not isinstance(self.critic, ExactConfig)

    @model_validator(mode="before")
    @classmethod
    def _sections_keep_their_defaults(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        content = prompted_unless_named(content)
        critic, gate = content.get("critic"), content.get("gate")
        if isinstance(critic, dict) and critic["kind"] == "prompted":
            plain = {"readout": "expectation", "weights": "separate"}
            content = {**content, "critic": {**plain, **critic}}
        if isinstance(gate, dict):
            plus = {"rule": "pooled", "revocable": True, "error_against": "rewards"}
            if gate.get("rule", "pooled") == "pooled":
                plus["prior_errors"] = 2
            content = {**content, "gate": {**plus, **gate}}
        return content

    @model_validator(mode="after")
    def _keys_of_the_plus_are_read(self) -> "AC2PlusConfig":
        for keys, used, by in (
            (("correction_cap",), self.correction != "none", "a correction"),
            (
                ("smallest_audit_share",),
                self.audit_half_life is not None,
                "audit_half_life",
            ),
            (("border_lambda",), self.border_credit, "border_credit = true"),
            (("max_chunks",), self.chunk_signal is not None, "chunk_signal"),
            (
                ("recalibration_steps",),
                not isinstance(self.critic, ExactConfig),
                "a critic that learns",
            ),
        ):
            require_used(self, keys, used, by)
        if self.border_credit and self.baseline != "group_mean":
            raise ValueError(
                "algorithm.border_credit compares first chunks with their mean, got "
                f"baseline = {self.baseline!r}; take 'group_mean', or switch it off"
            )
        moves_first = self.order != "critic_actor" and not self.joint_loss
        if self.correction != "none" and not (
            moves_first and self.critic_targets != "bootstrap"
        ):
            raise ValueError(
                "algorithm.correction follows what a minibatch moved of whole "
                f"continuations, got order = {self.order!r}, joint_loss = "
                f"{str(self.joint_loss).lower()}, critic_targets = "
                f"{self.critic_targets!r}; set algorithm.correction = 'none'"
            )
        return self
