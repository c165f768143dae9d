"""A run whose critic ends rollouts early, in rows, calibration, page and terminal."""

import io
import json
from dataclasses import replace

import pytest
import torch
from calibration_cases import printed, rollout_row, run_with, unwrapped
from rich.console import Console
from routed_record import NAN, routed_record
from synthetic_run import RECIPE, decode

from accredit.recipe.config import RecipeError
from accredit.records import State
from accredit.reports.calibration.measures import group_figures
from accredit.reports.calibration.sources import read_source
from accredit.reports.environment import environment
from accredit.reports.metrics.step import step_metrics
from accredit.reports.page import report_page
from accredit.reports.progress import final_table, status_line
from accredit.reports.quantities import columns_of, step_credits
from accredit.reports.rollouts import rollout_rows
from accredit.reports.samples import MOST_REPLAYED, facts_of, sample
from accredit.reports.summary import gpu_time, nothing_valued, summary_rows
from accredit.runs import calibrating
from accredit.storage.run_directory import RunDirectory

AC2 = {"name": "ac2"}


def rows_of(**changes) -> list[dict]:
    return list(rollout_rows(routed_record(**changes), 1, decode))


def audit_row(**changes) -> dict:
    """One judged member of an audited group, stopped in thought with V .75."""
    row = {"ready": 1, "audited": 1, "boundary_reached": 1, "boundary_value": 0.75}
    return rollout_row(share_f=0.0, **row) | changes


# Rollout files


def test_rows_say_of_each_rollout_who_valued_it():
    rows = rows_of()
    assert [row["share_f"] for row in rows] == [0, 0, 1, 0, 0, 0, 1, 1]
    assert [row["reference_shown"] for row in rows] == [0, 0, 1, 1, 1, 1, 0, 0]
    assert [row["ready"] for row in rows] == [0, 0, 1, 1, 1, 1, 1, 1]
    assert [row["audited"] for row in rows] == [0, 0, 0, 0, 1, 1, 0, 0]
    assert [row["num_replayed"] for row in rows] == [2, 2, 0, 0, 3, 3, 1, 1]
    assert [row["boundary_reached"] for row in rows] == [0, 0, 0, 0, 1, 1, 0, 0]
    assert [row["outcome_known"] for row in rows] == [1, 1, 0, 1, 1, 1, 0, 0]


def test_rows_hold_null_where_nothing_was_asked_or_answered():
    rows = rows_of()
    prefixes = [0.75, 0.75, 0.3, 0.3, 0.2, 0.2, None, None]
    assert [row["prefix_value"] for row in rows] == prefixes
    targets = [0.5, 0.5, 0.2, 0.2, 0.25, 0.25, None, None]
    assert [row["group_target"] for row in rows] == targets
    ends = [None, None, 0.4, None, None, None, 0.6, None]
    assert [row["endpoint_value"] for row in rows] == ends
    boundaries = [None] * 4 + [0.75, 0.25, None, None]
    assert [row["boundary_value"] for row in rows] == boundaries
    json.dumps(rows, allow_nan=False)


def test_other_algorithms_have_the_rows_that_they_had():
    record = replace(routed_record(), sections=(), reference_shown=True)
    rows = list(rollout_rows(record, 1, decode))
    assert {(row["share_f"], row["reference_shown"]) for row in rows} == {(1.0, 1)}
    assert not {"ready", "audited", "boundary_value"} & rows[0].keys()


# Calibration


def test_a_calibration_is_of_audited_groups_alone(tmp_path):
    found = read_source(run_with(tmp_path, rows_of(), AC2).path)
    groups = found.groups
    # rewards (0, .5) and values (.75, .25) where both would have been stopped
    assert groups.mean_rewards.tolist() == [0.25]
    assert groups.mean_values.tolist() == [0.5]
    assert groups.shares.tolist() == [1.0]
    assert groups.references.tolist() == [True]
    assert found.prefixes is None and found.groups_throughout is None
    assert found.told.startswith(
        "run, step 1 (1 of 1 kept): 2 rollouts in 1 group, audited: of problems that"
    )


def test_f_is_the_share_that_passed_the_border(tmp_path):
    rows = [
        audit_row(reward=0.5),
        audit_row(reward=1.0, boundary_reached=0, boundary_value=None),
        audit_row(reward=0.25, boundary_value=1.0),
        audit_row(reward=0.0, boundary_reached=0, boundary_value=None),
        # not judged, and not answered: nothing to compare
        audit_row(reward=None),
        audit_row(reward=1.0, boundary_value=None),
        audit_row(group=1, reward=0.5, boundary_reached=0, boundary_value=None),
        audit_row(group=2, audited=0),
        audit_row(group=3, ready=0, audited=0),
    ]
    found = read_source(run_with(tmp_path, rows, AC2).path)
    # values .75, 1, 1, 0 of rewards .5, 1, .25, 0
    assert found.groups.mean_values.tolist() == [2.75 / 4, 0.5]
    assert found.groups.mean_rewards.tolist() == [1.75 / 4, 0.5]
    assert found.groups.shares.tolist() == [0.5, 0.0]
    figures = group_figures(found.groups)
    assert figures["0<f<1"]["groups"] == 1
    assert figures["0<f<1"]["mae"] == pytest.approx(0.25)
    assert figures["f=0"]["mae"] == 0.0
    assert found.num_rollouts == 5


def test_steps_are_pooled_as_asked_and_the_table_is_printed(tmp_path):
    run_with(tmp_path, [audit_row()] * 2, AC2)
    run = run_with(tmp_path, [audit_row(reward=0.0), audit_row()], AC2, step=10)
    assert read_source(run.path).groups.mean_rewards.tolist() == [0.5]
    both = read_source(run.path, last=2)
    assert both.groups.mean_rewards.tolist() == [1.0, 0.5]
    said = unwrapped(printed(run.path, last=2))
    assert "Read: run, steps 1 to 10 (2 of 2 kept): 4 rollouts in 2 groups" in said
    assert "mean reward of a group and its value; all f = 1" in said
    # .75 of 1 and of .5
    assert "Off by 0.250 on average" in said


def test_before_the_gate_opens_there_is_nothing_to_calibrate(tmp_path):
    run = run_with(tmp_path, rows_of(audited=torch.tensor([False] * 4)), AC2)
    with pytest.raises(ValueError, match=r"needs an audited group .* got none in run"):
        read_source(run.path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ready": None}, "ready must be a finite number, got None in line 2 of"),
        ({"audited": 2}, "audited must be 0 or 1, got 2.0 in line 2 of"),
        (
            {"boundary_reached": 0.5},
            "boundary_reached must be 0 or 1, got 0.5 in line 2",
        ),
        ({"boundary_value": "x"}, "boundary_value must be a finite number, got 'x' in"),
        ({"reward": "1"}, "reward must be a finite number, got '1' in line 2 of"),
        ({"reference_shown": None}, "reference_shown must be a finite number, got"),
    ],
)
def test_a_bad_audit_is_named_with_line_and_key(tmp_path, change, said):
    run = run_with(tmp_path, [audit_row(), audit_row(**change)], AC2)
    with pytest.raises(ValueError) as raised:
        read_source(run.path)
    assert said in str(raised.value)
    assert str(run.rollout_file(1)) in str(raised.value)


def test_fresh_rollouts_are_not_asked_of_a_critic_of_few_prefixes(
    tmp_path, monkeypatch
):
    run = run_with(tmp_path, rows_of(), AC2)
    newest = run.checkpoints / "step-1"
    (newest / "critic").mkdir(parents=True)
    monkeypatch.setattr(calibrating, "latest_checkpoint", lambda root: newest)
    with pytest.raises(RecipeError, match="values every prefix, got one of ac2, which"):
        calibrating.fresh_calibration(run.path, ())


# Samples


def test_a_stopped_rollout_shows_its_value_and_no_missing_reward():
    rows = rows_of()
    facts = dict(facts_of(rows[2]))
    assert facts["reward"] == "stopped, valued 0.40"
    assert facts["stopped by"] == "a chunk boundary"
    assert "verdict" not in facts and "replayed tokens" not in facts
    assert dict(facts_of(rows[7]))["reward"] == "stopped, no valid value"
    judged = dict(facts_of(rows[5]))
    assert (judged["reward"], judged["stopped by"]) == ("0.50", "stop")


def test_replayed_prefixes_and_chunk_borders_are_marked():
    rows = rows_of()
    audited = sample(4, rows[4])
    # three replayed tokens, a boundary of the audit after two more
    assert audited.kinds == "rrrssssss" and audited.boundaries == (3, 5)
    assert dict(audited.facts)["replayed tokens"] == "3"
    assert dict(audited.facts)["tokens"] == "6"
    assert len(audited.columns["credit"]) == 6
    stopped = sample(2, rows[2])
    assert stopped.kinds == "ss" and stopped.boundaries == (2,)
    assert sample(3, rows[3]).boundaries == ()
    assert sample(0, rows[0]).boundaries == (2,)


def test_a_long_prefix_leaves_room_for_what_follows():
    row = rows_of()[4]
    extra = 300
    start = row["num_prompt_tokens"]
    for key, filler in (("tokens", "x"), ("sampled", 0), ("advantages", 0.0)):
        row[key] = [*row[key][:start], *[filler] * extra, *row[key][start:]]
    columns = ("values", "old_logprobs", "sampling_logprobs", "value_targets")
    for key in (*columns, "entropies"):
        if row[key] is not None:
            row[key] = [*row[key][:start], *[0.0] * extra, *row[key][start:]]
    row["num_replayed"] += extra
    shown = sample(4, row)
    assert shown.kinds == "r" * MOST_REPLAYED + "s" * 6
    assert (shown.first, shown.num_hidden) == (303 - MOST_REPLAYED, 0)
    assert dict(shown.facts)["replayed tokens"] == "303, the last 200 shown"


def test_credit_is_told_at_the_border_and_at_the_end():
    rows = rows_of()
    audited = step_credits(rows[4])
    assert audited is not None
    # .2 for two tokens, then .75, then the reward 0
    expected = [0.0] * 7 + [0.0, 0.55, 0.0, 0.0, 0.0, -0.75]
    assert audited == pytest.approx(expected)
    stopped = step_credits(rows[2])
    assert stopped == pytest.approx([0.0] * 5 + [0.4 - 0.3])
    invalid = step_credits(rows[7])
    assert invalid is not None and not any(invalid)
    assert columns_of(rows[2])["credit"] == [0.0, 0.1]


# Terminal and page

STEP = {
    "step": 1,
    "reward/mean": 0.4125,
    "critic/valued_share": 0.5,
    "readiness/share": 0.4142,
    "tokens/saved_share": 0.25,
    "ac2/hacking_gap": -0.0234,
    "length/mean": 36.24,
    "tokens/per_s": 2130.0,
    "flops/decode": 6.72e11,
}


def test_the_status_tells_trust_savings_and_the_gap():
    assert status_line(STEP, "0.380", 200.0) == (
        "reward 0.412  ready 0.41  saved 0.25  hack −0.02  len 36  2.1k tok/s  "
        "672 GFLOP  3 min left"
    )
    counted = STEP | {"flops/saved_share": 0.35}
    assert "saved 0.35  hack" in status_line(counted, "", None)
    first = {"reward/mean": 0.5, "readiness/share": 0.0, "critic/valued_share": 0.0}
    assert status_line(first, "0.380", None) == "reward 0.500  ready 0.00"
    head = len("step 100/100  ")
    assert len(status_line(STEP, "0.380", 200.0, 79 - head)) <= 79 - head


def test_the_final_rows_hold_what_has_no_beginning():
    first = STEP | {"readiness/share": 0.0, "tokens/saved_share": 0.0}
    del first["ac2/hacking_gap"]
    rows = {row.name: row for row in summary_rows([first, STEP | {"step": 2}], [])}
    ready = rows["ready problems, share"]
    assert (ready.start, ready.final, ready.change) == ("0.000", "0.414", "+0.414")
    gap = rows["critic hacking gap"]
    assert (gap.start, gap.final, gap.change) == ("–", "−0.023", "")
    assert "tokens saved, share" in rows and "decode FLOPs saved, share" not in rows
    counted = STEP | {"flops/saved_share": 0.35}
    names = [row.name for row in summary_rows([counted], [])]
    assert "decode FLOPs saved, share" in names and "tokens saved, share" not in names
    assert max(map(len, names)) <= 26


def test_both_ledgers_and_the_estimate_stand_on_one_line():
    costs = {"flops/decode": 1.99e20, "flops/total": 4e21, "cost/gpu_hours": 1469.4}
    out = Console(file=io.StringIO(), width=80, record=True)
    out.print(final_table([STEP | costs], []))
    lines = [line.rstrip() for line in out.export_text().splitlines()]
    assert (
        "decode 199 EFLOP · full ledger 4 ZFLOP · estimated GPU time 1,469 h" in lines
    )


@pytest.mark.parametrize(
    ("hours", "text"),
    [
        (0.0, "below 0.1 s"),
        (1e-5, "below 0.1 s"),
        (2e-5, "0.1 s"),
        (0.5, "30 min"),
        (1.25, "1.2 h"),
        (9.96, "10 h"),
        (559.4, "559 h"),
    ],
)
def test_gpu_time_is_in_hours_however_many(hours, text):
    assert gpu_time(hours) == text


def test_a_critic_that_has_valued_no_end_yet_is_one():
    row = {"step": 1, "critic/value_mean": 0.0}
    assert nothing_valued([row])
    assert not nothing_valued([row | {"critic/valued_share": 0.0}])


def test_the_page_draws_readiness_and_what_it_saved(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.start(RECIPE | {"algorithm": AC2}, environment())
    state = State()
    for step in (1, 2, 3):
        record = routed_record(num_ready=step)
        state = state.advance(record.cost)
        run.append_metrics(step_metrics(record, state))
    run.write_rollouts(3, rollout_rows(routed_record(), 3, decode))
    page = report_page(run)
    for title in ("Readiness and tokens saved", "Hacking gap", "Where stopping costs"):
        assert f"<h3>{title}</h3>" in page
    assert '<span class="replayed">replayed</span>' in page
    assert "estimated GPU time" in page
    assert "How far its values can be trusted" not in page


def test_other_runs_have_no_such_plots(finished_page):
    assert "Readiness and tokens saved" not in finished_page


def test_a_valid_value_of_nothing_is_0_and_not_missing():
    values = torch.tensor([NAN, NAN, 0.0, NAN, NAN, NAN, 0.6, NAN])
    facts = dict(facts_of(rows_of(endpoint_values=values)[2]))
    assert facts["reward"] == "stopped, valued 0.00"
