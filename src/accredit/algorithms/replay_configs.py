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
from accredit.critics.prefix_configs import (
    ExactConfig,
    HeadConfig,
    PrefixCriticConfig,
    PromptedConfig,
    prompted_unless_named,
)
from accredit.recipe.base import BaseConfig, require_used

CHUNKS_PER_BUDGET = 5
"""Where the recipe gives no chunk length."""


class ReplayConfig(OutcomeConfig):
    """What every algorithm has that goes on from the prefixes of stored rollouts."""

    prompts_per_step: Positive = 192
    """Continues this many prefixes, one a slot, at each step."""
    group_size: Positive = 16
    """Samples this many continuations of each prefix."""
    num_refill: Positive | None = None
    """Rolls out this many fresh problems a step, whose rollouts are stored for later
    ones; none takes prompts_per_step."""
    refill_every: Positive = 1
    """Sets the steps between refills; each then draws as many as all those steps
    would."""
    replay_capacity: Positive | None = None
    """Limits the rollouts in store; the oldest are dropped first. None takes 4/3 of
    prompts_per_step, and at least what a refill brings."""
    admission: Literal["all", "passed"] = "all"
    """Stores the rollouts of every verified completion, or only those that passed."""
    pass_mark: float = 6 / 7
    """A rollout passes from this reward on, to within a millionth."""
    chunk_length: Positive | None = None
    """Stops rollouts after this many tokens; none takes a fifth of the budget."""
    cut_grid: Positive | None = None
    """Ends prefixes at multiples of this many tokens; none takes chunk_length."""
    largest_cut_share: Annotated[float, Field(gt=0, lt=1)] = 0.9
    """Limits a prefix to this share of the stored rollout's tokens."""
    baseline: Literal["group_mean", "leave_one_out", "value"] = "group_mean"
    """Compares a continuation with all siblings, the others, or the critic's value of
    the prefix."""
    unverified: Literal["masked", "zero"] = "masked"
    """Masks a completion that could not be verified, or takes its reward as 0."""
    num_minibatches: Positive = 2
    """Divides a pass over the batch, in its own order, into this many updates."""
    aggregation: Literal["token_mean", "sequence_mean_token_mean"] = "token_mean"
    """Averages the loss over the tokens of a minibatch, as in the paper, or over its
    continuations. Where failures are longer than successes, a mean over tokens lowers
    the probability of what is sampled."""
    clip_low: UnitShare = 0.2
    """Clips the ratio from below at 1 - clip_low, where the advantage is negative."""
    clip_high: Share = 0.28
    """Clips the ratio from above at 1 + clip_high (and the entropy control's offset),
    where the advantage is positive."""
    dual_clip: Annotated[float, Field(gt=1)] | None = 3.0
    """Bounds the ratio from above where the advantage is negative; none sets no
    bound."""
    entropy_control: bool = True
    """Moves clip_high by steps of .02, up while the entropy is below its target."""
    entropy_target: Share = 0.28
    """Sets the mean entropy of a token that the control aims at, in nats."""

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
    """Compares a continuation with all siblings, or with the others."""

    @model_validator(mode="after")
    def _keys_are_read(self) -> "PrefixGRPOConfig":
        passed_only = self.admission == "passed"
        require_used(self, ("pass_mark",), passed_only, "admission = 'passed'")
        return self


class GateConfig(BaseConfig):
    """When a critic is trusted with a problem."""

    rule: Literal["last_visit", "pooled"] = "last_visit"
    """Tests the error of this visit alone, as in the paper, or the mean over all visits
    with its standard error."""
    window: Positive = 5
    """Averages the errors of this many complete steps for the global test."""
    tau_global: Annotated[float, Field(gt=0)] = 0.20
    """The mean error over the window must lie below it, in reward units."""
    tau_local: Annotated[float, Field(gt=0)] = 0.18
    """A problem's own error must lie below it, in reward units; 2 switches the test
    off."""
    require_bank: bool = True
    """Trusts only problems with a passing completion in the bank."""
    require_nonzero: bool = True
    """Trusts only problems of which the critic has once predicted other than 0."""
    error_against: Literal["group_mean", "rewards"] = "group_mean"
    """Takes errors against the mean of the endpoints, the critic's own values among
    them, or only where all of a group was verified."""
    standard_errors: Share = 1.0
    """The mean error must lie this many standard errors below tau_local (`pooled`)."""
    min_errors: Annotated[int, Field(ge=2)] = 2
    """Tests a problem's mean from this many errors on, one a prefix; the prior's count
    (`pooled`)."""
    prior_errors: Annotated[int, Field(ge=0)] = 0
    """Adds this many errors like the window's to a problem's own, so that one visit is
    enough where the critic is right about all others (`pooled`)."""
    revocable: bool = False
    """Withdraws trust after an audited visit whose errors fail the local test."""

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
    """Fills a ready slot with siblings of one prefix, or with as many prefixes of one
    rollout that have a continuation each, are compared with their own values and are
    never audited."""
    audit_share: UnitShare = 0.25
    """Runs this share of the ready slots, rounded up, to their end all the same."""
    ready_lambda: UnitShare = 0.0
    """Weighs the reward in ready slots: 0 stops at the chunk and takes the critic's
    value; above 0 all run to their end and their reward gets this weight beside it."""
    chunk_weight: Share = 1.0
    """Weighs the tokens of rollouts that were stopped, beside 1 for those that ran to
    their end."""
    critic_targets: Literal["mixed", "monte_carlo", "bootstrap"] = "mixed"
    """Selects the critic's targets: the mean of each group's endpoints; only of groups
    that were verified throughout; or values one chunk on, for all."""
    critic_capacity: Positive | None = None
    """Limits the prefixes in the critic's buffer; the oldest are dropped first. None
    takes 10 times prompts_per_step."""
    records_per_step: Positive | None = None
    """Trains the critic on this many prefixes of the buffer in a step; none takes 4
    times prompts_per_step."""
    critic_steps: Positive = 1
    """Divides those prefixes among this many optimizer steps of the critic."""
    min_valid: Positive | None = None
    """A group's target needs this many valued siblings; none takes half of them."""
    grid_size: Annotated[int, Field(ge=2)] = 11
    """Sets how many values between 0 and 1 the critic can predict."""
    target_rounding: Literal["nearest", "none"] = "nearest"
    """Rounds targets to the grid, ties down, or divides each between its two neighbours
    on the grid, which are trained by their shares."""
    order: Literal["actor_critic_actor", "actor_critic", "critic_actor"] = (
        "actor_critic_actor"
    )
    """Trains the critic after the first minibatch of the policy, after the last, or
    before the first."""
    joint_loss: bool = False
    """Adds the critic's loss to one step of the policy's optimizer, in place of a step
    of the critic's own."""
    rate_floor: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Limits the critic's learning rate from below, as a share of its first."""
    displacement_limit: Annotated[float, Field(gt=0)] | None = math.sqrt(2)
    """Halves the critic's rate after two steps in a row in which it moved the weights
    this many times as far as the policy's updates; none never halves it."""
    gate: GateConfig = GateConfig()
    """Configures when the critic is trusted, in a section of its own."""
    critic: PrefixCriticConfig = PromptedConfig()
    """Configures the critic, in a section of its own."""

    @property
    def asks_prefixes(self) -> bool:
        """Always."""
        return True

    @property
    def examples_in_store(self) -> int:
        """Of the critic's buffer: `critic_capacity`, or as derived; 1,920 in the
        paper."""
        return self.critic_capacity or 10 * self.prompts_per_step

    @property
    def examples_per_step(self) -> int:
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
    """Rounds targets to the grid, ties down, or divides each between its two neighbours
    on the grid, which are trained by their shares."""
    gate: GateConfig = GateConfig(
        rule="pooled", revocable=True, error_against="rewards", prior_errors=2
    )
    """Configures when the critic is trusted, in a section of its own."""
    critic: PrefixCriticConfig = PromptedConfig(
        readout="expectation", weights="separate"
    )
    """Configures the critic, in a section of its own."""
    boundary_credit: bool = True
    """Credits an audited rollout chunk by chunk, by the change of the critic's value
    over each, with its reward at the end."""
    boundary_lambda: UnitShare = 0.7
    """Adds this share of the next chunk's credit to a chunk's own; 1 gives each the
    reward, less V where it begins."""
    boundary_examples: bool = True
    """Trains the critic at one chunk boundary of each rollout that ran to its end,
    beside its group's prefix."""
    correction: Literal["none", "doubly_robust"] = "none"
    """Selects how the critic's targets follow the policy's first minibatch."""
    correction_cap: Annotated[float, Field(ge=1)] = 2.0
    """Limits the ratio of a continuation in that correction."""
    recalibration_steps: Annotated[int, Field(ge=0)] = 4
    """Fits one factor on the odds of all the critic's values to the outcomes of this
    many steps; 0 takes values as they were predicted."""
    audit_half_life: Annotated[float, Field(gt=0)] | None = 8.0
    """Halves a problem's share of audits after this many of them; none keeps it."""
    smallest_audit_share: UnitShare = 0.1
    """Limits the share of audits from below."""
    chunk_signal: Annotated[float, Field(gt=0)] | None = None
    """Lengthens a problem's chunks until their credit is this many times the critic's
    error; none keeps one length."""
    max_chunks: Positive = 3
    """Limits chunks to this multiple of chunk_length."""

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
            (("boundary_lambda",), self.boundary_credit, "boundary_credit = true"),
            (("max_chunks",), self.chunk_signal is not None, "chunk_signal"),
            (
                ("recalibration_steps",),
                not isinstance(self.critic, ExactConfig),
                "a critic that learns",
            ),
        ):
            require_used(self, keys, used, by)
        if self.boundary_credit and self.baseline != "group_mean":
            raise ValueError(
                "algorithm.boundary_credit compares first chunks with their mean, got "
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
