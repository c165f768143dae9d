"""One self-contained page for any run; completions are text, whatever they hold."""

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from synthetic_run import ATTACK, RECIPE, decode, write_synthetic_run

from accredit.algorithms.opd import distilled_credit
from accredit.records import Credit, Record, State
from accredit.reports.environment import environment
from accredit.reports.metrics import step_metrics
from accredit.reports.page import report_page, run_title, with_costs, write_report
from accredit.reports.rollouts import rollout_rows
from accredit.reports.run_directory import RunDirectory

RELIABILITY = "How far its values can be trusted"
VOID = {"meta", "input", "br", "link", "img"}
SVG_LEAVES = {"path", "use", "rect"}


class Outline(HTMLParser):
    """Tags, attributes and scripts, as a browser would see them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.scripts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_startendtag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)


@pytest.fixture(scope="module")
def page(finished_run) -> str:
    return report_page(finished_run)


def test_the_page_is_balanced_html(page):
    assert Outline(page).open == []
    assert page.startswith("<!doctype html>")


def test_nothing_is_loaded_from_elsewhere(page):
    outline = Outline(page)
    for tag, name, value in outline.attributes:
        if name in ("src", "srcset", "data", "action"):
            pytest.fail(f"{tag} loads {value}")
        if name in ("href", "xlink:href"):
            assert value is not None and value.startswith("#")
    assert "@import" not in page
    assert not re.findall(r"url\((?!#)", page)


def test_only_the_pages_own_script_may_run(page):
    (script,) = Outline(page).scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = "default-src 'none'; style-src 'unsafe-inline'; "
    assert f"{policy}script-src 'sha256-{digest}'" in page
    assert not [a for a in Outline(page).attributes if a[1].startswith("on")]


def test_completions_prompts_and_reasons_are_escaped(tmp_path, record):
    run = RunDirectory(tmp_path / "run")
    run.start(RECIPE | {"task": {"name": ATTACK}}, environment())
    rows = []
    for row in rollout_rows(record, 1, decode):
        tokens = [ATTACK, '" onmouseover="alert(1)', *row["tokens"][2:]]
        rows.append(
            row
            | {"tokens": tokens, "num_prompt_tokens": 0, "prompt": ATTACK}
            | {"reason": ATTACK, "problem_id": ATTACK, "stop_reason": ATTACK}
        )
    run.write_rollouts(1, rows)
    page = report_page(run)
    assert ATTACK not in page
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;" in page
    outline = Outline(page)
    assert len(outline.scripts) == 1
    assert not [a for a in outline.attributes if a[1].startswith("on")]


def test_the_page_shows_what_the_run_did(page, finished_run):
    last = finished_run.evaluations()[-1]
    assert "grpo on walk / hard" in page
    assert f"<strong>{last['eval/mean']:.3f}</strong>" in page
    assert "evaluation mean@4" in page
    assert (
        f"accredit train {finished_run.path}/recipe.json --name walk-grpo-again" in page
    )
    assert page.count("<article>") == 4
    assert page.count('<figure class="panel">') == 3
    assert "Best of step 20" in page and "one of step 1" in page


def titles(page: str) -> list[str]:
    return re.findall(r"<h3>([^<]*)</h3>", page)


def test_every_critic_has_its_panels(page):
    assert "The critic, step by step" in page
    expected = ["Foresight", "Error", "Credit a token", "Large credits"]
    assert [title for title in titles(page) if title in expected] == expected
    # grpo's critic has no values of its own whose reliability could be asked
    assert RELIABILITY not in titles(page)


@pytest.fixture(scope="module")
def trained_critic_run(tmp_path_factory) -> RunDirectory:
    path = tmp_path_factory.mktemp("runs") / "walk-pact"
    algorithm = {"name": "pact", "critic": {"template": ""}}
    return write_synthetic_run(path, num_steps=6, algorithm=algorithm)


def test_a_critic_with_parameters_shows_how_far_it_can_be_trusted(trained_critic_run):
    page = report_page(trained_critic_run)
    assert RELIABILITY in titles(page)
    assert "Its loss" in titles(page) and "Its correction" in titles(page)
    assert Outline(page).open == []
    assert "Step 6, over all prefixes" in page
    assert "percent of the rollout" in page


def test_both_colourings_can_be_chosen_where_a_critic_valued(trained_critic_run, page):
    valued = report_page(trained_critic_run)
    assert 'id="by-credit" checked' in valued and 'id="by-advantage"' in valued
    assert "credit V(t) − V(t−1), what the token changed, in reward units" in valued
    assert "advantage, what the policy was paid for the token<" in valued
    assert ";--c:" in valued
    assert "advantage, what the policy was paid for the token<" in page
    assert 'id="by-credit"' not in page and ";--c:" not in page


def teacher_run(folder: Path, record: Record) -> RunDirectory:
    """One step that a teacher paid, with nothing valued."""
    record = replace(
        record,
        values=torch.zeros_like(record.values),
        credit=Credit(record.credit.advantages, unit="nats"),
        critic=None,
        change=None,
        valued_by_critic=False,
    )
    run = RunDirectory(folder / "taught")
    run.start(RECIPE, environment())
    run.append_metrics(step_metrics(record, State(step=1)))
    run.write_rollouts(1, rollout_rows(record, 1, decode))
    return run


def test_what_a_teacher_pays_is_in_nats(record):
    nothing = torch.zeros(record.batch.token_ids.shape)
    assert distilled_credit(record.batch, nothing, nothing).unit == "nats"
    units = {row["advantage_unit"] for row in rollout_rows(record, 1, decode)}
    assert units == {"reward"}


def test_where_nothing_was_valued_no_critic_is_shown(tmp_path, record):
    run = teacher_run(tmp_path, record)
    page = report_page(run)
    assert "The critic, step by step" not in page and "Foresight" not in titles(page)
    assert "critic explained variance" not in page
    assert "what the policy was paid for the token, in nats" in page


def test_steps_of_the_critic_alone_are_told(tmp_path, record):
    run = RunDirectory(tmp_path / "warm")
    run.start(RECIPE, environment())
    for step in (1, 2, 3):
        row = step_metrics(record, State(step=step))
        run.append_metrics(row | ({"count/critic_only_steps": 1} if step < 3 else {}))
    page = report_page(run)
    assert page.count("In 2 steps, shaded, the critic learned alone.") == 2
    assert "<dd>2</dd><dt>steps of the critic alone</dt>" in page


def test_the_command_works_where_the_run_was_started(tmp_path):
    run = RunDirectory(tmp_path / "some runs" / "walk-pact")
    run.start(RECIPE | {"runs_folder": "my runs"}, environment())
    told = (
        "accredit train &#39;my runs/walk-pact/recipe.json&#39; --name walk-pact-again"
    )
    assert told in report_page(run)


def test_a_page_without_critic_rows_has_no_critic_section(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.start(RECIPE, environment())
    run.append_metrics({"step": 1, "reward/mean": 0.5})
    assert "The critic, step by step" not in report_page(run)


def test_rollouts_without_a_verified_one_leave_the_page_whole(tmp_path, record):
    run = RunDirectory(tmp_path / "run")
    run.start(RECIPE | {"algorithm": {"name": "ppo", "critic": {}}}, environment())
    run.append_metrics(step_metrics(record, State(step=1)))
    rows = rollout_rows(record, 1, decode)
    run.write_rollouts(1, (row | {"reward": None} for row in rows))
    page = report_page(run)
    assert "Foresight" in titles(page) and RELIABILITY not in titles(page)


def test_secrets_of_a_recipe_stay_out_of_the_page(page):
    assert "do-not-show" not in page
    assert "wandb_api_key" in page


def test_warnings_stand_on_the_page(tmp_path):
    run = RunDirectory(tmp_path / "dead")
    run.start(RECIPE, environment())
    for step in range(1, 7):
        run.append_metrics(
            {"step": step, "length/truncated_share": 1.0, "reward/mean": 0.0}
        )
    page = report_page(run)
    assert "1 warning</h2>" in page
    assert "every rollout ran out of tokens" in page


@pytest.mark.parametrize("num_steps", [0, 1])
def test_a_run_that_has_hardly_begun_has_a_page(tmp_path, num_steps):
    run = RunDirectory(tmp_path / "young")
    run.start({}, {})
    for step in range(1, num_steps + 1):
        run.append_metrics({"step": step, "reward/mean": 0.5, "time/a_s": 1.0})
    page = report_page(run)
    assert "No evaluation has been written yet." in page
    assert Outline(page).open == []


def test_one_evaluation_is_shown_without_a_change(tmp_path):
    run = RunDirectory(tmp_path / "one")
    run.start(RECIPE, environment())
    run.append_evaluation({"step": 0, "eval/mean": 0.25})
    page = report_page(run)
    assert "One evaluation so far." in page
    assert "<strong>0.250</strong>" in page


def test_the_report_replaces_the_old_one_whole(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.start(RECIPE, environment())
    path = write_report(run)
    first = path.read_text(encoding="utf-8")
    run.append_metrics({"step": 1, "reward/mean": 0.5})
    assert write_report(run).read_text(encoding="utf-8") != first
    assert [p.name for p in run.path.glob("report*")] == ["report.html"]


def test_titles_come_from_whatever_the_recipe_holds():
    assert run_title(RECIPE) == "grpo on walk / hard"
    assert run_title({"algorithm": "ppo", "task": {"name": "chain"}}) == "ppo on chain"
    assert run_title({}) == "a run"


def test_evaluations_take_their_costs_from_the_same_step():
    metrics = [{"step": 5, "flops/decode": 7.0, "tokens/generated": 3}]
    rows = with_costs([{"step": 0}, {"step": 5, "flops/decode": 8.0}], metrics)
    assert rows[0] == {"step": 0, "flops/decode": 0, "tokens/generated": 0}
    assert rows[1] == {"step": 5, "flops/decode": 8.0, "tokens/generated": 3}
