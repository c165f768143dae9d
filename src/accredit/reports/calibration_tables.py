"""A calibration for the terminal: a sentence, then figures with their intervals."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from accredit.reports.calibration import (
    Interval,
    Row,
    group_rows,
    prefix_rows,
    valued_row,
)
from accredit.reports.calibration_sources import Calibration
from accredit.reports.summary import decimal, signed

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
    "Constant: the error of saying the mean reward of everything."
)
LEFT_OUT = (
    "truncated rollouts are left out, whose outcome is the critic's own word: this "
    "speaks about those that ended, and not about the policy as a whole."
)
NO_CRITIC = (
    "No critic valued these groups: rewards or a baseline stand in for one, and the "
    "figures tell nothing about how far a critic can be trusted."
)


def calibration_tables(calibration: Calibration, seed: int) -> "Group":
    """Everything about one calibration, for `console.print`."""
    from rich.console import Group, RenderableType
    from rich.text import Text

    rows = group_rows(calibration.groups, seed)
    at = "mean reward of a group and its value"
    throughout = calibration.groups_throughout
    said = verdict(valued_row(calibration.groups, seed), len(calibration.groups.shares))
    if calibration.num_open:
        said += f" {calibration.num_open} {LEFT_OUT}"
    parts: list[RenderableType] = [Text(said), Text("")]
    parts.append(group_table(rows, at + (" at the prompt" if throughout else "")))
    if throughout is not None:
        parts += [
            Text(""),
            group_table(group_rows(throughout, seed), at + " throughout"),
        ]
    if calibration.prefixes is not None:
        parts += [Text(""), prefix_table(prefix_rows(calibration.prefixes, seed))]
    return Group(*parts, Text(""), Text(NOTE, style="dim"))


def verdict(row: Row | None, num_groups: int) -> str:
    """What the figures of the groups that a critic valued say, in a sentence."""
    if row is None:
        return NO_CRITIC
    valued = row.figures["groups"]
    among = "" if valued == num_groups else f" over the {valued} groups with f > 0"
    error, constant = row.figures["mae"], row.figures["constant_mae"]
    lean, interval = row.figures["bias"], row.intervals.get("bias")
    assert error is not None and constant is not None and lean is not None
    beaten = "better" if error < constant else "no better"
    sentence = (
        f"Off by {decimal(error)} on average{among}, {beaten} than a constant, which "
        f"is off by {decimal(constant)};"
    )
    if interval is None:
        return f"{sentence} one group leaves its bias open."
    low, high = interval
    if low <= 0.0 <= high:
        return f"{sentence} no clear bias."
    much = "much" if lean > 0 else "little"
    return f"{sentence} hopes too {much}, by {decimal(abs(lean))}."


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
        if any(ends):
            table.add_row("", "", *(Text(end, style="dim") for end in ends))
    return Group(Text(title, style="bold"), table)


def _shown(value: float | int | None, with_sign: bool) -> str:
    return signed(value) if with_sign and value is not None else decimal(value)


def _ends(interval: Interval | None, with_sign: bool) -> str:
    if interval is None:
        return ""
    return "..".join(_shown(end, with_sign) for end in interval)
