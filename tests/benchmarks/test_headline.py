"""The headline study counts costs, ratios and locks as it says."""

import json
import os
import time
from itertools import pairwise

import numpy as np
import pytest

from accredit.algorithms.replay_configs import AC2PlusConfig
from accredit.recipe.config import RunConfig

pytestmark = pytest.mark.whole_run


@pytest.fixture(scope="module")
def study():
    return pytest.importorskip("headline_ac2")


@pytest.fixture(scope="module")
def runs():
    return pytest.importorskip("headline_runs")


@pytest.fixture(scope="module")
def tables():
    return pytest.importorskip("headline_tables")


@pytest.fixture(scope="module")
def pages(tables):
    return pytest.importorskip("headline_pages")


def content(label, scores, *, seed=0, rate=1e-3, split="hard", every=10.0, reward=0.5):
    """A run's file: evaluations every `every` decode FLOPs, refill a tenth of them."""
    evaluations = [
        {
            "step": i,
            "decode": every * i,
            "total": 4 * every * i,
            "tokens": i,
            "wall_seconds": 9.0 * i,
            "cpu_seconds": 2.0 * i,
            "refill": every * i / 10,
            "mean": score,
        }
        for i, score in enumerate(scores)
    ]
    budget = every * (len(scores) - 1)
    decodes = [every * i for i in range(1, len(scores))]
    return {
        "study": "main",
        "split": split,
        "label": label,
        "learning_rate": rate,
        "seed": seed,
        "budget": budget,
        "recipe": {"evaluation": {"samples": 1}},
        "num_problems": 2,
        "num_held_out": 1,
        "evaluations": evaluations,
        "steps": {"decode": decodes, "reward": [reward] * len(decodes)},
        "processor": "none",
        "torch_threads": 1,
        "date": "2026-11-30T00:00:00",
    }


def test_a_curve_is_the_mean_of_two_evaluations_at_their_mean_cost(tables):
    found = tables.curve(content("grpo", [0.1, 0.3, 0.2, 0.6]))
    np.testing.assert_allclose(found.scores, [0.1, 0.2, 0.25, 0.4])
    np.testing.assert_allclose(found.costs["decode"], [0, 5, 15, 25])
    np.testing.assert_allclose(found.costs["total"], [0, 20, 60, 100])
    np.testing.assert_allclose(found.costs["seconds"], [0, 1, 3, 5])
    assert found.best == pytest.approx(0.4)


def test_the_cost_of_a_score_is_interpolated_where_it_is_first_reached(tables):
    # Scores .1, .2, .25, .4, then .3: .4 is met on the way up only.
    found = tables.curve(content("grpo", [0.1, 0.3, 0.2, 0.6, 0.0]))
    cost = tables.cost_to(0.31, found)
    # .31 lies .06 / .15 = .4 of the way from 15 to 25.
    assert cost["decode"] == pytest.approx(19.0)
    assert cost["total"] == pytest.approx(76.0)
    assert cost["seconds"] == pytest.approx(3.8)
    assert tables.cost_to(0.2, found)["decode"] == pytest.approx(5.0)
    assert tables.cost_to(0.41, found) is None
    assert tables.cost_to(0.05, found)["decode"] == pytest.approx(5.0)


def test_a_fall_before_the_rise_is_no_part_of_the_way(tables):
    # Scores .2, .1, .1, .3.
    found = tables.curve(content("grpo", [0.2, 0.0, 0.2, 0.4]))
    assert tables.cost_to(0.25, found)["decode"] == pytest.approx(15 + 7.5)


def test_a_ratio_is_the_median_over_pairs_of_seeds(tables):
    # 12/3, 12/4, 12/6, 24/3, 24/4, 24/6 = 4, 3, 2, 8, 6, 4.
    found = tables.ratio([12.0, 24.0], [3.0, 4.0, 6.0])
    assert found["median"] == pytest.approx(4.0)
    # Every draw of one seed alone is among the 4000: 12/6 and 24/3 bound the medians.
    assert 2.0 <= found["low"] < 4.0 < found["high"] <= 8.0


def test_runs_that_never_get_there_have_ratio_zero(tables):
    assert tables.ratio([12.0], [np.inf, np.inf, 3.0])["median"] == 0.0
    found = tables.ratio([12.0], [3.0, 3.0, np.inf])
    assert found["median"] == pytest.approx(4.0)
    assert found["low"] == 0.0
    assert found["high"] == pytest.approx(4.0)


@pytest.fixture(scope="module")
def made():
    """Three seeds of GRPO at two rates, and others that are twice as fast, or never."""
    scores = [0.0, 0.1, 0.2, 0.3, 0.4, 0.4, 0.4]
    fast = [0.0, 0.2, 0.4, 0.4, 0.4, 0.4, 0.4]
    never = [0.0, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]
    return [
        *(content("grpo", scores, seed=k, rate=2e-3, reward=0.7) for k in range(3)),
        # A better evaluation must not choose the rate.
        *(content("grpo", fast, seed=k, rate=3e-4, reward=0.6) for k in range(3)),
        *(content("ac2_exact", fast, seed=k) for k in range(3)),
        *(content("ac2", never if k == 2 else fast, seed=k) for k in range(3)),
        *(content("prefix_grpo", never, seed=k) for k in range(3)),
        content("ac2", fast, split="easy"),
    ]


def test_the_summary_by_hand(tables, made):
    found = tables.summary(made)
    assert list(found) == ["hard"], "a split without GRPO has no target"
    hard = found["hard"]
    assert list(hard) == [
        "grpo",
        "prefix_grpo",
        "ac2",
        "ac2_exact",
        "exact_no_refill_cost",
    ]
    # GRPO's curve is .35 at 35 and .4 at 45.
    grpo, exact, ac2 = hard["grpo"], hard["ac2_exact"], hard["ac2"]
    assert grpo["learning_rate"] == 2e-3
    assert grpo["target"] == grpo["best"] == pytest.approx(0.4)
    assert grpo["ratio_decode"] == {"median": 1.0, "low": 1.0, "high": 1.0}
    assert grpo["ratio_decode_of_mean_curves"] == 1.0
    # The others' curve is .3 at 15 and .4 at 25.
    for ledger in ("decode", "total", "seconds"):
        assert exact[f"ratio_{ledger}"]["median"] == pytest.approx(45 / 25, rel=1e-4)
    assert exact["reached"] == exact["seeds"] == 3
    assert ac2["reached"] == 2 and ac2["seeds"] == 3
    assert ac2["ratio_decode"]["median"] == pytest.approx(45 / 25, rel=1e-4)
    assert ac2["ratio_decode"]["low"] == 0.0
    assert ac2["best"] == pytest.approx((0.4 + 0.4 + 0.1) / 3, abs=1e-5)
    # .2 is reached at 20 and at 10; half of 55 is a quarter of the way from .25 to .35.
    assert grpo["ratio_decode_half"]["median"] == pytest.approx(1.0)
    assert exact["ratio_decode_half"]["median"] == pytest.approx(20 / 10, rel=1e-4)
    assert grpo["at_half_budget"] == pytest.approx(0.25 + 0.25 * 0.1, abs=1e-5)
    assert exact["at_half_budget"] == pytest.approx(0.4)
    prefix = hard["prefix_grpo"]
    assert prefix["reached"] == 0
    assert prefix["ratio_decode"] == {"median": 0.0, "low": 0.0, "high": 0.0}
    assert prefix["ratio_decode_of_mean_curves"] == 0.0


def test_a_free_refill_is_taken_off_decoding_and_off_the_total(tables, made):
    hard = tables.summary(made)["hard"]
    free = hard["exact_no_refill_cost"]
    # 22.5 decoded and 97.5 in total, in place of 25 and 100.
    assert free["ratio_decode"]["median"] == pytest.approx(45 / 22.5, rel=1e-4)
    assert free["ratio_total"]["median"] == pytest.approx(180 / 97.5, rel=1e-4)
    assert free["ratio_seconds"] == hard["ac2_exact"]["ratio_seconds"]


def test_grpo_runs_that_miss_their_mean_count_what_they_spent(tables):
    low, high = [0.0, 0.2, 0.2, 0.2], [0.0, 0.4, 0.4, 0.4]
    found = tables.summary(
        [
            content("grpo", low, seed=0),
            content("grpo", high, seed=1),
            content("ac2", high, seed=0),
        ]
    )["hard"]
    assert found["grpo"]["target"] == pytest.approx(0.3)
    assert found["grpo"]["reached"] == 1
    assert found["grpo"]["ratio_decode"]["median"] == pytest.approx(1.0, abs=1e-5)
    # .3 lies halfway from (5, .2) to (15, .4); the other seed has spent 25.
    expected = (25 / 10 + 10 / 10) / 2
    assert found["ac2"]["ratio_decode"]["median"] == pytest.approx(expected, rel=1e-3)


def test_the_summary_is_what_the_issue_asks_for(pages, made, tmp_path, monkeypatch):
    folder = tmp_path / "headline_ac2"
    for i, run in enumerate(made):
        path = folder / run["split"] / f"{i}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(run))
    (folder / "hard" / ".torn.json.77").write_text("{")
    (folder / "hard" / "x.json.lock").write_text("")
    monkeypatch.setattr(pages, "RESULTS", tmp_path)
    monkeypatch.setattr(pages, "IMAGES", tmp_path)
    pages.summarise(folder)
    text = (tmp_path / "headline_ac2.json").read_text()

    def refuse(word):
        raise AssertionError(word)

    found = json.loads(text, parse_constant=refuse)
    for entries in found.values():
        for entry in entries.values():
            assert isinstance(entry["seeds"], int) and isinstance(entry["best"], float)
            for ledger in ("decode", "total", "seconds"):
                ratio = entry[f"ratio_{ledger}"]
                assert list(ratio) == ["median", "low", "high"]
                assert ratio["low"] <= ratio["median"] <= ratio["high"]
    assert (tmp_path / "headline_ac2.png").read_bytes()[:4] == b"\x89PNG"


def test_tables_name_what_the_parts_cost(pages, tables, made, capsys):
    pages.print_tables(made, tables.summary(made))
    printed = capsys.readouterr().out
    assert "| prefix_grpo | 3 | 0.001 |" in printed
    assert "| grpo | 0.0003 | 0.002 |" in printed
    assert "| refill (exact_no_refill_cost) | 2.22 [2.22, 2.22] |" in printed
    assert "1.11 |" in printed


def test_no_runs_are_refused(pages, tmp_path):
    with pytest.raises(SystemExit, match="make some first"):
        pages.summarise(tmp_path)


def test_every_run_has_a_valid_recipe(runs):
    found = list(runs.all_runs())
    assert len({(run.split, run.name) for run in found}) == len(found)
    for run in found:
        if run.seed == 0:
            assert isinstance(run.config(), RunConfig)
    assert {run.label for run in found} == set(runs.CONFIGS)


def test_studies_have_the_seeds_and_rates_that_are_asked_for(runs):
    found = list(runs.all_runs())
    for split in ("easy", "hard", "very_hard", "partial"):
        main = [run for run in found if run.study == "main" and run.split == split]
        for label in runs.STUDIES["main"].labels:
            seeds = {run.seed for run in main if run.label == label}
            assert len(seeds) >= 5
        assert len({run.rate for run in main if run.label == "grpo"}) >= 4
    ablations = [run for run in found if run.study == "ablations"]
    assert {run.seed for run in ablations} == {0, 1, 2}
    assert [run.seed for run in found] == sorted(run.seed for run in found)


def test_each_label_differs_from_the_others(runs):
    recipes = {}
    for label in runs.CONFIGS:
        run = runs.Run("main", "hard", label, 1e-3, 0)
        recipes.setdefault(run.config().model_dump_json(), []).append(label)
    assert all(len(labels) == 1 for labels in recipes.values())


def test_a_split_says_how_the_critic_is_asked(runs):
    partial = runs.Run("main", "partial", "ac2_plus", 1e-3, 0).config()
    assert partial.task.reward == "progress"
    assert isinstance(partial.algorithm, AC2PlusConfig)
    assert partial.algorithm.critic.template == "compact_progress"
    assert partial.algorithm.gate.revocable
    hard = runs.Run("main", "hard", "ac2_plus", 1e-3, 0).config()
    assert hard.algorithm.critic.template == "compact"
    exact = runs.Run("main", "partial", "ac2_exact", 1e-3, 0).config()
    assert exact.algorithm.critic.kind == "exact"


def test_a_lock_is_held_by_one(study, tmp_path):
    lock = tmp_path / "run.json.lock"
    with study.claimed(lock) as beat:
        assert beat is not None and lock.exists()
        with study.claimed(lock) as other:
            assert other is None
        assert lock.exists()
        os.utime(lock, (0, time.time() - 1000))
        beat()
        assert time.time() - lock.stat().st_mtime < 100
    assert list(tmp_path.iterdir()) == []


def test_a_stale_lock_is_taken_over_and_not_given_back_by_its_old_holder(
    study, tmp_path
):
    lock = tmp_path / "run.json.lock"
    first = study.claimed(lock)
    beat = first.__enter__()
    past = time.time() - study.STALE_LOCK_S - 60
    os.utime(lock, (past, past))
    with study.claimed(lock) as other:
        assert other is not None
        os.utime(lock, (past, past))
        beat()
        assert lock.stat().st_mtime == pytest.approx(past, abs=1)
        first.__exit__(None, None, None)
        assert lock.exists()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_let_go_where_a_run_fails(study, tmp_path):
    lock = tmp_path / "run.json.lock"
    with pytest.raises(RuntimeError, match="broken"), study.claimed(lock):
        raise RuntimeError("broken")
    assert not lock.exists()


def test_what_is_there_is_not_run_again(study, runs, tmp_path, monkeypatch):
    run = runs.Run("main", "hard", "grpo", 6e-4, 3)
    calls = []

    def finished(run, budget, samples, beat):
        calls.append((budget, samples))
        beat()
        return {"recipe": run.recipe(samples), "evaluations": [LAST]}

    monkeypatch.setattr(study, "finished", finished)
    assert study.ensured(tmp_path, run, 7e9, 2).startswith("0.250 after 4 steps, 9 G")
    assert calls == [(7e9, 2)]
    path = tmp_path / "hard" / "grpo-lr0.0006-seed3.json"
    assert study.file_of(tmp_path, run) == path
    found = json.loads(path.read_text())
    assert found["versions"]["accredit"] and found["date"] and found["processor"]
    assert study.ensured(tmp_path, run, 7e9, None) == "is there"
    monkeypatch.setitem(runs.CONFIGS["grpo"], "algorithm.clip_low", 0.1)
    assert "ANOTHER RECIPE" in study.ensured(tmp_path, run, 7e9, None)
    path.unlink()
    with study.claimed(study.lock_of(path)):
        said = study.ensured(tmp_path, run, 7e9, None)
    assert said == "is being made by another process"
    assert len(calls) == 1
    assert [p.name for p in path.parent.iterdir()] == []


LAST = {"mean": 0.25, "step": 4, "decode": 9e9, "cpu_seconds": 1.0}


def test_a_failing_run_leaves_no_file(study, runs, tmp_path, monkeypatch):
    def finished(run, budget, samples, beat):
        raise RuntimeError("diverged")

    monkeypatch.setattr(study, "finished", finished)
    run = runs.Run("main", "easy", "ac2", 1e-3, 0)
    with pytest.raises(RuntimeError, match="diverged"):
        study.ensured(tmp_path, run, 1e9, 1)
    assert list((tmp_path / "easy").iterdir()) == []


def test_filters_meet(study, monkeypatch):
    line = "--splits hard easy --labels grpo ac2 --seeds 1 --rates 0.001 0.0005"
    monkeypatch.setattr("sys.argv", ["headline_ac2.py", *line.split()])
    found = study.wanted(study.parsed())
    assert {(r.split, r.label, r.rate, r.seed) for r in found} == {
        (split, label, rate, 1)
        for split in ("hard", "easy")
        for label, rate in (("grpo", 1e-3), ("ac2", 5e-4))
    }


@pytest.mark.parametrize("label", ["prefix_grpo", "ac2"])
def test_a_run_records_what_it_spent(runs, tables, monkeypatch, label):
    monkeypatch.setattr(runs, "BASE", runs.BASE.replace("= 16", "= 2"))
    beats = []
    small = {"algorithm.num_refill": 4, "algorithm.replay_capacity": 5}
    monkeypatch.setitem(runs.CONFIGS, label, runs.CONFIGS[label] | small)
    run = runs.Run("main", "easy", label, 1e-3, 0)
    found = runs.finished(run, 6e9, 1, lambda: beats.append(1))
    rows, steps = found["evaluations"], found["steps"]
    assert rows[0]["decode"] == 0 and rows[0]["step"] == 0
    assert rows[-1]["decode"] >= 6e9 > steps["decode"][-2]
    assert rows[-1]["decode"] == steps["decode"][-1]
    assert rows[-1]["refill"] == steps["refill"][-1]
    # Four of twenty rollouts are the refill's.
    assert 0.1 < rows[-1]["refill"] / rows[-1]["decode"] < 0.4
    assert all(reward in (0, 0.25, 0.5, 0.75, 1) for reward in steps["reward"])
    assert len(set(steps["reward"])) > 1
    for key in ("decode", "total", "cpu_seconds", "wall_seconds"):
        assert all(a[key] < b[key] for a, b in pairwise(rows))
    assert rows[-1]["total"] > rows[-1]["decode"]
    assert len(beats) >= len(steps["decode"])
    assert (steps["ready"][0] is None) == (label == "prefix_grpo")
    json.dumps(found, allow_nan=False)
    assert tables.curve(found).spent["decode"] < rows[-1]["decode"]
