r"""Gold answers: read once where a column holds a whole solution, and tried beforehand.

A gold answer that its own verifier cannot read, or does not find equal to itself, pays
nobody. So golds are read by the definition of the answer that completions are read by,
and a sample of them is verified against itself, and against an answer that is wrong.
Knows no file and no model.
"""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from accredit.protocols import Verifier
from accredit.randomness import generator
from accredit.tasks.configs import VerifierConfig
from accredit.tasks.problems import shortened
from accredit.types import Problem, Prompt, Rollout, StopReason, Verdict
from accredit.verification.answered import AnswerReader
from accredit.verification.boxed import find_box_or_label
from accredit.verification.tokens import MAX_ANSWER_CHARACTERS

NUM_TRIED, SECONDS, SLICE = 256, 20.0, 8
"""Golds tried at most, for how long, and how many between two looks at the clock."""
NUM_SHOWN = 3
MOST_WORDS = 8
"""Plain words of a gold answer that is still no whole solution."""
_COMMAND = re.compile(r"\\[a-zA-Z]+")
_WORD = re.compile(r"[A-Za-z]{2,}")
WRONG = "-98765432.125"
"""What no gold answer is."""
_WRITTEN_OUT = re.compile(r"\n[ \t]*####[ \t]*\S[^\n]*\s*\Z")


def read_gold(gold: str, reader: AnswerReader, verifier: str) -> str:
    r"""The answer that a gold text gives; the text where it is the answer.

    Whole solutions end as GSM8K's do (`#### 42`), in a box, in the block that
    completions answer in, or for mathematics in a labelled line.
    """
    if verifier == "math" or _WRITTEN_OUT.search(gold):
        labelled = AnswerReader(find_box_or_label).answer(gold)
        if labelled:
            return labelled
    return reader.answer(gold) or gold


def golds_read(
    problems: Sequence[Problem], reader: AnswerReader, verifier: str
) -> tuple[Problem, ...]:
    """The problems with the answers that their gold texts give."""
    read = partial(read_gold, reader=reader, verifier=verifier)
    return tuple(
        problem
        if problem.answer is None or verifier == "function"
        else replace(problem, answer=read(problem.answer))
        for problem in problems
    )


@dataclass(frozen=True)
class BadGold:
    """A gold answer that pays nobody, and why."""

    problem: Problem
    reason: str

    def __str__(self) -> str:
        gold = "none" if self.problem.answer is None else shortened(self.problem.answer)
        return f"{self.problem.id!r}: {gold} ({self.reason})"


def require_golds(
    config: VerifierConfig,
    problems: Sequence[Problem],
    verifier: Verifier,
    seed: int,
    columns: Sequence[str] = (),
) -> list[str]:
    """What to say of the gold answers; nothing where all that are tried are sound.

    Raises:
        ValueError: there are none, or too many are not.
    """
    if all(problem.answer is None for problem in problems):
        found = getattr(config, "answer_column", None)
        raise ValueError(
            f"task.answer_column must name the column of the gold answers, which "
            f"task.verifier = {config.verifier!r} compares with, got "
            f"{'no column `answer`' if found is None else f'{found!r}, all empty'}; "
            f"the columns are: {', '.join(columns) or 'none'}"
        )
    tried, bad = bad_golds(config, problems, verifier, seed)
    if not bad:
        return []
    share = len(bad) / tried
    told = "; ".join(map(str, bad[:NUM_SHOWN]))
    line = (
        f"{len(bad)} of {tried} gold answers tried ({share:.1%}) do not verify against "
        f"themselves, such as {told}"
    )
    if share > config.max_bad_gold_share:
        raise ValueError(
            f"at most task.max_bad_gold_share = {config.max_bad_gold_share:g} of the "
            f"gold answers may be unreadable, got: {line}; mend the data, name another "
            "task.answer_column or task.verifier, or raise that share"
        )
    return [line]


def bad_golds(
    config: VerifierConfig,
    problems: Sequence[Problem],
    verifier: Verifier,
    seed: int,
    num_tried: int = NUM_TRIED,
    seconds: float = SECONDS,
) -> tuple[int, list[BadGold]]:
    """How many of a keyed sample were tried in that time, and the bad ones."""
    order = generator(seed, "golds").permutation(len(problems))[:num_tried]
    sample = [problems[place] for place in sorted(order.tolist())]
    bad: list[BadGold] = []
    tried = 0
    started = time.monotonic()
    while tried < len(sample) and time.monotonic() - started < seconds:
        part = sample[tried : tried + SLICE]
        bad += _bad_of(config, part, verifier)
        tried += len(part)
    return tried, bad


def _bad_of(
    config: VerifierConfig, problems: Sequence[Problem], verifier: Verifier
) -> list[BadGold]:
    own = [(p, as_answer(config, p.answer or ""), rollout_of(p)) for p in problems]
    others = [(p, as_answer(config, WRONG), rollout_of(p)) for p in problems]
    verdicts = verifier.verify([*own, *others])
    bad: list[BadGold] = []
    for problem, same, other in zip(
        problems, verdicts, verdicts[len(problems) :], strict=False
    ):
        fault = _fault(same, other)
        if not fault and config.verifier == "math":
            fault = prose_fault(problem.answer or "")
        if fault:
            bad.append(BadGold(problem, fault))
    return bad


def prose_fault(gold: str) -> str:
    """Why a gold answer is no answer to a mathematical question; nothing where it is.

    The verifier compares prose as text, which hardly any completion would equal.
    """
    words = len(_WORD.findall(_COMMAND.sub(" ", gold)))
    if words > MOST_WORDS:
        return f"it is a text of {words} words, which is compared word by word"
    if len(gold) > MAX_ANSWER_CHARACTERS:
        return f"it has {len(gold)} characters, and is compared letter by letter"
    return ""


def _fault(same: Verdict, other: Verdict) -> str:
    """What is wrong with a gold answer, by the verdicts on it and on another."""
    if same.reward is None or other.reward is None:
        return same.reason or other.reason
    if same.reward <= other.reward:
        return same.reason or "an answer of another value is paid as much"
    return ""


def as_answer(config: VerifierConfig, answer: str) -> str:
    """A completion that gives this answer as the recipe asks for it."""
    if config.answer_tag:
        return f"<{config.answer_tag}>{answer}</{config.answer_tag}>"
    reads_text = config.answer_in == "box_or_text" or (
        config.answer_in is None and config.verifier == "exact"
    )
    return answer if reads_text else f"\\boxed{{{answer}}}"


def rollout_of(problem: Problem) -> Rollout:
    """A finished rollout for verifiers that are shown a text which nobody sampled."""
    return Rollout(
        prompt=Prompt(problem, (0,)),
        token_ids=torch.tensor([0, 0]),
        sampled=torch.tensor([False, True]),
        sampling_logprobs=torch.zeros(2),
        stop_reason=StopReason.STOP,
    )
