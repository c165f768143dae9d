"""`accredit calibrate` from outside: a table, a run, a run asked anew."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from accredit.command.cli import main
from accredit.critics.value_head.critic import ValueHeadCritic
from accredit.runs import calibrating
from accredit.runs.calibrating import fresh_calibration
from accredit.storage.checkpoint import latest_checkpoint
from accredit.storage.run_directory import RunDirectory
from accredit.types import StopReason
from commanding import DONE, MISTAKE, joined
from runs import small_recipe

pytestmark = pytest.mark.whole_run

PROBE = Path(__file__).parents[3] / "shared" / "data" / "ac2_probe_step40.csv"
FEW = ("--evaluation.max_problems", "3")


@pytest.fixture(scope="module")
def critic_run(folder: Path) -> Path:
    """Two steps of PPO: the critic alone, then both."""
    recipe = small_recipe(
        folder,
        name="critic",
        steps=2,
        algorithm={
            "name": "ppo",
            "prompts_per_step": 6,
            "group_size": 1,
            "critic": {"learning_rate": 1e-2, "warmup_steps": 1},
        },
    )
    path = folder / "critic.json"
    path.write_text(json.dumps(recipe))
    before = Path.cwd()
    os.chdir(folder)
    with pytest.raises(SystemExit) as ended:
        main(["train", str(path)])
    os.chdir(before)
    assert ended.value.code == DONE
    return folder / "runs" / "critic"


@pytest.mark.skipif(
    not PROBE.exists(), reason="the probe is not beside this checkout (../shared/data)"
)
def test_the_probe_gives_the_papers_row(accredit):
    code, printed, _ = accredit("calibrate", PROBE, "--json")
    assert code == DONE
    found = json.loads(printed)
    keys = {"groups", "mae", "bias", "correlation", "constant_mae"}
    assert all(row.keys() == keys for row in found.values())
    assert [found[name]["groups"] for name in ("all", "f=0", "0<f<1", "f=1")] == [
        *(256, 94, 79, 83)
    ]
    assert round(found["all"]["mae"], 3) == 0.129
    assert round(found["all"]["bias"], 3) == 0.112
    code, printed, _ = accredit("calibrate", PROBE)
    assert code == DONE
    assert "0 < f < 1" in printed and "0.188" in printed


def test_a_run_is_read_and_drawn(accredit, critic_run, folder):
    code, printed, _ = accredit("calibrate", critic_run, "--plot", "figure.svg")
    assert code == DONE
    assert (folder / "figure.svg").read_text().startswith("<?xml")
    assert printed.endswith("\nplot: figure.svg\n")
    told = "Read: critic, step 2 (1 of 2 kept): 6 rollouts, each a group of its own, as"
    assert told in " ".join(printed.split())
    assert "value at the prompt; all f = 1, no reference" in printed
    every = ("calibrate", critic_run, "--json", "--last", "9")
    found = json.loads(accredit(*every)[1])
    kept = RunDirectory(critic_run).rollout_steps()
    assert found["all"]["groups"] == found["f=1"]["groups"] == 6 * len(kept) == 12
    assert found["f=0"]["mae"] is None
    assert found["all"]["mae"] > 0.0
    newest = json.loads(accredit("calibrate", critic_run, "--json")[1])
    assert newest["all"]["groups"] == 6


def test_the_saved_critic_is_asked_alone_about_fresh_rollouts(accredit, critic_run):
    code, printed, told = accredit("calibrate", critic_run, "--fresh", "--json", *FEW)
    assert code == DONE, told
    found = json.loads(printed)
    assert found["all"]["groups"] == found["f=1"]["groups"] == 3
    again = accredit("calibrate", critic_run, "--fresh", "--json", *FEW)
    assert again[1] == printed
    table = accredit("calibrate", critic_run, "--fresh", *FEW)
    assert table[0] == DONE and "90..100%" in table[1]


def test_the_values_are_the_saved_critics(critic_run, monkeypatch):
    """Whoever breaks the saved head changes the figures, and nothing else does."""
    before = fresh_calibration(critic_run, FEW)
    monkeypatch.setattr(
        ValueHeadCritic, "_unit_values", _halved(ValueHeadCritic._unit_values)
    )
    after = fresh_calibration(critic_run, FEW)
    assert before.prefixes is not None and after.prefixes is not None
    assert before.prefixes.outcomes.equal(after.prefixes.outcomes)
    assert after.prefixes.values.tolist() == pytest.approx(
        (before.prefixes.values / 2).tolist()
    )
    assert float(before.prefixes.values.abs().max()) > 0.0


def _halved(method):
    def halved(self, *arguments):
        return method(self, *arguments) / 2

    return halved


@pytest.mark.parametrize(
    ("truncation", "num_known"), [("outcome", 6), ("bootstrap", 3)]
)
def test_what_a_run_bootstraps_has_no_outcome_when_asked_anew(
    critic_run, tmp_path, monkeypatch, truncation, num_known
):
    """Of three problems, two rollouts each: one of them ran out of tokens."""
    run = RunDirectory(shutil.copytree(critic_run, tmp_path / "run"))
    recipe = run.recipe()
    recipe["algorithm"]["truncation"] = truncation
    run.rewrite_recipe(recipe)
    monkeypatch.setattr(calibrating, "rolled_out", _cut_in_half(calibrating.rolled_out))
    known = []
    real = calibrating.calibration_of
    monkeypatch.setattr(
        calibrating,
        "calibration_of",
        lambda name, found, rest: known.extend(found) or real(name, found, rest),
    )
    found = fresh_calibration(run.path, FEW)
    assert (len(known), found.num_open) == (num_known, 6 - num_known)
    assert len({rollout.group for rollout in known}) == 3


def _cut_in_half(rolled_out):
    def cut(assembly):
        groups = []
        for group in rolled_out(assembly):
            ended, left_open = group.rollouts
            ended = replace(ended, stop_reason=StopReason.STOP)
            left_open = replace(left_open, stop_reason=StopReason.LENGTH)
            groups.append(replace(group, rollouts=(ended, left_open)))
        return groups

    return cut


def test_fresh_rollouts_come_from_held_out_problems(critic_run):
    found = fresh_calibration(critic_run, ())
    assert found.name == "critic at step 2, held-out problems"
    assert found.told == (
        "critic at step 2: 4 held-out problems, 2 fresh rollouts each at "
        "temperature 1, valued by the critic of checkpoints/step-000002/critic alone: "
        "8 rollouts in 4 groups."
    )
    assert len(found.groups.mean_rewards) == 4


def test_a_run_without_parameters_in_its_critic_has_none_to_ask(
    accredit, recipe, folder
):
    words = ["train", recipe, "--name", "siblings", "--steps", "1"]
    assert accredit(*words, *FEW)[0] == DONE
    run = folder / "runs" / "siblings"
    found = json.loads(accredit("calibrate", run, "--json")[1])
    assert found["f=0"]["groups"] == found["all"]["groups"] == 3
    assert found["f=0"]["mae"] == pytest.approx(0.0, abs=1e-6)
    assert accredit("calibrate", run)[1].startswith("No critic valued these groups")
    code, printed, told = accredit("calibrate", run, "--fresh")
    assert (code, printed) == (MISTAKE, "")
    assert "--fresh needs a critic with parameters, got none in" in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["absent.csv"], "calibrate needs a run or a CSV file, got no file absent.csv"),
        (["."], "a run or a CSV file, got the folder ."),
        (["rows.jsonl"], "line 1 of rows.jsonl must name mean_reward, mean_value"),
        (["bad.csv"], "mean_value must be a finite number, got 'nan' in line 2 of bad"),
        (["empty.csv"], "empty.csv must hold a group, got a header and no rows"),
        (["good.csv", "--plot", "figure.pdf"], "must end in .png or .svg, got figure"),
        (["good.csv", "--plot", "no/figure.png"], "needs a folder that exists, got no"),
        (["good.csv", "--last", "2"], "--last goes with a run, got the table good.csv"),
        (["good.csv", "--last", "0"], "--last must be at least 1"),
        (["good.csv", "--seed", "-1"], "--seed must be at least 0, got -1"),
        (["good.csv", "--fresh"], "--fresh needs the folder of a run, got good.csv"),
        (["good.csv", "--fresh", "--last", "1"], "goes without --fresh"),
        (
            ["good.csv", "--steps", "3"],
            "takes no '--steps'; a key of the recipe goes with",
        ),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(accredit, folder, words, said):
    header = "mean_reward,mean_value,share_f,reference_shown\n"
    (folder / "good.csv").write_text(header + "1,0.5,1,0\n")
    (folder / "bad.csv").write_text(header + "1,nan,1,0\n")
    (folder / "empty.csv").write_text(header)
    code, printed, told = accredit("calibrate", *words)
    assert (code, printed) == (MISTAKE, "")
    assert said in joined("", told)
    assert len(told.splitlines()) == 1


def test_a_run_without_a_checkpoint_cannot_be_asked_anew(accredit, critic_run, folder):
    bare = RunDirectory(folder / "bare")
    bare.start(RunDirectory(critic_run).recipe(), {})
    assert latest_checkpoint(bare.checkpoints) is None
    code, _, told = accredit("calibrate", bare.path, "--fresh")
    assert code == MISTAKE
    assert "--fresh needs a whole checkpoint, got none in" in told
