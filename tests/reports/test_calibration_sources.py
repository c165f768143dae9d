"""Tables and runs in, pairs out; every mistake with its file, line and column."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from calibration_cases import (
    HEADER,
    printed,
    rollout_row,
    run_with,
    table,
    unwrapped,
)
from synthetic_run import RECIPE, decode, synthetic_record

from accredit.critics.group import LeaveOneOut
from accredit.records import Credit
from accredit.reports.calibration.measures import group_figures
from accredit.reports.calibration.sources import (
    read_source,
    read_table,
    valued_rollouts,
)
from accredit.reports.environment import environment
from accredit.reports.rollouts import rollout_rows
from accredit.storage.run_directory import RunDirectory

# Tables


def test_a_table_is_read_whatever_the_order_of_its_columns(tmp_path):
    path = tmp_path / "probe.csv"
    lines = ["note, share_f ,reference_shown,mean_value,mean_reward"]
    lines += ['"a, b",0.5,1,0.75,0.25', "", "c,1,0,0.1,0.9"]
    path.write_text("\ufeff" + "\r\n".join(lines), encoding="utf-8")
    groups = read_table(path).groups
    assert groups.mean_rewards.tolist() == [0.25, 0.9]
    assert groups.mean_values.tolist() == [0.75, 0.1]
    assert groups.shares.tolist() == [0.5, 1.0]
    assert groups.references.tolist() == [True, False]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("0.5,nan,1,0", "mean_value must be a finite number, got 'nan' in line 3 of"),
        ("inf,0.5,1,0", "mean_reward must be a finite number, got 'inf' in line 3 of"),
        ("0.5,,1,0", "mean_value must be a finite number, got '' in line 3 of"),
        ("0.5,half,1,0", "mean_value must be a finite number, got 'half' in line 3"),
        ("0.5,0.5,1.25,0", "share_f must lie in [0, 1], got '1.25' in line 3 of"),
        ("0.5,0.5,-0.1,0", "share_f must lie in [0, 1], got '-0.1' in line 3 of"),
        ("0.5,0.5,1,2", "reference_shown must be 0 or 1, got '2' in line 3 of"),
        ("0.5,0.5,1", "must hold 4 cells a line, as its header does, got 3 in line 3"),
        ("0.5,0.5,1,0,7", "must hold 4 cells a line, as its header does, got 5 in"),
    ],
)
def test_a_bad_cell_is_named_with_file_line_and_column(tmp_path, line, said):
    path = table(tmp_path, "0.5,0.5,1,0", line)
    with pytest.raises(ValueError) as raised:
        read_table(path)
    assert said in str(raised.value)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "got an empty file; add mean_reward, mean_value, share_f, reference"),
        (b"mean_reward,share_f\n1,1\n", "add mean_value, reference_shown"),
        (b"a;b\n1;2\n", "got 'a;b'; add mean_reward"),
        (HEADER.encode() + b"\n\n\n", "must hold a group, got a header and no rows"),
        (HEADER.encode() + b",share_f\n", "got 'share_f' twice in line 1"),
        (b"\xff\xfe\x00", "must be a table in UTF-8, got"),
        (b'"' + b"x" * 200_000, "must be a table of CSV, got"),
    ],
)
def test_what_is_no_such_table_is_said_in_one_line(tmp_path, content, said):
    path = tmp_path / "probe.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError) as raised:
        read_table(path)
    assert said in str(raised.value) and str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_path_to_nothing_and_a_folder_without_a_run_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"got no file .*absent.csv"):
        read_source(tmp_path / "absent.csv")
    with pytest.raises(ValueError, match="a run or a CSV file, got the folder"):
        read_source(tmp_path)
    with pytest.raises(ValueError, match="--last goes with a run"):
        read_source(table(tmp_path, "1,1,1,1"), last=1)


# Runs


def test_a_runs_pairs_by_hand(tmp_path):
    rows = [
        rollout_row(),
        rollout_row(shaped_reward=0.5, values=[9, 9, 0.25, 9, 0.35, 9]),
        rollout_row(group=1, reward=None, shaped_reward=0.0),
        rollout_row(group=2, reward=0.0, shaped_reward=0.0),
        rollout_row(group=2, sampled=[0, 0, 0, 0, 0]),
    ]
    found = read_source(run_with(tmp_path, rows).path)
    assert found.groups.mean_rewards.tolist() == [0.75, 0.0]
    assert found.groups.mean_values.tolist() == [0.25, 0.25]
    assert found.groups.shares.tolist() == [1.0, 1.0]
    assert found.groups.references.tolist() == [False, False]
    throughout, prefixes = found.groups_throughout, found.prefixes
    assert throughout is not None and prefixes is not None
    assert throughout.mean_values.tolist() == pytest.approx([0.4, 0.5])
    assert prefixes.values.tolist() == [0.25, 0.75, 0.25, 0.35, 0.25, 0.75]
    assert prefixes.outcomes.tolist() == [1.0, 1.0, 0.5, 0.5, 0.0, 0.0]
    # two sampled tokens: the halves begin at 0% and at 50%
    assert prefixes.deciles.tolist() == [0, 5] * 3
    assert prefixes.groups.tolist() == [0, 0, 0, 0, 1, 1]


def test_groups_of_different_steps_are_different_groups(tmp_path):
    run_with(tmp_path, [rollout_row()])
    run = run_with(tmp_path, [rollout_row(shaped_reward=0.0)], step=10)
    both = read_source(run.path, last=7)
    assert both.groups.mean_rewards.tolist() == [1.0, 0.0]
    assert both.name == "run, steps 1 to 10"
    newest = read_source(run.path)
    assert newest.groups.mean_rewards.tolist() == [0.0]
    assert newest.name == "run, step 10"


def test_what_was_read_is_told(tmp_path):
    row = rollout_row()
    run = run_with(tmp_path, [row, row, rollout_row(group=1, reward=None)])
    assert read_source(run.path).told == (
        "run, step 1: 2 rollouts in 1 group, as the critic valued them before it "
        "learned from them."
    )
    run_with(tmp_path, [rollout_row(share_f=0.0)], step=3)
    found = read_source(run.path)
    assert found.told == "run, step 3 (1 of 2 kept): 1 rollout, in a group of its own."
    assert found.single and not read_source(run.path, last=2).single
    assert (
        read_source(table(tmp_path, "1,1,1,0")).told
        == "1 group of the table probe.csv."
    )


def test_the_rows_say_who_valued_and_what_was_shown_whatever_the_recipe(tmp_path):
    rows = [rollout_row(reference_shown=1), rollout_row(share_f=0.0)]
    rows.append(rollout_row(group=1, share_f=0.0))
    groups = read_source(run_with(tmp_path, rows, {"name": "vine"}).path).groups
    assert groups.shares.tolist() == [0.5, 0.0]
    assert groups.references.tolist() == [True, False]


def test_the_rows_of_a_step_know_who_valued_them(record):
    def told(**changes) -> set[tuple[float, int]]:
        rows = rollout_rows(replace(record, **changes), 1, decode)
        return {(row["share_f"], row["reference_shown"]) for row in rows}

    assert told(valued_by_critic=False) == {(0.0, 0)}
    assert told(valued_by_critic=True) == {(1.0, 0)}
    assert told(valued_by_critic=True, reference_shown=True) == {(1.0, 1)}


def test_a_bootstrapped_rollout_has_no_outcome_to_be_compared_with(tmp_path, record):
    """Else the critic would be compared with what it said itself."""
    batch = record.batch
    last = record.values.gather(1, batch.token_mask.sum(1, keepdim=True))[:, 0]
    cut = batch.truncated & batch.verified
    assert bool(cut.any()) and bool((batch.verified & ~cut).any())
    said = torch.where(batch.truncated, last, batch.rewards)
    known = batch.verified & ~batch.truncated
    record = replace(record, shaped_rewards=said, outcome_known=known)
    rows = list(rollout_rows(record, 1, decode))
    assert [row["outcome_known"] for row in rows] == known.int().tolist()
    found = read_source(run_with(tmp_path, rows).path)
    assert found.prefixes is not None
    assert len(found.prefixes.values) == int(batch.sampled[known].sum())
    assert found.num_open == int(cut.sum())
    said = unwrapped(printed(tmp_path / "run"))
    assert f" {int(cut.sum())} truncated rollouts are left out, whose outcome" in said
    assert set(found.prefixes.outcomes.tolist()) <= set(batch.rewards[known].tolist())


def test_what_is_not_told_is_known_where_it_was_verified(record):
    rows = rollout_rows(replace(record, outcome_known=None), 1, decode)
    known = [row["outcome_known"] for row in rows]
    assert known == record.batch.verified.int().tolist()
    assert 0 in known and 1 in known


def test_siblings_value_a_group_by_its_rewards_alone(tmp_path):
    """A leave-one-out baseline is exact about its group: f = 0, error 0."""
    record = synthetic_record(np.random.default_rng(2), 0.5)
    kept = replace(record.batch, verified=torch.ones_like(record.batch.verified))
    values = LeaveOneOut().values(kept, record.shaped_rewards)
    record = replace(
        record,
        batch=kept,
        values=values,
        credit=Credit(record.credit.advantages),
        change=None,
        critic=None,
        valued_by_critic=False,
    )
    rows = [row | {"reward": 0.0} for row in rollout_rows(record, 1, decode)]
    run = run_with(tmp_path, rows, {"name": "rloo"})
    figures = group_figures(read_source(run.path).groups)
    assert figures["f=0"]["groups"] == 8
    assert figures["f=0"]["mae"] == pytest.approx(0.0, abs=1e-6)
    assert figures["f=1"]["groups"] == 0
    assert figures["all"]["constant_mae"] > 0.01


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"values": None}, "values must be a list of numbers, got None in line 2 of"),
        ({"values": [0.0] * 5}, "one entry more than sampled, got 5 and 5 in line 2"),
        ({"values": [0, 0, None, 0, 0, 0]}, "finite numbers, got None at 2 in line 2"),
        ({"values": [0, 0, "1", 0, 0, 0]}, "finite numbers, got '1' at 2 in line 2"),
        ({"sampled": None}, "sampled must be a list of numbers, got None in line 2"),
        ({"shaped_reward": None}, "shaped_reward must be a finite number, got None"),
        ({"values": [10**400] * 6}, "values must hold finite numbers, got 1000"),
        ({"shaped_reward": 10**400}, "shaped_reward must be a finite number, got 1"),
        ({"shaped_reward": "1"}, "shaped_reward must be a finite number, got '1' in"),
        ({"group": None}, "group must be a finite number, got None in line 2 of"),
        ({"share_f": 2.0}, "share_f must lie in [0, 1], got 2.0 in line 2 of"),
        ({"share_f": None}, "share_f must be a finite number, got None in line 2 of"),
        ({"reference_shown": "no"}, "reference_shown must be a finite number, got"),
        ({"reference_shown": 2}, "reference_shown must be 0 or 1, got 2.0 in line 2"),
        ({"outcome_known": None}, "outcome_known must be a finite number, got None"),
        ({"outcome_known": 0.5}, "outcome_known must be 0 or 1, got 0.5 in line 2 of"),
    ],
)
def test_a_bad_rollout_is_named_with_file_line_and_key(tmp_path, change, said):
    run = run_with(tmp_path, [rollout_row(), rollout_row(**change)])
    with pytest.raises(ValueError) as raised:
        read_source(run.path)
    assert said in str(raised.value)
    assert str(run.rollout_file(1)) in str(raised.value)


def test_a_run_that_kept_nothing_says_how_to_keep_it(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.start(RECIPE, environment())
    with pytest.raises(ValueError, match=r"step-.*got none; train with --checkpoint"):
        read_source(run.path)


def test_a_run_without_a_verified_rollout_is_refused(tmp_path):
    run = run_with(tmp_path, [rollout_row(reward=None)])
    with pytest.raises(
        ValueError, match=r"needs a verified rollout .* got none in run"
    ):
        read_source(run.path)


def test_a_batch_gives_the_rollouts_that_its_rows_give(tmp_path, record):
    """Fresh rollouts and kept ones are the same pairs."""
    record = replace(record, shaped_rewards=record.batch.rewards)
    batch, values, known = record.batch, record.values, record.batch.verified
    run = run_with(tmp_path, list(rollout_rows(record, 1, decode)))
    kept = read_source(run.path)
    fresh = valued_rollouts(batch, values, known, 0, reference=False)
    assert kept.prefixes is not None
    asked = np.concatenate([rollout.values for rollout in fresh])
    np.testing.assert_allclose(kept.prefixes.values.numpy(), asked, atol=1e-6)
    assert len(fresh) == int(known.sum())
    assert valued_rollouts(batch, values, known, 16, False)[0].group == (0, 16)
    finished = known & ~batch.truncated
    kept_open = valued_rollouts(batch, values, finished, 0, reference=True)
    assert len(kept_open) == int(finished.sum()) < len(fresh)
    assert {rollout.reference for rollout in kept_open} == {True}


@pytest.mark.parametrize(
    ("missing", "over_all"), [(0, None), (1, 0.5), (2, 0.375), (6, 0.1875)]
)
def test_a_mean_without_the_missing_has_that_over_all_beside_it(
    tmp_path, missing, over_all
):
    """Outcomes 1 and .5: .75 of the two, 1.5 / (2 + missing) of all."""
    rows = [rollout_row(), rollout_row(shaped_reward=0.5)]
    rows += [rollout_row(reward=None, stop_reason="stop")] * missing
    # What was stopped on purpose was never to be judged.
    rows += [rollout_row(reward=None, stop_reason="chunk")] * 3
    run = run_with(tmp_path, rows)
    found = read_source(run.path)
    assert (found.num_missing, found.mean_outcome) == (missing, 0.75)
    assert found.mean_over_all == (
        None if over_all is None else pytest.approx(over_all)
    )
    said = unwrapped(printed(run.path))
    shown = f"the mean outcome is 0.750 of the others, and {1.5 / (2 + missing):.3f} of"
    assert (shown in said) is bool(missing)
