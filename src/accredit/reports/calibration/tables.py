"""A calibration for the terminal: a sentence, then figures with their intervals."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from accredit.reports.calibration.measures import (
    FEWEST_GROUPS,
    Interval,
    Row,
    group_rows,
    prefix_rows,
    valued_row,
)
from accredit.reports.calibration.sources import Calibration
from accredit.reports.summary import decimal, signed
from accredit.text import printable

if TYPE_CHECKING:
    from rich.console import Group

SECTIONS = {
    "all": "all",
    "f=0": "f = 0",
    "0<f<1": "0 < f < 1",
    "f=1": "f = 1",
    "with_reference": "reference",
    "without_reference": "no reference",
}
NOTE = (
    "Below each figure its 95% interval, from a bootstrap over groups. f: share of a "
    "group that a critic valued; where f = 0, rewards or a baseline stand in for one. "
    "Constant: the error of saying the mean reward of everything. –: fewer than "
    f"{FEWEST_GROUPS} groups, too few for an interval."
)
LEFT_OUT = (
    "truncated rollouts are left out, whose outcome is the critic's own word: this "
    "speaks about those that ended, and not about the policy as a whole."
)
NO_CRITIC = (
    "No critic valued these groups: rewards or a baseline stand in for one, and the "
    "figures tell nothing about how far a critic can be trusted."
)
WITHOUT_CRITIC = (
    "This run has no critic: nothing valued its rollouts, and its baseline is 0."
)
SINGLE = (
    "Each group is one rollout, and its reward a draw of luck: its MAE can be lower "
    "for saying 0 of everything than for an exact critic, so do not judge by it."
)


def calibration_tables(calibration: Calibration, seed: int) -> "Group":
    """Everything about one calibration, for `console.print`."""
    from rich.console import Group, RenderableType
    from rich.text import Text

    said = verdict(calibration, seed)
    if calibration.num_open:
        said += f" {calibration.num_open} {LEFT_OUT}"
    if calibration.mean_over_all is not None:
        said += (
            f" {calibration.num_missing} rollouts without a reward are left out: the "
            f"mean outcome is {decimal(calibration.mean_outcome)} of the others, and "
            f"{decimal(calibration.mean_over_all)} of all, a missing one taken for 0."
        )
    parts: list[RenderableType] = [
        Text(said),
        Text(printable(f"Read: {calibration.told}")),
    ]
    if calibration.without_critic:
        return Group(*parts)
    at = "mean reward of a group and its value"
    throughout = calibration.groups_throughout
    rows = group_rows(calibration.groups, seed)
    tables = [group_table(rows, at + (" at the prompt" if throughout else ""))]
    if throughout is not None:
        tables.append(group_table(group_rows(throughout, seed), at + " throughout"))
    if calibration.prefixes is not None:
        tables.append(prefix_table(prefix_rows(calibration.prefixes, seed)))
    for table in tables:
        parts += [Text(""), table]
    return Group(*parts, Text(""), Text(NOTE, style="dim"))


def verdict(calibration: Calibration, seed: int) -> str:
    """What the figures of the groups that a critic valued say, in a sentence or two."""
    if calibration.without_critic:
        return WITHOUT_CRITIC
    row = valued_row(calibration.groups, seed)
    if row is None:
        return NO_CRITIC
    if calibration.single and calibration.prefixes is not None:
        everywhere = prefix_rows(calibration.prefixes, seed)["all"]
        return f"{foresight(everywhere, row)}; {lean(row)} {SINGLE}"
    return f"{error(row, len(calibration.groups.shares))}; {lean(row)}"


def foresight(prefixes: Row, groups: Row) -> str:
    """Of single rollouts, whose luck no critic foresees: what is explained at all."""
    figures, intervals = prefixes.figures, prefixes.intervals
    explained, related = figures["explained_variance"], figures["correlation"]
    if explained is None:
        return "All outcomes are equal, so that there was nothing to explain"
    shown = decimal(explained) + _bracket(intervals.get("explained_variance"))
    told = f"Explained variance {shown}"
    if related is not None:
        told += f", correlation {decimal(related)}"
        told += _bracket(intervals.get("correlation"))
    ends = intervals.get("explained_variance")
    beaten = None if ends is None else (-ends[1], -ends[0])
    return f"{told} over all prefixes: {_against_constant(beaten, groups)}"


def error(row: Row, num_groups: int) -> str:
    """How far off mean values are from mean rewards, against saying one number."""
    valued = row.figures["groups"]
    among = "" if valued == num_groups else f" over the {valued} groups with f > 0"
    beaten = _against_constant(row.intervals.get("excess"), row)
    return (
        f"Off by {decimal(row.figures['mae'])} on average{among}, {beaten}, which is "
        f"off by {decimal(row.figures['constant_mae'])}"
    )


def lean(row: Row) -> str:
    """Whether too much or too little was promised, as far as can be told."""
    bias, interval = row.figures["bias"], row.intervals.get("bias")
    assert bias is not None
    if interval is None:
        few = row.figures["groups"]
        groups = "one group leaves" if few == 1 else f"{few} groups leave"
        return f"{groups} its bias open."
    low, high = interval
    if low <= 0.0 <= high:
        return "no clear bias."
    much = "much" if bias > 0 else "little"
    return f"hopes too {much}, by {decimal(abs(bias))}."


def _against_constant(excess: Interval | None, row: Row) -> str:
    """Better or worse only where the interval of the difference leaves out 0."""
    if excess is not None and excess[1] < 0.0:
        return "better than a constant"
    if excess is not None and excess[0] > 0.0:
        return "worse than a constant"
    few = row.figures["groups"]
    groups = "one group tells" if few == 1 else f"{few} groups tell"
    return f"no better or worse, as far as {groups}, than a constant"


def _bracket(interval: Interval | None) -> str:
    if interval is None:
        return ""
    return f" [{decimal(interval[0])}, {decimal(interval[1])}]"


def group_table(rows: Mapping[str, Row], title: str) -> "Group":
    """The sections that hold some of the groups; one that holds all is in the title."""
    columns = (
        ("MAE", "mae", False),
        ("bias", "bias", True),
        ("correlation", "correlation", False),
        ("constant", "constant_mae", False),
    )
    num_groups = rows["all"].figures["groups"]
    apart = {
        SECTIONS[name]: row
        for name, row in rows.items()
        if name == "all" or row.figures["groups"] not in (0, num_groups)
    }
    common = [
        SECTIONS[name]
        for name, row in rows.items()
        if name != "all" and row.figures["groups"] == num_groups
    ]
    told = "; all " + ", ".join(common) if common else ""
    return _table(title + told, "groups", "groups", apart, columns)


def prefix_table(rows: Mapping[str, Row]) -> "Group":
    """All prefixes, then each tenth of the rollouts."""
    columns = (
        ("MAE", "mae", False),
        ("bias", "bias", True),
        ("explained", "explained_variance", False),
        ("correlation", "correlation", False),
    )
    title = "V of a prefix and the outcome, by its place in the rollout"
    return _table(title, "prefixes", "prefixes", rows, columns)


def _table(
    title: str,
    count: str,
    count_key: str,
    rows: Mapping[str, Row],
    columns: Sequence[tuple[str, str, bool]],
) -> "Group":
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    table.add_column("", no_wrap=True)
    for name in (count, *(name for name, _, _ in columns)):
        table.add_column(name, justify="right", no_wrap=True, header_style="dim")
    for name, row in rows.items():
        figures = [_shown(row.figures[key], with_sign) for _, key, with_sign in columns]
        ends = [_ends(row.intervals.get(key), signs) for _, key, signs in columns]
        table.add_row(Text(name), str(row.figures[count_key]), *figures)
        if row.figures[count_key]:
            table.add_row("", "", *(Text(end, style="dim") for end in ends))
    return Group(Text(title, style="bold"), table)


def _shown(value: float | int | None, with_sign: bool) -> str:
    return signed(value) if with_sign and value is not None else decimal(value)


def _ends(interval: Interval | None, with_sign: bool) -> str:
    if interval is None:
        return "–"
    return "..".join(_shown(end, with_sign) for end in interval)
