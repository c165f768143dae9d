"""One self-contained page for any run; completions are text, whatever they hold."""

import base64
import hashlib
import json
import re
import zlib
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from synthetic_run import ATTACK, RECIPE, decode, write_synthetic_run

from accredit.algorithms.opd import distilled_credit
from accredit.records import Credit, Record, State
from accredit.reports.environment import environment
from accredit.reports.metrics.step import step_metrics
from accredit.reports.page import report_page, run_title, with_costs, write_report
from accredit.reports.rollouts import rollout_rows
from accredit.storage.run_directory import RunDirectory

pytestmark = pytest.mark.whole_run(pages=True)

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
def page(finished_page) -> str:
    return finished_page


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
    # What it unpacks is written as text, and only ever as text.
    assert "DecompressionStream" in script
    assert not re.search(r"(inner|outer|insertAdjacent)HTML|\bwrite\(|\beval\b", script)


def test_completions_prompts_and_reasons_are_escaped(tmp_path, record, without_charts):
    run = RunDirectory(tmp_path / "run")
    run.start(RECIPE | {"task": {"name": ATTACK}}, environment())
    rows = []
    for row in rollout_rows(record, 1, decode):
        tokens = [ATTACK, '" onmouseover="alert(1)', *row["tokens"][2:]]
        rows.append(
            row
            | {"tokens": tokens, "num_prompt_tokens": 0, "prompt": ATTACK}
            | {"reason": ATTACK, "problem_id": ATTACK, "stop_reason": ATTACK}
            | {"answer": f"</template>{ATTACK}", "group": ATTACK}
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
    assert page.count("<article data-step") == 4
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


@pytest.fixture(scope="module")
def valued(trained_critic_run) -> str:
    """Its page."""
    return report_page(trained_critic_run)


@pytest.fixture
def without_charts(monkeypatch):
    """Leaves out what takes a page its time."""
    monkeypatch.setattr("accredit.reports.page._drawn", lambda *_: "")


def test_a_critic_with_parameters_shows_how_far_it_can_be_trusted(valued):
    page = valued
    assert RELIABILITY in titles(page)
    assert "Its loss" in titles(page) and "Its correction" in titles(page)
    assert Outline(page).open == []
    assert "Step 6, over all prefixes" in page
    assert "percent of the rollout" in page


def choices(page: str) -> list[str]:
    """Quantities that tokens can be coloured by."""
    return re.findall(r'name="colour" id="by-([a-z]+)"', page)


def checked(page: str) -> list[str]:
    return re.findall(r'id="by-([a-z]+)" value="[a-z]*" checked', page)


def test_the_colour_can_be_chosen_and_says_what_it_is(valued, page):
    assert {"credit", "paid", "value", "target", "ratio"} <= set(choices(valued))
    assert {"paid", "baseline"} <= set(choices(page))
    assert not {"credit", "value"} & set(choices(page))
    for shown in (valued, page):
        assert choices(shown)[-1] == "nothing"
        assert "advantage, what the policy was paid for the token" in shown
    assert "credit V(t) − V(t−1), what the token changed, in reward units" in valued


def test_credit_that_the_study_calls_noise_is_no_default(valued, page):
    for shown in (valued, page):
        assert checked(shown) == ["logprob"]
        assert 'data-preferred="logprob"' in shown
        assert "docs/credit.md" in shown


def test_a_legend_has_the_numbers_of_its_ends(tmp_path, record, without_charts):
    run = RunDirectory(tmp_path / "run")
    run.start(RECIPE, environment())
    rows = list(rollout_rows(record, 1, decode))
    for number, row in enumerate(rows):
        sign = 0.75 if number == 0 else -0.5 if number == 1 else 0.0
        row["advantages"] = [sign * sampled for sampled in row["sampled"]]
    run.write_rollouts(1, rows)
    page = report_page(run)
    # nearly all tokens carry nothing, and the scale is that of those that do
    assert "<span>−0.75</span>" in page and "<span>0.75</span>" in page
    best = re.search(r"<article.*?</article>", page, re.DOTALL)
    assert best is not None
    assert "<dt>mean advantage</dt>" in best[0] and "+0.000" not in best[0]


def test_the_page_holds_the_rollouts_of_every_kept_step(finished_run, page):
    steps = re.findall(r'<template data-step="(\d+)">([^<]*)</template>', page)
    assert [int(step) for step, _ in steps] == finished_run.rollout_steps()
    for step, blobs in steps:
        groups = [
            json.loads(zlib.decompress(base64.b64decode(blob)))
            for blob in blobs.split()
        ]
        found = [rollout["index"] for group in groups for rollout in group["rollouts"]]
        assert found == list(range(len(list(finished_run.rollouts(int(step))))))
        assert f'<option value="{step}">{step}</option>' in page
    assert "For want of room" not in page
    assert f"accredit show {finished_run.path}" in page


def test_what_has_no_room_in_the_page_is_told(
    finished_run, monkeypatch, without_charts
):
    monkeypatch.setattr("accredit.reports.embedded.MOST_CHARACTERS", 10_000)
    page = report_page(finished_run)
    assert re.search(r"For want of room \d+ of 128 rollouts of the other steps", page)
    # what stands on the page is there to be coloured
    assert page.count("<article data-step") == 4


def test_a_step_without_credit_gives_way_to_one_that_taught(
    tmp_path, record, without_charts
):
    run = RunDirectory(tmp_path / "run")
    run.start(RECIPE, environment())
    rows = list(rollout_rows(record, 1, decode))
    run.write_rollouts(1, rows)
    run.write_rollouts(2, rows)
    nothing = [row | {"advantages": [0.0] * len(row["tokens"])} for row in rows]
    run.write_rollouts(3, nothing)
    page = report_page(run)
    assert "Best of step 2" in page and "one of step 1" in page
    assert "of step 3" not in page


def test_text_stands_on_the_page_without_a_script(page, finished_run):
    article = re.search(r"<article data-step.*?</article>", page, re.DOTALL)
    assert article is not None
    index = re.search(r'data-index="(\d+)"', article[0])
    assert index is not None
    row = list(finished_run.rollouts(20))[int(index[1])]
    assert escape(row["completion"]) in article[0].replace("&#39;", "&#x27;").replace(
        "&#34;", "&quot;"
    )


def test_charts_are_drawn_for_both_widths_and_say_their_numbers(page):
    assert page.count('<div class="broad">') == page.count('<div class="narrow">') == 4
    assert page.count("data-readout=") >= 14
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert 'data-name="start"' in page


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
    assert "<dt>in</dt><dd>nats</dd>" in page


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
