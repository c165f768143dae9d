"""`report.html`: one self-contained page about one run.

No request leaves the page. Completions are untrusted, so the template escapes
everything, a content security policy allows no script but the page's own, by hash, and
that script writes what it unpacks as text.
"""

import base64
import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accredit.records import Alarm
from accredit.reports.alarms.alarms import warning_lines
from accredit.reports.calibration.measures import FEWEST_GROUPS
from accredit.reports.calibration.plots import prefix_figure
from accredit.reports.calibration.sources import read_run
from accredit.reports.curves import CRITIC_CURVES, CURVES, ROUTING_CURVES, Curve
from accredit.reports.embedded import PackedRun, pack_run
from accredit.reports.evaluation import selection_score
from accredit.reports.inline_svg import svg
from accredit.reports.plots import (
    AXES,
    NARROW,
    WIDE,
    learning_curve,
    stage_seconds,
    time_split,
)
from accredit.reports.quantities import QUANTITIES, Legend, carries_credit
from accredit.reports.rollouts import sound_rollouts
from accredit.reports.samples import Sample, chosen_rollouts, sample
from accredit.reports.summary import (
    decimal,
    nothing_valued,
    num_critic_only,
    summary_rows,
    totals,
    twin,
)
from accredit.storage.run_directory import RunDirectory, without_secrets
from accredit.text import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEMPLATES = Path(__file__).parent / "templates"
SCRIPTS = ("charts.js", "rollouts.js")
MOST_STEPS_TRIED = 5
"""Kept steps, from the newest, among which one is looked for that taught something."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Chart:
    """A drawn figure with its words."""

    title: str
    caption: str
    svg: str
    narrow: str = ""
    """The same for a narrow screen, where the first is a wide one."""


@dataclass(frozen=True)
class Headline:
    """The result in one line."""

    start: str | None
    final: str
    interval: str
    label: str
    sentence: str


@dataclass(frozen=True)
class Shown:
    """One rollout that stands on the page without being asked for."""

    title: str
    step: int
    sample: Sample


def write_report(run: RunDirectory, alarms: Sequence[Alarm] = ()) -> Path:
    """Makes the page from what the run has written so far; returns its path.

    `alarms` are those of the run's algorithm, beside those of all.
    """
    page = report_page(run, alarms)
    beside = run.report.with_name(run.report.name + ".partial")
    beside.write_text(page, encoding="utf-8")
    beside.replace(run.report)
    return run.report


def report_page(run: RunDirectory, alarms: Sequence[Alarm] = ()) -> str:
    """The whole page as text."""
    import jinja2
    from markupsafe import Markup

    metrics, evaluations = run.metrics(), run.evaluations()
    evaluations = with_costs(evaluations, metrics)
    recipe, environment = run.recipe(), run.environment()
    script = "".join((TEMPLATES / name).read_text("utf-8") for name in SCRIPTS)
    shown = _shown_rollouts(run, recipe)
    packed = pack_run(run, [(rollout.step, rollout.sample.index) for rollout in shown])
    critic_curves = () if nothing_valued(metrics) else CRITIC_CURVES
    loader = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return loader.get_template("report.html.j2").render(
        title=run_title(recipe),
        facts=[("run", printable(run.path.name)), *_facts(recipe, environment)],
        headline=_headline(evaluations),
        totals=totals(metrics),
        warnings=warning_lines(metrics, evaluations, alarms),
        rows=summary_rows(metrics, evaluations),
        learning=_learning_charts(evaluations),
        charts=_charts(CURVES, "curve", metrics),
        critic_charts=_charts((*critic_curves, *ROUTING_CURVES), "critic", metrics),
        warmup=_warmup(metrics),
        reliability=_reliability(run),
        stages=_stage_shares(metrics),
        time_chart=_time_chart(metrics),
        samples=shown,
        steps=packed.steps,
        **_colours(packed, recipe),
        left_out=packed.left_out,
        run_path=shlex.quote(printable(str(run.path))),
        commands=_commands(run, recipe, environment),
        recipe=json.dumps(without_secrets(recipe), indent=2, ensure_ascii=False),
        environment=json.dumps(environment, indent=2, ensure_ascii=False),
        style=Markup((TEMPLATES / "report.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_hash=_sha256(script),
    )


def run_title(recipe: Mapping[str, Any]) -> str:
    """`grpo on walk / hard`: the algorithm, the task and its split."""
    algorithm, task = named_part(recipe, "algorithm"), named_part(recipe, "task")
    section = recipe.get("task")
    split = section.get("split") if isinstance(section, Mapping) else None
    where = " / ".join(part for part in (task, split) if isinstance(part, str))
    return " on ".join(part for part in (algorithm, where) if part) or "a run"


def with_costs(evaluations: Sequence[Row], metrics: Sequence[Row]) -> list[Row]:
    """Evaluations with the cumulative costs of their step, where they lack them."""
    spent = {row["step"]: row for row in metrics}
    completed = []
    for row in evaluations:
        nothing = dict.fromkeys(AXES, 0) if row["step"] == 0 else {}
        costs = spent.get(row["step"], nothing)
        missing = {key: costs[key] for key in AXES if key in costs and key not in row}
        completed.append(row | missing)
    return completed


def _facts(recipe: Row, environment: Row) -> list[tuple[str, str]]:
    versions = environment.get("versions") or {}
    git = environment.get("git") or {}
    commit = git.get("commit", "")[:10] + (", modified" if git.get("modified") else "")
    machine = [*(environment.get("accelerators") or [])]
    machine += [f"{environment.get('num_cores')} × {environment.get('processor')}"]
    facts = [
        ("model", named_part(recipe, "model")),
        ("seed", str(recipe.get("seed", ""))),
        ("started", str(environment.get("date", "")).replace("T", " ")[:16]),
        ("machine", ", ".join(machine) if environment.get("processor") else ""),
        ("accredit", versions.get("accredit") or ""),
        ("torch", versions.get("torch") or ""),
        ("commit", commit),
    ]
    return [(name, printable(fact)) for name, fact in facts if fact]


def named_part(recipe: Mapping[str, Any], section: str) -> str:
    """What a recipe calls a part: a plain string, or the part's name or path."""
    value = recipe.get(section, "")
    if isinstance(value, Mapping):
        value = next((value[k] for k in ("name", "path", "kind") if value.get(k)), "")
    return str(value)


def _headline(evaluations: Sequence[Row]) -> Headline | None:
    scores = summary_rows([], evaluations)[:1]
    if not scores or selection_score(evaluations[-1]) is None:
        return None
    row, last = scores[0], evaluations[-1]
    start, final = (text.split(" ")[0] for text in (row.start, row.final))
    interval = row.final.partition(" ")[2]
    problems = last.get("eval/num_problems")
    label = row.name + (f" over {problems} problems" if problems else "")
    whole = twin(last, "eval/mean")
    beside = ""
    if whole is not None:
        beside = f" Over all samples, a missing reward taken for 0: {decimal(whole)}."
    if len(evaluations) < 2:
        return Headline(None, final, interval, label, f"One evaluation so far.{beside}")
    verdict = "do not touch" if row.clear else "overlap: it may be chance"
    sentence = f"{row.change} since the start; the two 95% intervals {verdict}."
    sentence += beside
    return Headline(start, final, interval, label, sentence)


def _learning_charts(evaluations: Sequence[Row]) -> list[Chart]:
    charts = []
    for along, (label, _) in AXES.items():
        wide, narrow = (
            _drawn(
                learning_curve(evaluations, along, size),
                f"learning-{along.replace('/', '-')}-{size[0]:.0f}",
                f"evaluation mean reward against {label}",
            )
            for size in (WIDE, NARROW)
        )
        if wide:
            charts.append(Chart(label[:1].upper() + label[1:], "", wide, narrow))
    return charts


def _time_chart(metrics: Sequence[Row]) -> Chart | None:
    wide, narrow = (
        _drawn(time_split(metrics, size), f"time-{size[0]:.0f}", "seconds by stage")
        for size in (WIDE, NARROW)
    )
    return Chart("", "", wide, narrow) if wide else None


def _charts(wanted: Sequence[Curve], name: str, metrics: Sequence[Row]) -> list[Chart]:
    charts = []
    for number, (title, caption, draw) in enumerate(wanted):
        drawn = _drawn(draw(metrics), f"{name}-{number}", f"{title} by step")
        if drawn:
            charts.append(Chart(title, caption, drawn))
    return charts


def _reliability(run: RunDirectory) -> Chart | None:
    """Of the newest kept step, where the critic is more than the group's rewards."""
    steps = run.rollout_steps()
    if not steps:
        return None
    try:
        found = read_run(run, last=1)
    except ValueError:
        # Nothing verified, or values that are not finite: its alarms say so.
        return None
    if found.prefixes is None or not bool((found.groups.shares > 0.0).any()):
        return None
    figure = prefix_figure(found.prefixes, 0)
    drawn = _drawn(figure, "reliability", "outcome by value")
    caption = (
        f"Step {steps[-1]}, over all prefixes; intervals of 95% from a bootstrap over "
        "groups. On the dashed line a value is what it promises. Faint: fewer than "
        f"{FEWEST_GROUPS} groups in the bin, too few for an interval."
    )
    if found.num_open:
        caption += f" {found.num_open} truncated rollouts have no known outcome."
    return Chart("How far its values can be trusted", caption, drawn)


def _drawn(figure: "Figure | None", name: str, description: str) -> str:
    from markupsafe import Markup

    return Markup(svg(figure, name, description)) if figure is not None else ""


def _stage_shares(metrics: Sequence[Row]) -> list[tuple[str, float]]:
    """(stage, share of the run's time), as in the stacked figure."""
    seconds = {k: float(v.sum()) for k, v in stage_seconds(metrics).items()}
    whole = sum(seconds.values())
    return [(name, part / whole) for name, part in seconds.items()] if whole else []


def _shown_rollouts(run: RunDirectory, recipe: Row) -> list[Shown]:
    """Best, worst and random of the newest step that taught something, one of step 1.

    Where none of the newest steps did, they are of the newest.
    """
    steps = run.rollout_steps()
    if not steps:
        return []
    seed = recipe.get("seed") if isinstance(recipe.get("seed"), int) else 0
    newest = steps[-1]
    chosen = chosen_rollouts(sound_rollouts(run, newest), seed or 0)
    for step in reversed(steps[-MOST_STEPS_TRIED:]):
        tried = chosen_rollouts(sound_rollouts(run, step), seed or 0)
        if any(carries_credit(row) for _, row in tried.values()):
            newest, chosen = step, tried
            break
    shown = [
        Shown(f"{title} of step {newest}", newest, sample(index, row))
        for title, (index, row) in chosen.items()
    ]
    if steps[0] < newest:
        first = list(
            chosen_rollouts(sound_rollouts(run, steps[0]), seed or 0).values()
        )[-1:]
        shown += [
            Shown(f"For comparison, one of step {steps[0]}", steps[0], sample(*pair))
            for pair in first
        ]
    return shown


def _colours(packed: PackedRun, recipe: Row) -> dict[str, Any]:
    """What tokens can be coloured by, the first choice and why it is that one."""
    legends = packed.palette.legends()
    preferred, reason = packed.palette.preferred(recipe)
    scales = {legend.quantity.key: legend.scale for legend in legends}
    quantities = [
        {
            "key": quantity.key,
            "name": quantity.name,
            "centre": quantity.centre,
            "scale": scales.get(quantity.key),
        }
        for quantity in QUANTITIES
    ]
    return {
        "legends": [_legend(legend) for legend in legends],
        "quantities": json.dumps(quantities),
        "preferred": preferred,
        "reason": reason,
    }


def _legend(legend: Legend) -> dict[str, str]:
    """A legend's numbers as the page shows them, its ends and its middle."""
    quantity, digits = legend.quantity, 2 if legend.scale >= 0.1 else 4
    return {
        "key": quantity.key,
        "name": quantity.name,
        "words": quantity.words,
        "low": decimal(legend.low, digits),
        "centre": decimal(quantity.centre, digits),
        "high": decimal(legend.high, digits),
        "ramp": " ".join(
            side
            for side, end in (("under", legend.low), ("over", legend.high))
            if end != quantity.centre
        ),
    }


def _warmup(metrics: Sequence[Row]) -> str:
    """How many steps the critic learned alone; empty where none."""
    alone = num_critic_only(metrics)
    steps = "1 step" if alone == 1 else f"{alone} steps"
    return f"In {steps}, shaded, the critic learned alone." if alone else ""


def _commands(run: RunDirectory, recipe: Row, environment: Row) -> list[str]:
    """What to type where the run was started."""
    git, versions = environment.get("git") or {}, environment.get("versions") or {}
    lines = [f"git checkout {git['commit']}"] if git.get("commit") else []
    if not lines and versions.get("accredit"):
        lines = [f"pip install accredit=={versions['accredit']}"]
    name, folder = run.path.absolute().name, recipe.get("runs_folder")
    started = Path(folder) / name if isinstance(folder, str) else run.path
    path, again = str(started / "recipe.json"), f"{name}-again"
    return [*lines, shlex.join(["accredit", "train", path, "--name", again])]


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
