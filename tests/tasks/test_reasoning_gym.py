"""Data sets of reasoning-gym, and its scorers behind a wall."""

import inspect
import json
import re
import subprocess
import sys

import pytest
import torch

import accredit.tasks.reasoning_gym as gym
from accredit.tasks.gym_worker import EVALUATED, PARSED, Worker, answered, is_plain
from accredit.tasks.reasoning_gym import (
    ReasoningGymVerifier,
    final_answer,
    known_data_sets,
    load_reasoning_gym,
)
from accredit.types import Message, Problem, Prompt, Rollout, StopReason

package = pytest.importorskip("reasoning_gym")

QUICK = ("chain_sum", "spiral_matrix", "countdown", "polynomial_multiplication")


RealProcess = gym._Process


@pytest.fixture(scope="module", autouse=True)
def shared_process():
    """One process for all tests, since each takes a second to start."""
    process = RealProcess()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gym, "_Process", lambda: process)
        patch.setattr(process, "end", lambda: None)
        yield
    process.end()


@pytest.fixture
def verifier():
    return ReasoningGymVerifier(timeout_s=5.0)


def rollout(problem: Problem) -> Rollout:
    return Rollout(
        prompt=Prompt(problem, (1,)),
        token_ids=torch.tensor([1, 2]),
        sampled=torch.tensor([False, True]),
        sampling_logprobs=torch.tensor([0.0, -1.0]),
        stop_reason=StopReason.STOP,
    )


def only(name: str, **options) -> Problem:
    (problem,) = load_reasoning_gym(name, size=1, seed=0, **options).problems
    return problem


def test_problems_are_a_function_of_name_seed_and_split():
    problems = load_reasoning_gym("chain_sum", size=20, seed=1).problems
    assert problems == load_reasoning_gym("chain_sum", size=20, seed=1).problems
    assert len({problem.id for problem in problems}) == 20
    assert {problem.split for problem in problems} == {"train"}
    texts = {problem.messages[0].content for problem in problems}
    longer = load_reasoning_gym("chain_sum", size=40, seed=1).problems
    assert [p.messages for p in longer[:20]] == [p.messages for p in problems]
    for other in ({"seed": 2}, {"seed": 1, "split": "test"}):
        others = load_reasoning_gym("chain_sum", size=20, **other).problems
        shared = texts & {problem.messages[0].content for problem in others}
        assert len(shared) < 5


@pytest.mark.parametrize("name", ["polynomial_multiplication", "codeio"])
def test_a_problem_depends_on_nothing_but_its_seed(name, monkeypatch):
    """In the package, these two also follow the hash seed and global generators."""
    first = load_reasoning_gym(name, size=8, seed=0).problems
    monkeypatch.setattr(gym, "_Process", RealProcess)
    monkeypatch.setenv("PYTHONHASHSEED", "17")
    assert load_reasoning_gym(name, size=8, seed=0).problems == first


def test_metadata_are_json_and_enough_to_make_the_problem_again(verifier):
    problem = only("chain_sum", config={"min_terms": 3, "max_terms": 3})
    copied = json.loads(json.dumps(dict(problem.metadata)))
    again = Problem(problem.id, problem.messages, problem.answer, metadata=copied)
    assert verifier.verdict(again, problem.answer).reward == 1.0
    assert (
        problem.messages[0].content.count("+")
        + problem.messages[0].content.count(" - ")
        == 2
    )


def test_gold_answers_score_one_and_wrong_ones_do_not(verifier):
    for name in QUICK:
        problems = load_reasoning_gym(name, size=3, seed=5).problems
        assert verifier.gold_faults(problems) == {}
        wrong = verifier.verdict(problems[0], "no such answer")
        assert wrong.reward is not None
        assert wrong.reward < 0.5


def test_gold_faults_name_a_problem_whose_answer_is_wrong(verifier):
    problem = only("gcd")
    spoiled = Problem(problem.id, problem.messages, "x", metadata=problem.metadata)
    faults = verifier.gold_faults([problem, spoiled])
    assert list(faults) == [problem.id]


def test_data_sets_without_a_single_answer_have_none(verifier):
    problem = only("graph_color")
    assert problem.answer is None
    assert verifier.gold_faults([problem]) == {}
    wrong = verifier.verdict(problem, "{}").reward
    assert wrong is not None
    assert wrong < 0.5


def test_a_completion_is_scored_by_its_final_answer(verifier):
    problem = only("chain_sum")
    gold = str(problem.answer)
    completions = [
        rf"So it is \boxed{{{gold}}}.",
        f"I think.\n<answer> {gold} </answer> Done.",
        f" {gold}\n",
        r"\boxed{x}",
        "",
    ]
    items = [(problem, text, rollout(problem)) for text in completions]
    rewards = [verdict.reward for verdict in verifier.verify(items)]
    assert rewards == [1.0, 1.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        (r"\boxed{1} then \boxed{2}", "2"),
        ("<answer>1</answer><answer>2</answer>", "2"),
        (r"<answer>\boxed{3}</answer>", "3"),
        (r"<answer>4</answer> or \boxed{5}", "4"),
        ("<answer>6</answer> <answer>7", "6"),
        ("<answer>8", "<answer>8"),
        ("9</answer>", "9</answer>"),
        ("<answer>\n1 2\n3 4\n</answer>", "1 2\n3 4"),
        (" plain ", "plain"),
        ("", ""),
    ],
)
def test_the_final_answer_is_tag_then_box_then_all(completion, answer):
    assert final_answer(completion) == answer


def test_an_unknown_name_lists_the_known_and_the_nearest():
    assert len(known_data_sets()) > 100
    with pytest.raises(ValueError, match=r"'chian_sum'; did you mean 'chain_sum'\?"):
        load_reasoning_gym("chian_sum", size=1, seed=0)
    with pytest.raises(ValueError, match=r"'min_term'; did you mean 'min_terms'\?"):
        load_reasoning_gym("chain_sum", size=1, seed=0, config={"min_term": 2})
    with pytest.raises(ValueError, match=r"got 'seed'; .*known: "):
        load_reasoning_gym("chain_sum", size=1, seed=0, config={"seed": 2})


def test_options_that_the_data_set_refuses_are_one_clear_error():
    with pytest.raises(ValueError, match=r"options must suit .*chain_sum, got .*min_t"):
        load_reasoning_gym(
            "chain_sum", size=1, seed=0, config={"min_terms": 5, "max_terms": 2}
        )
    with pytest.raises(ValueError, match="size must be >= 1, got 0"):
        load_reasoning_gym("chain_sum", size=0, seed=0)


def test_a_composite_is_made_and_scored_from_plain_options(verifier):
    parts = [
        {"name": "gcd", "weight": 1.0, "config": {}},
        {"name": "lcm", "weight": 1.0, "config": {}},
    ]
    loaded = load_reasoning_gym("composite", 6, 0, config={"datasets": parts})
    assert verifier.gold_faults(loaded.problems) == {}


def test_nothing_is_printed(capfd, verifier):
    problem = only("bf")
    assert verifier.verdict(problem, problem.answer).reward == 1.0
    assert capfd.readouterr() == ("", "")


def test_a_scorer_that_raises_gives_no_reward_and_a_reason(verifier):
    verdict = verifier.verdict(only("prime_factorization"), "two times three")
    assert verdict.reward is None
    assert "the scorer failed: ValueError" in verdict.reason


def test_a_problem_of_another_task_gives_no_reward(verifier):
    stranger = Problem("x", (Message("user", "x"),), "1")
    assert verifier.verdict(stranger, "1").reason == "not a problem of reasoning-gym"


def test_a_hanging_scorer_is_killed_and_the_next_answer_is_scored(monkeypatch):
    problem = only("puzzle24")
    monkeypatch.setattr(gym, "_Process", RealProcess)
    impatient = ReasoningGymVerifier(timeout_s=0.5)
    verdict = impatient.verdict(problem, "9**9**9**9")
    assert verdict.reward is None
    assert verdict.reason == "the scorer gave no answer within 0.5 s of CPU time"
    assert impatient.verdict(problem, problem.answer).reward == 1.0
    impatient.close()
    impatient.close()


@pytest.mark.parametrize(
    ("replies", "reward"),
    [
        ([None, {"score": 1.0}, None], 0.0),
        ([{"error": "ValueError"}, {"score": 1.0}, {"error": "ValueError"}], 0.0),
        ([{"score": float("nan")}, {"score": 1.0}, {"score": float("nan")}], 0.0),
        ([None, {"score": 1.0}, {"score": 0.5}], 0.5),
        ([None, None], None),
        ([{"error": "MemoryError"}, {"error": "MemoryError"}], None),
    ],
)
def test_an_answer_is_to_blame_where_the_gold_answer_has_a_score(
    verifier, monkeypatch, replies, reward
):
    problem, left = only("gcd"), iter(replies)
    monkeypatch.setattr(verifier, "_scored", lambda place, answer: next(left))
    (verdict,) = verifier.verify([(problem, "1", rollout(problem))])
    assert verdict.reward == reward
    assert bool(verdict.reason) is (reward != 0.5)
    assert next(left, "all asked") == "all asked"


def test_timeouts_must_be_positive():
    with pytest.raises(ValueError, match="timeout_s must be > 0, got 0"):
        ReasoningGymVerifier(timeout_s=0.0)


def test_a_score_that_is_no_number_is_no_reward(verifier, monkeypatch):
    problem = only("gcd")
    nan = {"score": float("nan")}
    monkeypatch.setattr(verifier, "_scored", lambda place, answer: nan)
    verdict = verifier.verdict(problem, "1")
    assert verdict.reward is None
    assert verdict.reason == "the scorer gave nan"


@pytest.mark.parametrize("score", [None, True, 1, "1.0", [1.0], {}, 1e300])
def test_a_score_of_another_shape_is_no_reward(verifier, monkeypatch, score):
    monkeypatch.setattr(verifier, "_scored", lambda place, answer: {"score": score})
    verdict = verifier.verdict(only("gcd"), "1")
    assert verdict.reward is None and "the scorer gave" in verdict.reason


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"null",
        b"[1]",
        b"\xff",
        b"[" * 100_000,
        b'{"score": 1.0}',
        b'{"id": null, "score": 1.0}',
        b'{"id": "other", "score": 1.0}',
    ],
    ids=range(9),
)
def test_a_line_that_answers_no_request_is_dropped(line):
    assert gym.reply_of(line, "mine") is None


def test_a_reply_carries_the_id_of_its_request():
    request = {"id": "mine", "cpu_s": 5.0}
    line = answered(json.dumps(request), lambda _: {"score": 1.0, "id": "stolen"})
    assert gym.reply_of(line.encode(), "mine") == {"score": 1.0}

    def broken(_):
        raise RuntimeError("no luck")

    line = answered(json.dumps(request), broken)
    assert gym.reply_of(line.encode(), "mine") == {"error": "RuntimeError: no luck"}


def test_a_request_that_is_no_json_is_an_error_reply():
    assert "error" in json.loads(answered("not json", lambda request: request))


ESCAPES = (
    "__import__('os').system('touch {path}')",
    "[open('{path}', 'w')]",
    "[x for x in [open('{path}','w')]]",
    "exec(\"open('{path}','w')\")",
    "(lambda: open('{path}','w'))()",
    "1 + exec(\"open('{path}','w')\")",
    "5! + open('{path}','w').x",
)


@pytest.mark.parametrize("name", sorted(EVALUATED | PARSED))
def test_no_answer_is_executed(name, tmp_path, verifier):
    problem = only(name)
    for number, escape in enumerate(ESCAPES):
        path = tmp_path / str(number)
        verdict = verifier.verdict(problem, escape.format(path=path))
        assert not path.exists()
        assert verdict.reward is not None
        assert verdict.reward <= 0.05


def test_an_answer_cannot_name_the_solution(verifier):
    problem = only("string_insertion")
    for answer in ("oracle_answer", "entry['answer']", "(oracle_answer,)"):
        assert verifier.verdict(problem, answer).reward == 0.0


@pytest.mark.parametrize(
    ("answer", "name", "plain"),
    [
        ("[[0, 1], [1, 0]]", "binary_matrix", True),
        ("0 1\n1 0", "binary_matrix", True),
        ("['A', 'B']", "string_insertion", True),
        ("ABCD", "string_insertion", False),
        ("[0] * 10**10", "spiral_matrix", False),
        ("[" * 90 + "1,2" + "]" * 90, "spiral_matrix", True),
        ("[" * 500 + "]" * 500, "spiral_matrix", True),
        ("-" * 10_000 + "1", "spiral_matrix", False),
        ("(1 + 2) * 3.5 - 4/7", "countdown", True),
        ("exp(x**2)*sin(3*x) + C", "intermediate_integration", True),
        ("2x^3 + y", "polynomial_multiplication", True),
        ("x.diff(x)", "simple_integration", False),
        ("print(1)", "simple_integration", False),
        ("x__class__", "simple_integration", False),
        ("sinx", "simple_integration", False),
        ("1" * 19_000 + "_", "countdown", False),
        ("1" * 30_000, "countdown", False),
        ("print(1)", "chain_sum", True),
    ],
)
def test_what_may_reach_a_scorer_that_evaluates(answer, name, plain):
    assert is_plain(answer, name) is plain


def test_every_scorer_of_the_installed_package_that_evaluates_is_known():
    """A newer package may evaluate answers elsewhere; this test would say where."""
    from reasoning_gym.factory import DATASETS

    danger = re.compile(r"\b(?:eval|exec|sympify)\(|(?:sympy|sp)\.parse_expr\(")
    bare = re.compile(r"(?<![.\w])parse_expr\(answer\)")
    found = {
        name
        for name, (data_set, _) in DATASETS.items()
        for source in (inspect.getsource(data_set.score_answer),)
        if danger.search(source) or bare.search(source)
    }
    trusted = {"number_sorting"}
    assert found - trusted == EVALUATED | PARSED
    assert "eval(entry[" in inspect.getsource(
        DATASETS["number_sorting"][0].score_answer
    )


def test_the_scorer_keeps_a_bounded_number_of_entries(monkeypatch):
    monkeypatch.setattr("accredit.tasks.gym_worker.MAX_ENTRIES", 3)
    worker = Worker()
    data = {"name": "gcd", "config": {}, "seed": 1, "size": 9}
    for index in range(9):
        worker.score(data, index, "0")
    assert len(worker._entries) == 3


def test_the_worker_program_starts_without_torch():
    check = (
        "import sys, accredit.tasks.gym_worker; "
        "sys.exit('torch' in sys.modules or 'reasoning_gym' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0
