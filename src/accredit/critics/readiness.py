"""When a critic is trusted with a problem: the gate of AC2, and its memory.

A problem becomes ready when all of these hold:

    1. mean error over the last complete steps, this one not among them   < tau_global
    2. error of the problem itself                                        < tau_local
    3. the bank held a passing completion of it before this step
    4. a nonzero prediction for it was seen, in this step or earlier

Wen et al. 2026, arXiv:2609.39247. 3 and 4 keep out what is predicted well because it
always fails. Beside the paper's rule for 2, the error of one visit, there is the error
of all visits with its standard error, which errors of other problems may stand in for;
and trust that audits can take back: that of one visit, or, with the errors of all
visits, the audited ones since the problem is ready.

Knows neither rollouts nor critics: errors come in, who is trusted goes out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""What a saved memory may hold at such a place."""
NOISE = 1e-9
"""What lies as near to a threshold is not below it: |.3 - .1| is .2, not less."""


@dataclass(frozen=True)
class ProblemErrors:
    """What one step learned of one problem."""

    problem_id: str
    errors: tuple[float, ...]
    """Of its prefixes, those that the gate counts; an unparsable prediction is an error
    of 1. Without any the problem cannot become ready at this visit."""
    nonzero: bool
    """Whether the critic predicted something other than 0 for it."""
    banked: bool
    """Whether the bank held a passing completion of it before this step."""
    audited_errors: tuple[float, ...] = ()
    """Of its audited prefixes, against rewards only."""

    def __post_init__(self) -> None:
        for error in (*self.errors, *self.audited_errors):
            if not (error >= 0 and math.isfinite(error)):
                raise ValueError(
                    f"errors must be finite and >= 0, got {error} for "
                    f"{self.problem_id!r}; an unparsable prediction is an error of 1"
                )


class Errors(NamedTuple):
    """Several errors, by what their mean and its standard error need."""

    num: int
    total: float
    squares: float
    """Sum of their squares."""

    def __add__(self, other: object) -> "Errors":
        """Both together."""
        if not isinstance(other, Errors):
            return NotImplemented
        return Errors(
            self.num + other.num, self.total + other.total, self.squares + other.squares
        )

    def scaled_to(self, num: int) -> "Errors":
        """So many with the same mean and mean square; none where there are none."""
        if not self.num:
            return self
        share = num / self.num
        return Errors(num, share * self.total, share * self.squares)

    def bound(self, standard_errors: float) -> float:
        """Mean error and so many standard errors of it, of two errors or more.

        mean + c sqrt(sum_i (e_i - mean)^2 / (n - 1) / n)
        """
        mean = self.total / self.num
        variance = max(0.0, self.squares - self.total * mean) / (self.num - 1)
        return mean + standard_errors * math.sqrt(variance / self.num)


@dataclass(frozen=True)
class Track:
    """What is remembered of one problem."""

    last_error: Amount | None = None
    """Mean of the last visit that had errors."""
    nonzero_seen: bool = False
    ready: bool = False
    num_errors: Count = 0
    """Since the beginning, or since trust was last taken back."""
    total: Amount = 0.0
    """Sum of those errors."""
    total_squares: Amount = 0.0
    num_audits: Count = 0
    """Audited visits since the beginning."""
    num_audited: Count = 0
    """Audited errors since the problem became ready."""
    audited_total: Amount = 0.0
    """Sum of those errors."""
    audited_squares: Amount = 0.0

    def after(self, visit: ProblemErrors) -> "Track":
        """With what a visit adds; who is ready stays."""
        errors, audited = visit.errors, visit.audited_errors if self.ready else ()
        return Track(
            last_error=_mean(errors) if errors else self.last_error,
            nonzero_seen=self.nonzero_seen or visit.nonzero,
            ready=self.ready,
            num_errors=self.num_errors + len(errors),
            total=self.total + math.fsum(errors),
            total_squares=self.total_squares + math.fsum(e * e for e in errors),
            num_audits=self.num_audits + bool(visit.audited_errors),
            num_audited=self.num_audited + len(audited),
            audited_total=self.audited_total + math.fsum(audited),
            audited_squares=self.audited_squares + math.fsum(e * e for e in audited),
        )

    @property
    def errors(self) -> Errors:
        """All of them."""
        return Errors(self.num_errors, self.total, self.total_squares)

    @property
    def audited(self) -> Errors:
        """The audited ones since the problem became ready."""
        return Errors(self.num_audited, self.audited_total, self.audited_squares)


@dataclass(frozen=True)
class GateState:
    """Memory of the gate between steps."""

    tracks: Mapping[str, Track] = field(default_factory=dict)
    """Of every problem that was visited."""
    window: tuple[tuple[Amount, ...], ...] = ()
    """Errors of the last complete steps, oldest step first."""

    def ready(self, problem_id: str) -> bool:
        """Whether the critic is trusted with the problem."""
        track = self.tracks.get(problem_id)
        return track is not None and track.ready

    @property
    def num_ready(self) -> int:
        """Problems that the critic is trusted with."""
        return sum(track.ready for track in self.tracks.values())


@dataclass(frozen=True)
class Gate:
    """The rule by which a problem becomes ready; see the head of this file."""

    rule: Literal["last_visit", "pooled"] = "last_visit"
    """2 tests the mean error of this visit, or the mean of all visits' errors plus
    `standard_errors` standard errors."""
    window: int = 5
    """Complete steps that 1 averages over, every error alike."""
    tau_global: float = 0.20
    tau_local: float = 0.18
    require_bank: bool = True
    require_nonzero: bool = True
    standard_errors: float = 1.0
    min_errors: int = 2
    """That `pooled` needs of a problem, this visit's among them, to give trust; and of
    audited ones to take it back."""
    prior_errors: int = 0
    """Errors that `pooled` adds to a problem's own and counts among them: as many with
    mean and mean square of the window's, so that one visit is enough where the critic
    is right about all others."""
    revocable: bool = False
    """Whether audits that fail 2 take trust back: the mean of the visit's is not below
    tau_local, or of all since trust was given lies above it by `standard_errors`."""

    def __post_init__(self) -> None:
        if self.window < 1 or self.min_errors < 2:
            raise ValueError(
                "a gate needs a window of 1 or more and min_errors of 2 or more, got "
                f"{self.window} and {self.min_errors}; a standard error needs two"
            )
        if self.prior_errors < 0:
            raise ValueError(f"prior_errors must be >= 0, got {self.prior_errors}")

    def after(
        self, state: GateState, visits: Sequence[ProblemErrors]
    ) -> tuple[GateState, tuple[str, ...], tuple[str, ...]]:
        """Memory after a step, who became ready in it, and who lost trust.

        All of it holds for later steps: this one was routed by the memory before it.
        The window is tested as it was before the step and takes the step's errors in
        after that: our reading of the paper's "last 5 complete steps", because 5 steps
        are carried from step to step. A step without errors is a complete one too; a
        window that is not full, or holds no error at all, makes nobody ready.

        Ready problems stay so, unless the gate is revocable and an audit fails: then
        its statistics begin anew, and it is tested again from its next visit, without
        the prior.

        Args:
            state: Memory before the step.
            visits: One a problem.

        Raises:
            ValueError: A problem comes twice.
        """
        names = [visit.problem_id for visit in visits]
        if len(set(names)) != len(names):
            raise ValueError(
                f"a step needs one visit a problem, got {sorted(names)!r:.80}; "
                "put the errors of all its prefixes into one"
            )
        prior = _pooled(state.window[-self.window :]).scaled_to(self.prior_errors)
        is_open = self._is_open(state.window)
        tracks = dict(state.tracks)
        flipped: list[str] = []
        revoked: list[str] = []
        for visit in visits:
            track = tracks.get(visit.problem_id, Track()).after(visit)
            if track.ready and self._takes_back(track, visit):
                revoked.append(visit.problem_id)
                track = Track(
                    last_error=track.last_error,
                    nonzero_seen=track.nonzero_seen,
                    num_audits=track.num_audits,
                )
            elif not track.ready and is_open and self._admits(track, visit, prior):
                flipped.append(visit.problem_id)
                track = replace(track, ready=True)
            tracks[visit.problem_id] = track
        errors = tuple(error for visit in visits for error in visit.errors)
        window = (*state.window, errors)[-self.window :]
        return GateState(tracks, window), tuple(flipped), tuple(revoked)

    def _is_open(self, window: tuple[tuple[float, ...], ...]) -> bool:
        """Condition 1."""
        last = window[-self.window :]
        errors = [error for step in last for error in step]
        if len(last) < self.window or not errors:
            return False
        return _below(_mean(errors), self.tau_global)

    def _admits(self, track: Track, visit: ProblemErrors, prior: Errors) -> bool:
        """Conditions 2 to 4, of a track that has taken the visit in."""
        return (
            bool(visit.errors)
            and self._is_accurate(track, visit.errors, prior)
            and (visit.banked or not self.require_bank)
            and (track.nonzero_seen or not self.require_nonzero)
        )

    def _takes_back(self, track: Track, visit: ProblemErrors) -> bool:
        """Whether audits fail condition 2, of a track that has taken the visit in."""
        if not (self.revocable and visit.audited_errors):
            return False
        if self.rule == "last_visit":
            return not _below(_mean(visit.audited_errors), self.tau_local)
        if track.num_audited < self.min_errors:
            return False
        # Trust is given where the error is clearly small, and taken where it is
        # clearly not: what lies between changes nothing.
        return not _below(track.audited.bound(-self.standard_errors), self.tau_local)

    def _is_accurate(
        self, track: Track, errors: Sequence[float], prior: Errors
    ) -> bool:
        """Condition 2, by these errors or by all that the track holds."""
        if self.rule == "last_visit":
            return _below(_mean(errors), self.tau_local)
        # Only who was ready was ever audited: nobody vouches for it a second time.
        was_ready = track.num_audits > 0
        known = track.errors if was_ready else track.errors + prior
        if known.num < self.min_errors:
            return False
        return _below(known.bound(self.standard_errors), self.tau_local)


def _pooled(window: Sequence[Sequence[float]]) -> Errors:
    """All errors of a window."""
    errors = [error for step in window for error in step]
    return Errors(len(errors), math.fsum(errors), math.fsum(e * e for e in errors))


def _below(error: float, threshold: float) -> bool:
    return error < threshold - NOISE


def _mean(errors: Sequence[float]) -> float:
    return math.fsum(errors) / len(errors)
