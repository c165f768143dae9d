"""`accredit show`: which rollouts come, in which order, and that text stays text."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from accredit.command.show import Wanted, natural, shade, show
from accredit.recipe.config import RecipeError
from accredit.storage.run_directory import RunDirectory

REWARDS = {"p1": [0.0, 1.0, 0.5], "p2": [1.0, 1.0, 1.0], "p10": [0.0, None, 0.0]}
PAID = {"p1": [-0.5, 0.5, 0.0], "p2": [0.0] * 3, "p10": [0.25, 0.0, 0.25]}
ATTACK = "[red]x[/red]\x1b[2J\u202ea\nb"


def row(group: int, problem: str, sample: int, **changes) -> dict:
    """One prompt token and as many sampled ones as its number among siblings says."""
    size = 2 + sample + 3 * group
    pieces = ["go", *(f"{problem}.{sample}.{t} " for t in range(size))]
    return {
        "step": 1,
        "group": group,
        "problem_id": problem,
        "answer": "42",
        "prompt": "go",
        "completion": "".join(pieces[1:]),
        "tokens": pieces,
        "num_prompt_tokens": 1,
        "sampled": [0] + [1] * size,
        "values": [0.0] * (size + 2),
        "advantages": [PAID[problem][sample]] * (size + 1),
        "sampling_logprobs": [-0.5 * t for t in range(size + 1)],
        "reward": REWARDS[problem][sample],
        "shaped_reward": REWARDS[problem][sample] or 0.0,
        "reason": "out of moves" if REWARDS[problem][sample] == 0.0 else "",
        "stop_reason": "stop",
        "share_f": 0.0,
    } | changes


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    made = RunDirectory(tmp_path / "walk")
    made.start({"algorithm": {"name": "grpo"}}, {})
    rows = [row(g, p, s) for g, p in enumerate(("p10", "p1", "p2")) for s in range(3)]
    made.write_rollouts(1, rows)
    made.write_rollouts(10, [row(0, "p2", s, step=10) for s in range(2)])
    return made


def printed(run: RunDirectory, terminal: bool = False, **wanted) -> str:
    colours = "truecolor" if terminal else None
    out = Console(
        file=io.StringIO(), force_terminal=terminal, width=200, color_system=colours
    )
    assert show(run.path, Wanted(**wanted), out) == 0
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def shown(text: str) -> list[str]:
    """Problems and indices of rollouts, in their order."""
    return re.findall(r"^(p\d+)(?=  answer)|^  #(\d+)", text, re.MULTILINE)


def order(run: RunDirectory, **wanted) -> list[str]:
    found = shown(printed(run, step=1, num=9, **wanted))
    return [problem or f"#{index}" for problem, index in found]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("order", "p10 #0 #1 #2 p1 #3 #4 #5 p2 #6 #7 #8"),
        ("problem", "p1 #3 #4 #5 p2 #6 #7 #8 p10 #0 #1 #2"),
        ("reward", "p2 #6 #7 #8 p1 #4 #5 #3 p10 #0 #2 #1"),
        ("worst", "p10 #0 #2 #1 p1 #3 #5 #4 p2 #6 #7 #8"),
        ("credit", "p1 #3 #4 #5 p10 #0 #2 #1 p2 #6 #7 #8"),
        ("length", "p2 #8 #7 #6 p1 #5 #4 #3 p10 #2 #1 #0"),
    ],
)
def test_groups_and_siblings_are_sorted_together(run, sort, expected):
    assert order(run, sort=sort) == expected.split()


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        ("P1.2.", "p1 #5"),
        ("out of MOVES", "p10 #0 #2 p1 #3"),
        ("p2", "p2 #6 #7 #8"),
        ("42", "p10 #0 #1 #2 p1 #3 #4 #5 p2 #6 #7 #8"),
        ("[red]", ""),
    ],
)
def test_a_search_keeps_what_holds_the_text(run, search, expected):
    assert order(run, search=search) == expected.split()


def test_siblings_that_do_not_hold_it_are_counted(run):
    assert "2 of 3 siblings do not hold it" in printed(run, step=1, search="p1.2.")


def test_the_newest_step_is_shown_and_the_rest_is_told(run):
    text = printed(run, num=1)
    assert text.startswith("walk, step 10 of 1, 10: 1 of 1 groups\n")
    text = printed(run, step=1, num=1)
    assert "step 1 of 1, 10: 3 of 3 groups" in text
    assert text.endswith("\n2 more groups; --num 3 shows all\n")
    assert [problem for problem, _ in shown(printed(run, step=1)) if problem] == [
        "p10",
        "p1",
    ]


def test_a_rollout_says_its_reward_reason_end_length_and_credit(run):
    text = printed(run, step=1, problem="p1")
    assert (
        "  #3  0.00 · out of moves · stopped by stop · 5 tokens · advantage −0.500\n"
        "    p1.0.0 p1.0.1 p1.0.2 p1.0.3 p1.0.4 \n"
    ) in text
    assert "p1  answer 42  mean reward 0.500\n    go\n" in text
    assert "not verified" in printed(run, step=1, problem="p10")


def test_a_file_gets_plain_text_and_a_terminal_colours(run):
    assert "\x1b" not in printed(run) and "colour:" not in printed(run)
    text = printed(run, terminal=True)
    assert "colour: log-prob when it was sampled" in text.replace("\x1b[0m", "")
    # of the largest, full orange with black ink
    assert re.search(r"\x1b\[30;48;2;225;120;50m", text)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert "p2.0.0 p2.0.1" in plain
    nothing = printed(run, terminal=True, colour="nothing")
    assert "colour:" not in nothing and "48;2" not in nothing


@pytest.mark.parametrize("terminal", [True, False])
def test_what_a_policy_wrote_is_neither_markup_nor_control(tmp_path, terminal):
    run = RunDirectory(tmp_path / "odd")
    run.start({"algorithm": {"name": "grpo"}}, {})
    odd = dict.fromkeys(("problem_id", "answer", "prompt", "reason", "completion"))
    odd = dict.fromkeys(odd, ATTACK) | {"stop_reason": ATTACK}
    tokens = {"tokens": ["go", ATTACK, "", "", ""], "num_prompt_tokens": 1}
    made = row(0, "p1", 2) | odd | tokens
    size = len(tokens["tokens"])
    cut = ("sampled", "advantages", "sampling_logprobs")
    run.write_rollouts(1, [made | {key: made[key][:size] for key in cut}])
    text = re.sub(r"\x1b\[[0-9;]*m", "", printed(run, terminal))
    assert "\x1b" not in text and "\u202e" not in text
    one_line = "[red]x[/red]\\x1b[2J\\u202ea\\nb"
    assert f"{one_line}  answer {one_line}" in text
    assert f"· {one_line} · stopped by {one_line} ·" in text
    # prompt and completion keep their lines
    assert text.count("    [red]x[/red]\\x1b[2J\\u202ea") == 2


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"step": 7}, "--step must be one of 1, 10, got 7"),
        ({"problem": "p3"}, "--problem must be one of step 10, got 'p3'"),
        ({"num": 0}, "--num must be at least 1, got 0"),
        ({"colour": "red"}, "--colour must be one of credit, paid, value, .*'red'"),
    ],
)
def test_mistakes_are_told(run, wanted, said):
    with pytest.raises(RecipeError, match=said):
        show(run.path, Wanted(**wanted))


def test_a_folder_without_rollouts_says_what_to_set(tmp_path):
    with pytest.raises(RecipeError, match="needs the folder of a run, got"):
        show(tmp_path, Wanted())
    RunDirectory(tmp_path).start({}, {})
    with pytest.raises(RecipeError, match=r"checkpoint\.rollouts_every"):
        show(tmp_path, Wanted())


def test_the_command_shows_a_run(accredit, run):
    code, printed, _ = accredit("show", run.path, "--step", "1", "--sort", "worst")
    assert code == 0 and "step 1 of 1, 10: 3 of 3 groups" in printed
    code, _, told = accredit("show", run.path, "--step", "7")
    assert code == 2 and told.startswith("accredit: --step must be one of")
    code, _, told = accredit("show", run.path, "--steps", "7")
    assert code == 2


def test_faint_tokens_have_coloured_ink_and_strong_ones_a_ground():
    assert shade(0.0) == shade(-0.05) == ""
    assert shade(0.2) == "#4299d2" and shade(-0.2) == "#e17832"
    assert shade(1.0) == "black on #4299d2" and shade(-1.0) == "black on #e17832"
    # half way to white
    assert shade(0.5) == "black on #a0cce8"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["walk-10", "walk-9"], ["walk-9", "walk-10"]),
        (["b", "a1b10", "a1b2"], ["a1b2", "a1b10", "b"]),
        (["7", "x", ""], ["", "7", "x"]),
    ],
)
def test_numbers_in_names_are_ordered_as_numbers(names, expected):
    assert sorted(names, key=natural) == expected
