"""Right is what is worth what the gold answer is worth, decided in killable workers."""

from collections.abc import Sequence

from accredit.text import without_lone_surrogates
from accredit.types import Problem, Rollout, Verdict
from accredit.verification.boxed import Extraction, last_box
from accredit.verification.comparing import FACTORY, GOLD_READ
from accredit.verification.pool import Failure, Outcome, Pool, Task, plain_environment
from accredit.verification.screening import unscorable, without_gold
from accredit.verification.tokens import MAX_ANSWER_CHARACTERS, spelling

_ENDINGS = (Failure.CRASH, Failure.ERROR)


class MathVerifier:
    """Reward 1 for an answer equal to the gold answer, 0 for every other or for none.

    An answer that cannot be read, or that makes the checker hang or die while the gold
    answer alone does not, is wrong; gold answers that are no mathematics are compared
    as text. None is for failures of the world: no gold answer, or one that is empty or
    cannot be evaluated in time, and workers that die or do not start. What counts as
    equal is in `equivalence`; answers spelled like the gold one need no worker.
    """

    def __init__(
        self,
        num_workers: int = 2,
        timeout_s: float = 4.0,
        extract: Extraction = last_box,
        memory_bytes: int = 2 << 30,
    ) -> None:
        """Starts nothing yet.

        Args:
            num_workers: Processes that compare, started when first needed.
            timeout_s: Seconds for one comparison.
            extract: Where a completion says its answer.
            memory_bytes: Address space of one worker.
        """
        if timeout_s <= 0:
            raise ValueError(f"timeout_s must be > 0, got {timeout_s}")
        self._timeout_s = timeout_s
        self._extract = extract
        task = Task(FACTORY, (), memory_bytes, environment=plain_environment())
        self._pool = Pool(task, num_workers)

    def verify(self, items: Sequence[tuple[Problem, str, Rollout]]) -> list[Verdict]:
        """One verdict an item, in order; equal questions are asked once."""
        verdicts: list[Verdict | None] = []
        questions: list[tuple[str, str]] = []
        for problem, completion, rollout in items:
            excluded = unscorable(problem, rollout) or without_gold(problem)
            gold = without_lone_surrogates(problem.answer or "")
            answer = self._extract(without_lone_surrogates(completion))
            verdicts.append(excluded or _obvious_verdict(gold, answer))
            questions.append((gold, answer or ""))
        open_questions = [
            question
            for question, verdict in zip(questions, verdicts, strict=True)
            if verdict is None
        ]
        answered = self._answered(list(dict.fromkeys(open_questions)))
        return [
            verdict or answered[question]
            for question, verdict in zip(questions, verdicts, strict=True)
        ]

    def _answered(
        self, questions: list[tuple[str, str]]
    ) -> dict[tuple[str, str], Verdict]:
        outcomes = self._outcomes(questions)
        verdicts = {
            question: self._verdict(outcome) for question, outcome in outcomes.items()
        }
        ended = [q for q, outcome in outcomes.items() if outcome.failure in _ENDINGS]
        return verdicts | self._asked_again(ended)

    def _outcomes(
        self, questions: list[tuple[str, str]]
    ) -> dict[tuple[str, str], Outcome]:
        outcomes = self._pool.run(questions, self._timeout_s)
        return dict(zip(questions, outcomes, strict=True))

    def _asked_again(
        self, questions: list[tuple[str, str]]
    ) -> dict[tuple[str, str], Verdict]:
        """Verdicts where a worker ended: by the gold answer, the answer or the world.

        An answer is blamed where the gold answer alone is checked at once and the two
        together end a second worker behind the gold answer.
        """
        golds = [(gold, gold) for gold, _ in dict.fromkeys(questions)]
        alone = self._outcomes(list(dict.fromkeys(golds)))
        checked = [q for q in questions if alone[q[0], q[0]].failure is None]
        again = self._outcomes(checked)
        verdicts = {
            question: self._verdict(alone[question[0], question[0]])
            for question in questions
            if question not in again
        }
        for question, outcome in again.items():
            blamed = outcome.failure in _ENDINGS and outcome.milestone == GOLD_READ
            story = f"the answer ended the checker twice ({outcome.detail})"
            verdicts[question] = (
                Verdict(0.0, without_lone_surrogates(story))
                if blamed
                else self._verdict(outcome)
            )
        return verdicts

    def _verdict(self, outcome: Outcome) -> Verdict:
        if outcome.failure is Failure.TIMEOUT and outcome.milestone == GOLD_READ:
            return Verdict(0.0, f"the answer took longer than {self._timeout_s:g} s")
        if outcome.failure is not None:
            reason = f"the comparison failed ({outcome.failure}: {outcome.detail})"
            return Verdict(None, without_lone_surrogates(reason))
        equal, reason = outcome.value["equal"], outcome.value["reason"]
        return Verdict(None if equal is None else float(equal), reason)

    def close(self) -> None:
        """Ends the workers."""
        self._pool.close()


def _obvious_verdict(gold: str, answer: str | None) -> Verdict | None:
    if answer is None:
        return Verdict(0.0, "no answer was given")
    if not answer.strip():
        return Verdict(0.0, "the answer is empty")
    same = gold.strip() == answer.strip()
    if len(gold) > MAX_ANSWER_CHARACTERS and same:
        return Verdict(1.0)
    if len(gold) > MAX_ANSWER_CHARACTERS:
        return Verdict(0.0, f"not the gold answer's text of {len(gold)} characters")
    if len(answer) > MAX_ANSWER_CHARACTERS:
        return Verdict(0.0, f"the answer has {len(answer)} characters")
    spelled = spelling(gold)
    same = same or spelled == spelling(answer)
    return Verdict(1.0) if spelled and same else None
