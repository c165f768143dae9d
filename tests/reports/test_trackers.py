"""Trackers get every number, and can neither start wrongly nor end a run."""

import sys
from types import SimpleNamespace

import pytest

from accredit.reports.trackers import Guarded, Tracker, numbers, open_tracker, run_id


class Recorder:
    def __init__(self) -> None:
        self.calls: list[tuple[str, dict]] = []

    def init(self, **settings) -> "Recorder":
        self.calls.append(("init", settings))
        return self

    def log(self, metrics, step) -> None:
        self.calls.append(("log", {"metrics": metrics, "step": step}))

    def finish(self) -> None:
        self.calls.append(("finish", {}))


class Broken:
    def log(self, metrics, step) -> None:
        raise ConnectionError("no network")

    def close(self) -> None:
        raise OSError("disk full")


def test_tensorboard_holds_every_number(tmp_path):
    tracker = open_tracker("tensorboard", tmp_path, {})
    tracker.log({"step": 1, "reward/mean": 0.25, "note": "text", "gap": None}, step=1)
    tracker.log({"step": 2, "reward/mean": 0.5}, step=2)
    tracker.close()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert events.Tags()["scalars"] == ["reward/mean"]
    points = [(e.step, e.value) for e in events.Scalars("reward/mean")]
    assert points == [(1, 0.25), (2, 0.5)]
    assert tracker.num_failures == 0


def test_a_resumed_tensorboard_drops_what_came_after_the_checkpoint(tmp_path):
    for first_step, value in ((0, 0.1), (2, 0.9)):
        tracker = open_tracker("tensorboard", tmp_path, {}, first_step)
        for step in range(first_step + 1, 5):
            tracker.log({"reward/mean": value}, step)
        tracker.close()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    points = [(e.step, round(e.value, 1)) for e in events.Scalars("reward/mean")]
    assert points == [(1, 0.1), (2, 0.1), (3, 0.9), (4, 0.9)]


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_remote_trackers_get_the_recipe_without_its_secrets(
    tmp_path, monkeypatch, name
):
    service = Recorder()
    module = SimpleNamespace(init=service.init, log=service.log, finish=service.finish)
    monkeypatch.setitem(sys.modules, name, module)
    recipe = {"seed": 3, "judge": {"api_key": "hunter2"}}
    tracker = open_tracker(name, tmp_path / "walk", recipe)
    tracker.log({"step": 1, "reward/mean": 0.5}, step=1)
    tracker.close()
    (_, settings), logged, (last, _) = service.calls
    assert settings["config"] == {"seed": 3, "judge": {"api_key": "(hidden)"}}
    assert settings["name"] == "walk"
    assert logged == ("log", {"metrics": {"reward/mean": 0.5}, "step": 1})
    assert last == "finish"


def test_a_failing_tracker_is_told_once_counted_and_survived():
    told: list[str] = []
    tracker = Guarded("wandb", Broken(), told.append)
    for step in range(3):
        tracker.log({"reward/mean": 0.5}, step)
    tracker.close()
    assert tracker.num_failures == 4
    assert told == [
        "tracker 'wandb' failed (ConnectionError: no network); "
        "training goes on, metrics.jsonl is complete"
    ]


def test_failures_go_to_stderr_unless_told_otherwise(capsys):
    Guarded("wandb", Broken()).close()
    assert "OSError: disk full" in capsys.readouterr().err


def test_ctrl_c_is_no_failure_of_a_tracker():
    class Interrupted(Broken):
        def log(self, metrics, step) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Guarded("wandb", Interrupted()).log({}, 1)


def test_an_unknown_tracker_lists_the_known_ones(tmp_path):
    with pytest.raises(ValueError, match="one of tensorboard, wandb, trackio, got 'x'"):
        open_tracker("x", tmp_path, {})


def test_a_missing_package_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.setattr("accredit.reports.trackers.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"install 'accredit\[trackers\]'"):
        open_tracker("wandb", tmp_path, {})


def test_a_tracker_that_cannot_open_is_a_clear_error(tmp_path, monkeypatch):
    def refuse(**settings):
        raise PermissionError("not logged in")

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=refuse))
    with pytest.raises(RuntimeError, match="PermissionError: not logged in; correct"):
        open_tracker("wandb", tmp_path, {})


def test_run_ids_survive_a_move_and_differ_between_runs(tmp_path):
    first, second = tmp_path / "a b", tmp_path / "c"
    for path, date in ((first, "1"), (second, "2")):
        path.mkdir()
        (path / "environment.json").write_text(date)
    before = run_id(first)
    assert before.startswith("a-b-")
    assert run_id(first) == before
    assert run_id(first.rename(tmp_path / "d"))[-8:] == before[-8:]
    assert run_id(second)[-8:] != before[-8:]


def test_only_numbers_are_sent():
    row = {"step": 1, "a": 1, "b": 0.5, "c": None, "d": "text"}
    assert numbers(row) == {"a": 1, "b": 0.5}
    assert isinstance(Broken(), Tracker)
