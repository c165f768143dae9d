"""`accredit show`: saved rollouts in the terminal, siblings together.

A step is read twice, one rollout at a time: once to order its groups, once for those
that are shown. What a policy wrote is made printable and never read as markup.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from accredit.recipe.config import RecipeError, nearest
from accredit.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from accredit.reports.quantities import Legend
    from accredit.reports.samples import Sample
    from accredit.storage.run_directory import RunDirectory

DONE = 0
Sort = Literal["order", "problem", "reward", "worst", "credit", "length"]
Row = Mapping[str, Any]
Siblings = list[tuple[int, Row]]
"""Rollouts of one group with their index in the step's file."""

NOTHING = "nothing"
MOST_PROMPT = 2000
"""Characters of a prompt that are shown."""
INDENT = 4
FAINTEST, STRONG = 0.06, 0.35
"""Strengths from which a token has coloured ink, and a coloured ground."""
OVER, UNDER = (66, 153, 210), (225, 120, 50)
"""Full colours above and below a quantity's blank level, for dark and light ground."""


@dataclass(frozen=True)
class Wanted:
    """Which rollouts of a run are shown, and how."""

    step: int | None = None
    problem: str | None = None
    sort: Sort = "order"
    num: int = 2
    search: str | None = None
    colour: str | None = None


def show(path: Path, wanted: Wanted, console: "Console | None" = None) -> int:
    """Prints some groups of one kept step.

    Raises:
        RecipeError: there is no such run, step, problem or colour.
    """
    from rich.console import Console

    from accredit.reports.quantities import QUANTITIES, Palette
    from accredit.reports.samples import sample
    from accredit.storage.run_directory import RunDirectory

    run = RunDirectory(path)
    if not run.exists:
        raise RecipeError(f"show needs the folder of a run, got {path}")
    if wanted.num < 1:
        raise RecipeError(f"--num must be at least 1, got {wanted.num}")
    colours = [*(quantity.key for quantity in QUANTITIES), NOTHING]
    if wanted.colour not in (None, *colours):
        raise RecipeError(
            f"--colour must be one of {', '.join(colours)}, got {wanted.colour!r}"
        )
    console = console or Console()
    step = chosen_step(run, wanted.step)
    order, num_groups = ordered_groups(run, step, wanted)
    shown = {place: rank for rank, place in enumerate(order[: wanted.num])}
    found = [
        (shown[place], siblings)
        for place, siblings in enumerate(groups_of(run, step))
        if place in shown
    ]
    groups = [siblings for _, siblings in sorted(found, key=lambda pair: pair[0])]
    samples = [[sample(*pair) for pair in siblings] for siblings in groups]
    palette = Palette()
    for one in (one for siblings in samples for one in siblings):
        palette.add(one.columns)
    key = wanted.colour or palette.preferred(run.recipe())[0]
    legends = {legend.quantity.key: legend for legend in palette.legends()}
    legend = legends.get(key) if console.is_terminal else None
    said = f"{run.path.name}, step {step} of {_listed(run.rollout_steps())}"
    write(console, f"{said}: {len(order)} of {num_groups} groups")
    if legend is not None:
        write(console, colour_words(legend))
    for siblings, shown_samples in zip(groups, samples, strict=True):
        write_group(console, siblings, shown_samples, legend, wanted)
    if len(order) > wanted.num:
        left = len(order) - wanted.num
        write(console, f"\n{left} more groups; --num {len(order)} shows all")
    return DONE


def chosen_step(run: "RunDirectory", step: int | None) -> int:
    """The step that is asked for, or the newest that was kept.

    Raises:
        RecipeError: none was kept, or not that one.
    """
    steps = run.rollout_steps()
    if not steps:
        raise RecipeError(
            f"show needs a run that kept rollouts, got none in {run.path}; set "
            "checkpoint.rollouts_every in its recipe"
        )
    if step is not None and step not in steps:
        raise RecipeError(f"--step must be one of {_listed(steps)}, got {step}")
    return steps[-1] if step is None else step


def ordered_groups(
    run: "RunDirectory", step: int, wanted: Wanted
) -> tuple[list[int], int]:
    """Places of the groups that are asked for, first to last, and how many there are.

    Raises:
        RecipeError: no group is of that problem.
    """
    keys: dict[int, Any] = {}
    problems: list[str] = []
    for place, siblings in enumerate(groups_of(run, step)):
        problem = str(siblings[0][1]["problem_id"])
        problems.append(problem)
        if wanted.problem not in (None, problem):
            continue
        if wanted.search is None or any(holds(row, wanted) for _, row in siblings):
            keys[place] = group_key(siblings, wanted.sort)
    if wanted.problem is not None and wanted.problem not in problems:
        raise RecipeError(
            f"--problem must be one of step {step}, got {wanted.problem!r}"
            + nearest(wanted.problem, sorted(set(problems)))
        )
    return sorted(keys, key=lambda place: (keys[place], place)), len(problems)


def groups_of(run: "RunDirectory", step: int) -> Iterator[Siblings]:
    """Groups of siblings, in the order of the batch."""
    from accredit.reports.rollouts import sound_rollouts

    rows = enumerate(sound_rollouts(run, step))
    for _, members in groupby(rows, key=lambda pair: pair[1].get("group")):
        yield list(members)


def group_key(siblings: Siblings, sort: Sort) -> tuple[Any, ...]:
    """What groups are ordered by, the smallest first."""
    from accredit.reports.quantities import mean_known

    if sort == "order":
        return ()
    if sort == "problem":
        return natural(str(siblings[0][1]["problem_id"]))
    mean = mean_known([rollout_key(row, sort) for _, row in siblings])
    return (mean is None, mean or 0.0)


def rollout_key(row: Row, sort: Sort) -> float | None:
    """What siblings are ordered by, the smallest first; None where it is unknown."""
    from accredit.reports.quantities import mean_paid

    if sort in ("reward", "worst"):
        reward = row["reward"]
        return reward if reward is None or sort == "worst" else -reward
    if sort == "credit":
        return -abs(mean_paid(row) or 0.0)
    return -float(sum(map(bool, row["sampled"]))) if sort == "length" else 0.0


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """A key under which walk-9 comes before walk-10."""
    import re

    return tuple(
        (0, int(part), "") if part.isdecimal() else (1, 0, part)
        for part in re.split(r"([0-9]+)", text)
        if part
    )


def holds(row: Row, wanted: Wanted) -> bool:
    """Whether the words that are searched stand in it."""
    words = (wanted.search or "").casefold()
    parts = ("completion", "prompt", "reason", "problem_id", "answer", "stop_reason")
    return any(words in str(row.get(part) or "").casefold() for part in parts)


def write_group(
    console: "Console",
    siblings: Siblings,
    samples: "list[Sample]",
    legend: "Legend | None",
    wanted: Wanted,
) -> None:
    """A problem, its prompt and its siblings."""
    from accredit.reports.quantities import mean_known
    from accredit.reports.summary import decimal

    first = siblings[0][1]
    mean = mean_known([row["reward"] for _, row in siblings])
    head = f"\n{printable(str(first['problem_id']))}"
    if first.get("answer"):
        head += f"  answer {printable(str(first['answer']))}"
    write(console, f"{head}  mean reward {decimal(mean)}", style="bold")
    prompt, hidden = samples[0].prompt, len(samples[0].prompt) - MOST_PROMPT
    write_indented(console, prompt[:MOST_PROMPT], style="dim")
    if hidden > 0:
        write_indented(console, f"... {hidden} more characters", style="dim")
    pairs = zip(siblings, samples, strict=True)
    matching = [
        (row, shown)
        for (_, row), shown in pairs
        if wanted.search is None or holds(row, wanted)
    ]
    unknown = float("inf")

    def rank(pair: "tuple[Row, Sample]") -> float:
        key = rollout_key(pair[0], wanted.sort)
        return unknown if key is None else key

    for row, shown in sorted(matching, key=rank):
        write_rollout(console, row, shown, legend)
    if len(matching) < len(siblings):
        left = len(siblings) - len(matching)
        write(console, f"  {left} of {len(siblings)} siblings do not hold it")


def write_rollout(
    console: "Console", row: Row, shown: "Sample", legend: "Legend | None"
) -> None:
    """One rollout: what is said of it, then its text."""
    facts = dict(shown.facts)
    paid = facts.get("mean advantage")
    parts = [
        facts["reward"],
        facts.get("verdict", ""),
        f"stopped by {facts['stopped by']}",
        f"{facts['tokens']} tokens",
        f"advantage {paid}" if paid else "",
    ]
    said = " · ".join(part for part in parts if part)
    write(console, f"  #{shown.index}  {said}")
    if console.is_terminal:
        write_indented(console, coloured(shown, legend))
    else:
        write_indented(console, shown.text)
    if shown.first or shown.num_hidden:
        hidden = shown.first + shown.num_hidden
        write_indented(console, f"... {hidden} more tokens in the rollout file")


def coloured(shown: "Sample", legend: "Legend | None") -> "Text":
    """The tokens with marks for what was not sampled, boundaries, and colours."""
    from rich.text import Text

    from accredit.reports.samples import GIVEN, REFUSED, REPLAYED

    marks = {REPLAYED: "dim underline", GIVEN: "dim italic", REFUSED: "strike"}
    column = None if legend is None else shown.columns.get(legend.quantity.key)
    values = iter(column or ())
    text = Text()
    for t, (piece, kind) in enumerate(zip(shown.pieces, shown.kinds, strict=True)):
        if t in shown.boundaries:
            text.append("│", style="cyan")
        style = marks.get(kind, "")
        if legend is not None and kind not in (REPLAYED, GIVEN):
            style = f"{style} {shade(legend.strength(next(values, None)))}".strip()
        text.append(piece, style=style)
    if len(shown.pieces) in shown.boundaries:
        text.append("│", style="cyan")
    return text


def shade(strength: float) -> str:
    """Coloured ink where faint, then black on a ground that is full at 1 and -1."""
    full = OVER if strength > 0.0 else UNDER
    if abs(strength) < STRONG:
        return _hexadecimal(full) if abs(strength) >= FAINTEST else ""
    mixed = tuple(round(255 + (part - 255) * abs(strength)) for part in full)
    return f"black on {_hexadecimal(mixed)}"


def _hexadecimal(colour: tuple[int, ...]) -> str:
    return "#" + "".join(f"{part:02x}" for part in colour)


def colour_words(legend: "Legend") -> str:
    """What the colours mean."""
    from accredit.reports.summary import decimal

    low, high = decimal(legend.low), decimal(legend.high)
    return f"colour: {legend.quantity.words}; {low} to {high}"


def write(console: "Console", text: str, style: str = "") -> None:
    """One line, as it is: text of others is no markup, and is not broken for a file."""
    console.print(
        text,
        style=style or None,
        markup=False,
        highlight=False,
        soft_wrap=not console.is_terminal,
    )


def write_indented(console: "Console", text: "str | Text", style: str = "") -> None:
    """A block of text, indented."""
    if isinstance(text, str) and not console.is_terminal:
        for line in text.split("\n"):
            write(console, " " * INDENT + line)
        return
    from rich.padding import Padding
    from rich.text import Text

    block = Text(text, style=style) if isinstance(text, str) else text
    console.print(Padding(block, (0, 0, 0, INDENT)))


def _listed(steps: list[int]) -> str:
    """Few steps by name, many by their ends."""
    if len(steps) <= 12:
        return ", ".join(map(str, steps))
    return f"{len(steps)} kept from {steps[0]} to {steps[-1]}"
