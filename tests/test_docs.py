"""The pages that are written from the code say what the code says."""

import ast
import importlib.util
import json
import re
import runpy
import shlex
import string
import tomllib
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel

from accredit.command.cli import NAMES
from accredit.recipe.config import RunConfig, recipe_from, union_members
from commanding import called
from tiny_models import tiny_qwen3

pytestmark = pytest.mark.whole_run(pages=True)

ROOT = Path(__file__).parents[1]
WRITTEN = ["recipes.md", "algorithms.md"]
PAGES_WITH_LINKS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture(scope="module")
def make_docs() -> ModuleType:
    path = ROOT / "scripts" / "make_docs.py"
    spec = importlib.util.spec_from_file_location("make_docs", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text("utf-8")


@pytest.mark.parametrize("name", WRITTEN)
def test_the_page_is_what_the_script_writes_now(name, make_docs):
    texts = {path.name: text for path, text in make_docs.pages().items()}
    assert texts.keys() == set(WRITTEN)
    assert page(name) == texts[name], "run python scripts/make_docs.py"


def test_every_key_stands_on_the_page_with_its_meaning():
    text = page("recipes.md")
    for key, field in RunConfig.model_fields.items():
        models = [field.annotation]
        if field.discriminator:
            models = union_members(field)
        for model in models:
            for leaf, part in getattr(model, "model_fields", {}).items():
                if leaf != "name":
                    words = " ".join(part.description.split())
                    meaning = re.escape(words.replace("|", r"\|"))
                    assert re.search(rf"\| `{leaf}` \|.*\| {meaning} \|", text)
        if field.description:
            assert f"| `{key}` |" in text


@pytest.mark.parametrize(
    "row",
    [
        "| `steps` | whole number | `100` | ≥ 1 | Counts the steps of the run: each "
        "samples, then learns; in the first ones a critic may learn alone. |",
        "| `path` | path | *required* |  | Names the file; a relative path starts at "
        "the working directory. |",
        "| `top_p` | number | `1.0` | > 0, ≤ 1 | ",
        "| `max_gradient_norm` | number, or none | `1.0` | > 0 | ",
        "| `trackers` | list, each one of `tensorboard`, `wandb`, `trackio` | `[]` | ",
        "| `num_moves` | whole number | `20` | ≥ 1, ≤ 40 | ",
        "| `gradient_checkpointing` | `true` or `false` | `false` |  | ",
        "| `options` | table | `{}` |  | ",
    ],
)
def test_rows_read_as_a_user_would_say_it(row):
    assert f"\n{row}" in page("recipes.md")


def test_the_examples_are_valid():
    text = page("recipes.md")
    recipes = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert recipes
    for recipe in recipes:
        assert recipe_from(tomllib.loads(recipe), "the page").steps in (100, 200)
    for rows in re.findall(r"```json\n(.*?)```", text, re.DOTALL):
        assert all(
            {"question", "gold"} <= json.loads(r).keys() for r in rows.splitlines()
        )


def test_every_algorithm_has_its_box_paper_and_keys():
    text = page("algorithms.md")
    for member in union_members(RunConfig.model_fields["algorithm"]):
        name = member.model_fields["name"].default
        start = text.index(f"\n## `{name}`")
        own = text[start : text.find("\n## ", start + 1)]
        assert "```text\n" in own
        assert "https://arxiv.org/abs/" in own
        assert "Differs from the paper" in own
        for key in member.model_fields:
            assert key == "name" or f"| `{key}` |" in own, (name, key)


@pytest.mark.parametrize("page", PAGES_WITH_LINKS, ids=lambda page: page.name)
def test_every_relative_link_leads_somewhere(page):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing


FINITE = re.compile(
    r"\b(is|are|was|has|have|may|must|can|does|lies?|takes?|needs|counts|passes|stays?"
    r"|holds?|sets|keeps|[a-z]+n't)\b"
)
OPENS_WITH_A_VERB = re.compile(
    r"(?!(Tokens|Steps|Rollouts|Rows|Problems|Prefixes|Words|Samples of|Folders|Weights"
    r"|Values of|Names of|Columns|Keys|Completions|Updates|Seconds|Bins|Targets"
    r"|Continuations|Passes over) )[A-Z][a-z]+s\b(?! of\b)"
)


def is_a_sentence(text: str) -> bool:
    """Whether a comment has a verb, a capital and a full stop."""
    first = re.split(r"(?<=[.;:]) ", text)[0]
    return (
        text[0] in string.ascii_uppercase + "`"
        and text.endswith(".")
        and not re.match(r"(Of|For|In|By|That|Whom?|Whose|Which|Where) ", text)
        and bool(OPENS_WITH_A_VERB.match(text) or FINITE.search(first))
    )


def described_keys() -> dict[str, str]:
    """Every key of a recipe and every option of a command, with its comment."""
    found: dict[str, str] = {}
    waiting: list[Any] = [RunConfig]
    while waiting:
        model = waiting.pop()
        for key, field in model.model_fields.items():
            for inner in union_members(field) if field.discriminator else [field]:
                inner = getattr(inner, "annotation", inner)
                if isinstance(inner, type) and issubclass(inner, BaseModel):
                    waiting.append(inner)
            if field.description:
                text = " ".join(field.description.split())
                found[f"{model.__name__}.{key}"] = text
    tree = ast.parse((ROOT / "src/accredit/command/words.py").read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for one, other in pairwise(node.body):
                if isinstance(one, ast.AnnAssign) and isinstance(other, ast.Expr):
                    assert isinstance(other.value, ast.Constant)
                    text = " ".join(str(other.value.value).split())
                    found[f"{node.name}.{ast.unparse(one.target)}"] = text
    return found


def test_the_comment_of_every_key_and_option_is_a_sentence():
    described = described_keys()
    assert len(described) > 300
    assert [key for key, text in described.items() if not is_a_sentence(text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "Of the bootstrap.",
        "Of everything random.",
        "Tokens of the budget.",
        "Steps between checkpoints",
        "Completions a problem.",
        "Where runs go.",
        "samples this many completions.",
        "Passes over the batch.",
        "That it does not fall below.",
        "Largest multiple of chunk_length.",
        "Smallest share of the rate.",
    ],
)
def test_a_comment_without_a_verb_is_found(text):
    assert not is_a_sentence(text)


# README


MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
SHORT = ("--steps", "1", "--sampling.max_new_tokens", "8", "--evaluation.samples", "1")
"""What makes the README's run short; a resumed run may change only some of it."""


def words_of(line: str) -> list[str]:
    """The words of a line of a shell, its comment left out."""
    return shlex.split(line, comments=True)


@pytest.mark.slow
def test_the_readmes_snippets_run_in_the_order_they_stand(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    tiny_qwen3(tmp_path / "models" / "qwen3-0.6b")
    named = iter(re.findall(r"^`([\w.]+)`[^\n]*:\n\n```", README, re.MULTILINE))
    ran = []
    for language, text in BLOCKS:
        if language in ("json", "toml"):
            Path(next(named)).write_text(text * (20 if language == "json" else 1))
        elif language == "python":
            Path("snippet.py").write_text(text)
            runpy.run_path("snippet.py")
            ran.append("python")
        else:
            for line in filter(None, map(words_of, text.splitlines())):
                if line[0] == "accredit":
                    ran.append(line[1])
                    ends_well(capsys, line[1:])
                else:
                    assert line[0] == "make" and f"\n{line[1]}: " in MAKEFILE
    assert list(named) == []
    assert ran == ["train", "train", "train", "eval", "python"]
    assert {p.name for p in Path("runs").iterdir()} == {"mine", "short"}


def ends_well(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    """Calls the command, on a small budget where it trains anew."""
    if words[0] == "train" and "--resume" not in words:
        words = [*words, *SHORT]
    code, _, told = called(capsys, *words)
    assert code == 0, (words, told)


def test_the_readme_names_every_command_and_says_what_it_is_in_few_lines():
    for name in NAMES:
        assert re.search(rf"`(accredit )?{name}\b", README), name
    assert len(README.splitlines()) <= 140
    for word in ("TRL", "verl", "float32", "one GPU", "not ahead of tuned GRPO"):
        assert word in README


def test_the_readmes_recipe_is_within_ten_keys():
    (recipe,) = [text for language, text in BLOCKS if language == "toml"]
    sections = tomllib.loads(recipe)
    keys = [k for part in sections.values() if isinstance(part, dict) for k in part]
    assert len(keys) <= 10
    config = recipe_from(sections, "README.md")
    assert config.task.held_out + config.algorithm.prompts_per_step <= 20


def test_the_readmes_count_of_algorithms_is_right():
    number = len(union_members(RunConfig.model_fields["algorithm"]))
    assert f"has {number} algorithms" in " ".join(README.split())
