"""Right is what is spelled like the gold answer, character by character."""

from collections.abc import Sequence

from accredit.text import without_lone_surrogates
from accredit.types import Problem, Rollout, Verdict
from accredit.verification.boxed import Extraction, box_or_text
from accredit.verification.screening import unscorable, without_gold


class ExactVerifier:
    """Reward 1 where the extracted answer is the gold answer, both stripped, else 0."""

    def __init__(self, extract: Extraction = box_or_text) -> None:
        self._extract = extract

    def verify(self, items: Sequence[tuple[Problem, str, Rollout]]) -> list[Verdict]:
        """One verdict an item, in order."""
        return [self._verdict(*item) for item in items]

    def _verdict(self, problem: Problem, completion: str, rollout: Rollout) -> Verdict:
        excluded = unscorable(problem, rollout) or without_gold(problem)
        if excluded:
            return excluded
        answer = self._extract(without_lone_surrogates(completion))
        if answer is None:
            return Verdict(0.0, "no answer was given")
        gold = without_lone_surrogates(problem.answer or "")
        if answer.strip() == gold.strip():
            return Verdict(1.0)
        return Verdict(0.0, "not the gold answer")

    def close(self) -> None:
        """Nothing to release."""
