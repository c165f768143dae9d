"""What the sections `[algorithm]` have in common. Loads no torch."""

from typing import Annotated, Literal

from pydantic import Field

from accredit.base_config import BaseConfig

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
    """Problems drawn at each step."""
    num_minibatches: Positive = 1
    """Optimizer steps a pass over the batch; must not exceed its rollouts."""
    num_epochs: Positive = 1
    """Passes over the batch."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus, reward units per nat."""

    def check_budget(self, max_new_tokens: int) -> None:
        """Nothing, where the algorithm can work with completions of that length.

        Raises:
            ValueError: one of its keys does not fit.
        """

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
    """Weight for the gap between engine and trainer: tis, by token, by the whole
    sequence, or by its geometric mean. Wanted where another engine samples."""
    engine_correction_cap: Annotated[float, Field(gt=0)] = 2.0
    """Largest weight of that correction."""

    @property
    def reads_engine(self) -> bool:
        """Where the gap to the engine is corrected."""
        return self.engine_correction != "none"
