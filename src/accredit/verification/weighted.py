"""Several verifiers as one: the weighted sum of what each of them can tell."""

from collections.abc import Mapping, Sequence

from accredit.protocols import Verifier
from accredit.types import LARGEST_REWARD, Problem, Rollout, Verdict


class WeightedVerifier:
    """Reward sum_i w_i r_i over the parts that could tell; None where none could.

    A part that cannot tell adds nothing and costs nothing: weights are not rescaled.
    """

    def __init__(self, parts: Mapping[str, tuple[Verifier, float]]) -> None:
        """Owns the verifiers.

        Args:
            parts: A name for the report -> (verifier, weight).
        """
        if not parts:
            raise ValueError("a weighted verifier needs at least one part, got none")
        self._parts = dict(parts)

    def verify(self, items: Sequence[tuple[Problem, str, Rollout]]) -> list[Verdict]:
        """One verdict an item, in order, with each part's own reward in `parts`."""
        columns: dict[str, list[Verdict]] = {}
        for name, (verifier, _) in self._parts.items():
            columns[name] = verifier.verify(items)
            if len(columns[name]) != len(items):
                raise ValueError(
                    f"verifier {name!r} must return one verdict an item, got "
                    f"{len(columns[name])} verdicts for {len(items)} items"
                )
        return [
            self._total({name: column[row] for name, column in columns.items()})
            for row in range(len(items))
        ]

    def _total(self, verdicts: dict[str, Verdict]) -> Verdict:
        rewards = {
            name: verdict.reward
            for name, verdict in verdicts.items()
            if verdict.reward is not None
        }
        reason = "; ".join(
            f"{name}: {verdict.reason}"
            for name, verdict in verdicts.items()
            if verdict.reason
        )
        if not rewards:
            return Verdict(None, reason)
        total = sum(self._parts[name][1] * reward for name, reward in rewards.items())
        if abs(total) > LARGEST_REWARD:
            return Verdict(None, f"the weighted sum {total:g} is beyond any reward")
        return Verdict(total, reason, rewards)

    def close(self) -> None:
        """Closes every part."""
        for verifier, _ in self._parts.values():
            verifier.close()
