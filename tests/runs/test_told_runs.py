"""A run says what is wrong with it: once, and the worst once more when it ends."""

import pytest

from accredit.algorithms.ac2.alarms import AC2_ALARMS
from accredit.runs import session
from accredit.runs.session import resume_training, start_training
from runs import small_config, written_files

pytestmark = pytest.mark.whole_run(pages=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return written_files(tmp_path_factory.mktemp("told"))


@pytest.fixture(autouse=True)
def _working_directory(folder, monkeypatch):
    monkeypatch.chdir(folder)


def count(text: str, words: str) -> int:
    """Wrapped lines are one."""
    return " ".join(text.split()).count(words)


def test_a_broken_critic_and_missing_rewards_are_told(folder, monkeypatch, capsys):
    """A critic without a valid answer; an evaluation whose best policy is unscorable.

    Means of the valid samples .2, 1, .6, .5, .9; of all samples .2, .25, .6, .5, .4.
    """
    partial, whole = iter([0.2, 1.0, 0.6, 0.5, 0.9]), iter([0.2, 0.25, 0.6, 0.5, 0.4])
    monkeypatch.setattr(
        "accredit.reports.evaluation.EvalResult.metrics",
        lambda self: {"eval/mean": next(partial), "eval/mean_all": next(whole)},
    )
    honest = session.step_metrics
    broken = {"ac2/invalid_share": 1.0, "policy/clip_share": 0.9}
    monkeypatch.setattr(
        session, "step_metrics", lambda *args, **keys: honest(*args, **keys) | broken
    )
    monkeypatch.setattr(session, "alarms_of", lambda *_: AC2_ALARMS)
    changes = {
        "evaluation": {"every": 1, "samples": 1},
        "checkpoint": {"every": 1, "keep_last": 1},
    }
    run, _ = start_training(small_config(folder, name="told", **changes))
    text = capsys.readouterr().out
    # Once when it happens; again at the end, and nothing else.
    assert count(text, "critic's answers or more were no number on its grid") == 2
    assert count(text, "algorithm.critic.template") == 2
    assert count(text, "leaves out samples without a reward") == 1
    assert count(text, "step 1 evaluation 1.000, over all samples 0.250") == 1
    assert "evaluation mean, all" in text
    # Four steps are not enough for the patient ones.
    assert "were clipped" not in text
    assert count(text, "1 other warning of the run: see its page") == 1
    page = (run.path / "report.html").read_text("utf-8")
    assert len(page) > 10_000
    assert page.count("leaves out samples without a reward") == 1
    # Step 1 has the best mean of what was valid, step 2 that of all.
    kept = sorted(path.name for path in run.checkpoints.iterdir())
    assert kept == ["step-000002", "step-000004"]

    partial, whole = iter([0.5] * 2), iter([0.4] * 2)
    monkeypatch.setattr(
        "accredit.reports.evaluation.EvalResult.metrics",
        lambda self: {"eval/mean": next(partial), "eval/mean_all": next(whole)},
    )
    resume_training(run.path, ["--steps", "6"])
    again = capsys.readouterr().out
    # What was told before is not told anew; the fifth step of the streak is new.
    assert count(again, "no number on its grid") == 1
    assert count(again, "leaves out samples") == 0
    assert count(again, "steps 1-5 (5 steps): more than 30% of the tokens were") == 1
