"""What a run came to, in short words and numbers, for the page and the terminal."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Row = Mapping[str, float | int | None]

PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")
SCORES = ("mean", "pass@", "best@")
OVER_ALL = "_all"
"""Ends the key of a mean over all rollouts, missing rewards taken for 0."""
NOTICEABLE = 1e-9
"""How far a mean and its twin lie apart where rollouts were left out of the first."""
CRITIC_ONLY = "count/critic_only_steps"
SAVED = ("flops/saved_share", "tokens/saved_share")
"""Keys of what stopping early saved, the better one first."""


@dataclass(frozen=True)
class SummaryRow:
    """One line of the final table: before, after, and the step between them."""

    name: str
    start: str
    final: str
    change: str = ""
    clear: bool = False
    """True where the two confidence intervals do not touch."""


def summary_rows(
    metrics: Sequence[Row], evaluations: Sequence[Row]
) -> list[SummaryRow]:
    """Evaluation scores first to last, then the training figures that explain them."""
    return _evaluation_rows(evaluations) + _training_rows(metrics)


def totals(metrics: Sequence[Row]) -> list[tuple[str, str]]:
    """What the run spent, as (name, amount): time and tokens, then both ledgers."""
    return spending(metrics) + ledgers(metrics)


def spending(metrics: Sequence[Row]) -> list[tuple[str, str]]:
    """Steps, time and tokens."""
    if not metrics:
        return []
    last = metrics[-1]
    seconds = math.fsum(row.get("time/step_s") or 0.0 for row in metrics)
    tokens = last.get("tokens/generated") or 0
    pairs = [("steps", str(last.get("step", len(metrics))))]
    alone = num_critic_only(metrics)
    pairs += [("steps of the critic alone", str(alone))] if alone else []
    pairs += [("training time", duration(seconds))]
    pairs += [("tokens generated", si(tokens))]
    if seconds > 0:
        pairs += [("tokens per second", si(tokens / seconds))]
    return pairs


def ledgers(metrics: Sequence[Row]) -> list[tuple[str, str]]:
    """The decode ledger, the full one, and the GPU time that this may come to."""
    if not metrics:
        return []
    last = metrics[-1]
    pairs = [
        (name, si(last[key] or 0.0, "FLOP"))
        for name, key in (("decode", "flops/decode"), ("full ledger", "flops/total"))
        if key in last
    ]
    hours = last.get("cost/gpu_hours")
    return pairs if hours is None else [*pairs, ("estimated GPU time", gpu_time(hours))]


def gpu_time(hours: float | int) -> str:
    """559 h, however many; 41 s where it is less than one."""
    if hours >= 1.0:
        return f"{hours:,.0f} h" if hours >= 9.95 else f"{hours:.1f} h"
    return duration(3600.0 * hours) if 3600.0 * hours >= 0.05 else "below 0.1 s"


def num_critic_only(metrics: Sequence[Row]) -> int:
    """Steps in which the critic learned and the policy did not."""
    return sum(bool(row.get(CRITIC_ONLY)) for row in metrics)


def nothing_valued(metrics: Sequence[Row]) -> bool:
    """Whether no critic was asked and the baseline was 0 in every step."""
    said = [row["critic/value_mean"] for row in metrics if "critic/value_mean" in row]
    asked = any(row.get("critic/valued_share") is not None for row in metrics)
    return bool(said) and not any(said) and not asked


def si(value: float | int, unit: str = "") -> str:
    """Three digits and a metric prefix: 8.04 GFLOP, 131 k, 12."""
    if not math.isfinite(value):
        return "–"
    thousands = 0
    while abs(value) >= 999.5 and thousands < len(PREFIXES) - 1:
        value, thousands = value / 1000.0, thousands + 1
    digits = 0 if abs(value) >= 99.95 or value == int(value) else 1
    digits = 2 if abs(value) < 9.995 and value != int(value) else digits
    return f"{value:.{digits}f} {PREFIXES[thousands]}{unit}".strip()


def duration(seconds: float | int) -> str:
    """Two units at most: 41 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    if not math.isfinite(seconds):
        return "–"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, name, part, part_name in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // part
            tail = f" {rest} {part_name}" if rest else ""
            return f"{whole // size} {name}{tail}"
    return f"{whole} s"


def time_left(seconds: float | int) -> str:
    """One unit, so that a line of progress stays short: 41 s, 3 min, 5 h, 3 d."""
    for size, name, limit in ((1, "s", 99.5), (60, "min", 5970), (3600, "h", 172_800)):
        if seconds < limit:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds / 86400:.0f} d" if math.isfinite(seconds) else "–"


def decimal(value: float | int | None, digits: int = 3) -> str:
    """A plain number with a true minus sign; an en dash for what is undefined."""
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{value:.{digits}f}"
    # What rounds to 0 has no sign: it would be that of the rounding.
    return text.replace("-", "−" if text.strip("-0.") else "")


def signed(value: float | int, digits: int = 3) -> str:
    """A change, with its sign; what rounds to 0 has none."""
    text = decimal(value, digits)
    return f"+{text}" if value > 0 and text.strip("0.–") else text


def with_interval(row: Row, key: str) -> str:
    """`0.412 [0.380, 0.447]` of an evaluation's row."""
    low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
    if low is None or high is None:
        return decimal(row.get(key))
    return f"{decimal(row.get(key))} [{decimal(low)}, {decimal(high)}]"


def twin(row: Row, key: str) -> float | None:
    """The mean over all rollouts, where that is another one than `row[key]`."""
    partial, whole = row.get(key), row.get(f"{key}{OVER_ALL}")
    if whole is None:
        return None
    differs = partial is None or abs(partial - whole) > NOTICEABLE
    return whole if differs else None


def with_twin(row: Row, key: str, digits: int = 3) -> str:
    """`1.000 (all 0.250)`: a mean, and that over all rollouts where it is another."""
    whole = twin(row, key)
    beside = "" if whole is None else f" (all {decimal(whole, digits)})"
    return decimal(row.get(key), digits) + beside


def shown_scores(row: Row) -> list[str]:
    """Keys of an evaluation's figures, each twin behind its score where they differ."""
    keys = [key for key in row if not key.endswith(("_low", "_high", OVER_ALL))]
    lone = [key for key in row if key.endswith(OVER_ALL)]
    found: list[str] = []
    for key in keys:
        found += [key] if twin(row, key) is None else [key, f"{key}{OVER_ALL}"]
    return found + [k for k in lone if k.removesuffix(OVER_ALL) not in row]


def _evaluation_rows(evaluations: Sequence[Row]) -> list[SummaryRow]:
    if not evaluations:
        return []
    first, last = evaluations[0], evaluations[-1]
    rows = []
    for key in _with_twins(_score_keys(first, last), first, last):
        before, after = first.get(key), last.get(key)
        if before is None or after is None:
            continue
        rows.append(
            SummaryRow(
                name=_score_name(key, last),
                start=with_interval(first, key),
                final=with_interval(last, key),
                change=signed(after - before),
                clear=_apart(first, last, key),
            )
        )
    rows += _plain_rows(
        first,
        last,
        (
            ("evaluation length, tokens", "eval/length_mean", 1),
            ("evaluation truncated", "eval/truncated_share", 3),
            ("evaluation not verified", "eval/invalid_share", 3),
        ),
    )
    return rows


def _with_twins(keys: Sequence[str], first: Row, last: Row) -> list[str]:
    """Each score, then its twin where either row left samples out."""
    found: list[str] = []
    for key in keys:
        left_out = any(twin(row, key) is not None for row in (first, last))
        found += [key, f"{key}{OVER_ALL}"] if left_out else [key]
    return found


def _score_keys(first: Row, last: Row) -> list[str]:
    """mean, pass@1 and the largest k of pass and best; pass@1 repeats a 0/1 mean."""
    present = [{key.removesuffix(OVER_ALL) for key in row} for row in (first, last)]
    names = [
        key.removeprefix("eval/")
        for key in dict.fromkeys(key.removesuffix(OVER_ALL) for key in first)
        if key in present[0] & present[1]
        and key.startswith(tuple(f"eval/{s}" for s in SCORES))
    ]
    scores = [name for name in names if not name.endswith(("_low", "_high"))]
    largest = {name.split("@")[0]: name for name in sorted(scores, key=_k)}
    kept = [name for name in largest.values() if _k(name) != 1]
    if "best" in largest and "pass" in largest:
        same = first.get(f"eval/{largest['best']}") == first.get(
            f"eval/{largest['pass']}"
        ) and last.get(f"eval/{largest['best']}") == last.get(f"eval/{largest['pass']}")
        kept = [name for name in kept if not (same and name.startswith("best"))]
    return [f"eval/{name}" for name in kept]


def _k(name: str) -> int:
    """The k of pass@k; 0 for the mean."""
    return int(name.partition("@")[2] or 0)


def _score_name(key: str, row: Row) -> str:
    name = key.removeprefix("eval/").removesuffix(OVER_ALL)
    problems, rollouts = row.get("eval/num_problems"), row.get("eval/num_rollouts")
    if name == "mean" and problems and rollouts:
        name = f"mean@{rollouts // problems:.0f}"
    return f"evaluation {name}" + (", all" if key.endswith(OVER_ALL) else "")


def _apart(first: Row, last: Row, key: str) -> bool:
    ends = [row.get(f"{key}_{end}") for row in (first, last) for end in ("low", "high")]
    if any(end is None for end in ends):
        return False
    low, high, later_low, later_high = (float(end or 0.0) for end in ends)
    return later_low > high or later_high < low


def _training_rows(metrics: Sequence[Row]) -> list[SummaryRow]:
    """Means over the first and the last tenth of the steps, ten steps at most.

    The names have 26 characters at most: beside two intervals, 80 columns hold no more.
    """
    if not metrics:
        return []
    window = max(1, min(10, len(metrics) // 10))
    steps = "1 step" if window == 1 else f"{window} steps"
    first, last = _window_mean(metrics[:window]), _window_mean(metrics[-window:])
    left_out = any(twin(row, "reward/mean") is not None for row in (first, last))
    policy = (
        (f"training reward, {steps}", "reward/mean", 3),
        *([("training reward, all", f"reward/mean{OVER_ALL}", 3)] if left_out else []),
        (f"training length, {steps}", "length/mean", 1),
        (f"policy entropy, {steps}", "policy/entropy_mean", 3),
    )
    critic = (
        ("critic explained variance", "critic/explained_variance", 3),
        ("critic mean absolute error", "critic/mae", 3),
    )
    wanted = policy if nothing_valued(metrics) else (*policy, *critic)
    return _plain_rows(first, last, wanted) + _routing_rows(first, last)


def _routing_rows(first: Row, last: Row) -> list[SummaryRow]:
    """What a critic that may end rollouts is trusted with: often nothing at first."""
    wanted = (
        ("ready problems, share", "readiness/share"),
        ("decode FLOPs saved, share", SAVED[0]),
        ("tokens saved, share", SAVED[1]),
        ("critic hacking gap", "ac2/hacking_gap"),
    )
    rows = []
    for name, key in wanted:
        after = last.get(key)
        if after is None or (key == SAVED[1] and SAVED[0] in last):
            continue
        before = first.get(key)
        change = "" if before is None else signed(after - before)
        rows.append(SummaryRow(name, decimal(before), decimal(after), change))
    return rows


def _window_mean(rows: Sequence[Row]) -> dict[str, float]:
    columns: dict[str, list[float]] = {}
    for row in rows:
        for key, value in row.items():
            if value is not None:
                columns.setdefault(key, []).append(value)
    return {key: math.fsum(values) / len(values) for key, values in columns.items()}


def _plain_rows(
    first: Row, last: Row, wanted: Sequence[tuple[str, str, int]]
) -> list[SummaryRow]:
    rows = []
    for name, key, digits in wanted:
        before, after = first.get(key), last.get(key)
        if before is not None and after is not None:
            change = signed(after - before, digits)
            start, final = decimal(before, digits), decimal(after, digits)
            rows.append(SummaryRow(name, start, final, change))
    return rows
