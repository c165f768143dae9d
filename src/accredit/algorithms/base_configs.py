"""What the sections `[algorithm]` have in common. Loads no torch."""

from typing import Annotated, Literal

from pydantic import Field

from accredit.recipe.base import BaseConfig

Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0)]
UnitShare = Annotated[float, Field(ge=0, le=1)]
EngineCorrection = Literal[
    "none",
    "truncated_importance",
    "sequence_truncated_importance",
    "geometric_truncated_importance",
]


class UpdateConfig(BaseConfig):
    """What every algorithm has."""

    prompts_per_step: Positive = 16
    """Draws this many problems at each step."""
    group_size: Positive = 1
    """Samples this many rollouts of each problem."""
    num_minibatches: Positive = 1
    """Divides a pass over the batch into this many optimizer steps; it must not exceed
    the batch's rollouts."""
    num_epochs: Positive = 1
    """Goes over the batch this many times."""
    entropy_coefficient: float = 0.0
    """Weighs the entropy bonus, in reward units per nat."""

    def check_budget(self, max_new_tokens: int) -> None:
        """Nothing, where the algorithm can work with completions of that length.

        Raises:
            ValueError: one of its keys does not fit.
        """

    @property
    def needs_teacher(self) -> bool:
        """Whether it has a teacher: keys `teacher` and `template`."""
        return False

    @property
    def asks_prefixes(self) -> bool:
        """Whether its critic is asked about single prefixes."""
        return False

    @property
    def reads_engine(self) -> bool:
        """Whether ratios are taken to the engine's log-probs."""
        return False

    def check_support(self, top_p: float, top_k: int) -> None:
        """Nothing, where the algorithm can work with samples from that support.

        The engine's log-probs are of what is left by `top_p` and `top_k`, the learner's
        of the whole vocabulary: their ratio is off by the mass that was cut, at every
        token. Ratios of the learner to itself are not, so that others may cut.

        Raises:
            ValueError: the support is cut, and ratios to the engine are taken.
        """
        if self.reads_engine and (top_p < 1 or top_k > 0):
            raise ValueError(
                "sampling.top_p must be 1 and sampling.top_k 0 where ratios are taken "
                f"to the engine (sao, engine_correction), got {top_p} and {top_k}; "
                "leave them out, or set algorithm.engine_correction = 'none' where "
                "there is one"
            )


class OutcomeConfig(UpdateConfig):
    """What every algorithm has whose ratios are the trainer's own."""

    engine_correction: EngineCorrection = "none"
    """Weighs the gap between engine and trainer by truncated importance sampling: by
    token, by the whole sequence, or by its geometric mean. Use it where another engine
    samples."""
    engine_correction_cap: Annotated[float, Field(gt=0)] = 2.0
    """Limits the weight of that correction."""

    @property
    def reads_engine(self) -> bool:
        """Where the gap to the engine is corrected."""
        return self.engine_correction != "none"
