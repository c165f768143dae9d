"""Rollouts inside a page: whole where there is room, and told where there is not."""

import base64
import json
import zlib

import pytest
from synthetic_run import ATTACK, RECIPE, decode
from token_rows import worth_row

from accredit.reports import embedded
from accredit.reports.embedded import by_importance, pack_run
from accredit.reports.environment import environment
from accredit.reports.rollouts import rollout_rows
from accredit.storage.run_directory import RunDirectory

pytestmark = pytest.mark.whole_run(pages=True)


def unpacked(blob: str) -> dict:
    return json.loads(zlib.decompress(base64.b64decode(blob)))


def run_of(folder, *steps, groups: int = 3, paid=lambda group: 0.0) -> RunDirectory:
    """Groups of two in each step, of four tokens."""
    run = RunDirectory(folder / "run")
    run.start(RECIPE, environment())
    for step in steps:
        rows = [
            worth_row(group=g, problem_id=f"p{g}", advantages=[paid(g)] * 5)
            for g in range(groups)
            for _ in range(2)
        ]
        run.write_rollouts(step, rows)
    return run


def test_every_rollout_of_every_kept_step_is_there(finished_run):
    packed = pack_run(finished_run, [])
    assert [step.step for step in packed.steps] == [1, 20]
    assert packed.left_out == ""
    for step in packed.steps:
        rows = list(finished_run.rollouts(step.step))
        groups = [unpacked(blob) for blob in step.blobs]
        found = [rollout for group in groups for rollout in group["rollouts"]]
        assert [rollout["index"] for rollout in found] == list(range(len(rows)))
        for row, rollout in zip(rows, found, strict=True):
            text = "".join(rollout["pieces"])
            assert text == row["completion"]
            assert rollout["reward"] == row["reward"]
            start = row["num_prompt_tokens"]
            paid = [round(x, 4) for x in row["advantages"][start:]]
            column = rollout["columns"]["paid"]
            column = column if isinstance(column, list) else [column] * len(paid)
            assert column == pytest.approx(paid, abs=6e-5)
        assert groups[0]["problem"] == "walk-0"
        assert groups[0]["prompt"] == rows[0]["prompt"]


def test_base64_holds_whatever_a_policy_wrote(tmp_path, record):
    run = RunDirectory(tmp_path / "run")
    run.start(RECIPE, environment())
    odd = f"</template>{ATTACK}\u202e"
    rows = [
        row | {"tokens": [odd] * len(row["tokens"]), "completion": "x", "reason": odd}
        for row in rollout_rows(record, 1, decode)
    ]
    run.write_rollouts(1, rows)
    (step,) = pack_run(run, []).steps
    letters = set("".join(step.blobs))
    assert not letters & set("<>&\"' ")
    rollout = unpacked(step.blobs[0])["rollouts"][0]
    assert rollout["pieces"][0] == f"</template>{ATTACK}\\u202e"
    assert ["verdict", rollout["pieces"][0]] in rollout["facts"]


def test_a_column_without_change_is_one_number(tmp_path):
    run = run_of(tmp_path, 1, paid=lambda group: 0.25)
    (step,) = pack_run(run, []).steps
    rollout = unpacked(step.blobs[0])["rollouts"][0]
    assert rollout["columns"]["paid"] == 0.25
    assert rollout["columns"]["logprob"] == [-0.5, -2.0, -1.25]
    assert (rollout["kinds"], rollout["paid"]) == ("sgss", 0.25)


@pytest.mark.parametrize("num_steps", [0, 1, 2, 3, 5, 8, 40])
def test_steps_come_by_importance_and_each_once(num_steps):
    steps = list(range(10, 10 + num_steps))
    order = by_importance(steps)
    assert sorted(order) == steps
    assert order[:2] == [*steps[-1:], *steps[: num_steps > 1]]
    if num_steps == 5:
        assert order == [14, 10, 12, 11, 13]


def test_groups_that_taught_come_first_where_there_is_no_room(tmp_path, monkeypatch):
    run = run_of(tmp_path, 1, groups=4, paid=lambda group: float(group == 2))
    whole = pack_run(run, []).steps[0]
    sizes = [len(blob) for blob in whole.blobs]
    monkeypatch.setattr(embedded, "MOST_CHARACTERS", sizes[2] + sizes[0])
    packed = pack_run(run, [])
    problems = [unpacked(blob)["problem"] for blob in packed.steps[0].blobs]
    assert problems == ["p0", "p2"]
    assert packed.left_out == (
        "For want of room 4 of 8 rollouts of the other steps are not in this page."
    )
    # those that stand on the page anyway are kept whatever the room
    monkeypatch.setattr(embedded, "MOST_CHARACTERS", 1)
    packed = pack_run(run, [(1, 7)])
    assert [unpacked(b)["problem"] for b in packed.steps[0].blobs] == ["p3"]


def test_steps_that_are_not_read_are_told(tmp_path, monkeypatch):
    run = run_of(tmp_path, 1, 2, 3, 4)
    size = run.rollout_file(4).stat().st_size
    monkeypatch.setattr(embedded, "MOST_FILE_BYTES", 2 * size)
    packed = pack_run(run, [])
    assert [step.step for step in packed.steps] == [1, 4]
    assert packed.left_out == (
        "For want of room 2 of 4 kept steps are not in this page."
    )


def test_steps_share_the_room(tmp_path, monkeypatch):
    run = run_of(tmp_path, 1, 2, 3, groups=6)
    size = len(pack_run(run, []).steps[0].blobs[0])
    monkeypatch.setattr(embedded, "MOST_CHARACTERS", 9 * (size + 4))
    packed = pack_run(run, [])
    assert [len(step.blobs) for step in packed.steps] == [3, 3, 3]
