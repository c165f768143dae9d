"""Reward functions that fork, kill, print, hide and stay: each harms itself alone."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from accredit.types import Problem
from accredit.verification.confinement import Form, descendants
from accredit.verification.function import FunctionVerifier
from accredit.verification.pool import Pool
from accredit.verification.process import (
    MAX_PRINTED_BYTES,
    Failure,
    Printed,
    Task,
)
from accredit.verification.worker import take_frame

HOSTILE = r"""
import ctypes, json, os, random, signal, socket, subprocess, sys, threading, time

def sockets():
    found = []
    for number in range(3, 64):
        try:
            if os.readlink(f"/proc/self/fd/{number}").startswith("socket"):
                found.append(number)
        except OSError:
            pass
    return found

def frame(message):
    text = json.dumps(message).encode()
    return len(text).to_bytes(4, "big") + text

def fork_and_exit(_):
    if os.fork() == 0:
        sys.exit(0)

def fork_and_return(_):
    os.fork()

def fork_and_raise(_):
    if os.fork() == 0:
        raise RuntimeError("child")

def fork_behind_python(_):
    if ctypes.CDLL(None).fork() == 0:
        sys.exit(0)

def fork_twice(_):
    if os.fork() == 0:
        os.fork()
        sys.exit("text")

def fork_in_thread(_):
    thread = threading.Thread(target=os.fork)
    thread.start()
    thread.join()

def answer_late(_):
    def late():
        for number in sockets():
            time.sleep(0.05)
            os.write(number, frame({"value": {"reward": 99.0}}))
    threading.Thread(target=late).start()

def answer_itself(_):
    for number in sockets():
        os.write(number, frame({"value": {"reward": 99.0}}))
        os.write(number, frame({"id": "0" * 32, "value": {"reward": 99.0}}))

def milestones(_):
    for number in sockets():
        os.write(number, frame({"milestone": "x"}) * 100)

def print_much(megabytes):
    for _ in range(int(megabytes or 2)):
        print("x" * (1 << 20))

def print_control(_):
    print("\x1b[2J\x07\u202e")

def close_output(_):
    os.closerange(1, 3)

def chdir(_):
    os.chdir("/")

def signals(_):
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getppid(), signal.SIGTERM)

def every_process(_):
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        pass

def own_group(_):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.kill(0, signal.SIGTERM)

def trainer(target):
    try:
        os.kill(int(target), signal.SIGKILL)
    except ProcessLookupError:
        pass

def no_alarm(_):
    signal.alarm(0)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)

def deletes_itself(_):
    os.remove(__file__)

# These end or spoil their own call.

def close_all(_):
    os.closerange(3, 256)

def exits(_):
    os._exit(0)

def garbage(_):
    for number in sockets():
        os.write(number, b"\0\0\0\5hello")

def deep(_):
    for number in sockets():
        text = b"[" * 100000
        os.write(number, len(text).to_bytes(4, "big") + text)

def huge_length(_):
    for number in sockets():
        os.write(number, b"\xff" * 8)

def half(_):
    for number in sockets():
        os.write(number, b"\0\0\1\0")

def kills_itself(_):
    os.kill(os.getpid(), signal.SIGKILL)

def sleeps(_):
    time.sleep(60)

def bomb(_):
    signal.alarm(0)
    while True:
        try:
            os.fork()
        except OSError:
            time.sleep(0.01)

def reward(completion, problem):
    kind, _, rest = completion.partition(" ")
    if kind != "give":
        globals()[kind](rest)
    return float(problem.answer)

def daemon(completion, problem):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            open(completion + ".began", "w").close()
            time.sleep(1.0)
            open(completion, "w").close()
            os._exit(0)
        os._exit(0)
    while not os.path.exists(completion + ".began"):
        time.sleep(0.01)
    return 1.0

def sees(completion, problem):
    return float(completion in os.environ)

def drawn(completion, problem):
    return random.random() * 0 + 1
"""
HARMLESS = (
    "fork_and_exit",
    "fork_and_return",
    "fork_and_raise",
    "fork_behind_python",
    "fork_twice",
    "fork_in_thread",
    "answer_late",
    "answer_itself",
    "milestones",
    "print_much",
    "print_control",
    "close_output",
    "chdir",
    "signals",
    "every_process",
    "own_group",
    "no_alarm",
)
FATAL = (
    "close_all",
    "exits",
    "garbage",
    "deep",
    "huge_length",
    "half",
    "kills_itself",
    "sleeps",
    "bomb",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a user who calls files as the standard library calls its modules."""
    path = tmp_path_factory.mktemp("hostile")
    (path / "hostile.py").write_text(HOSTILE)
    for name in ("json", "random", "socket", "signal", "ctypes"):
        (path / f"{name}.py").write_text("raise RuntimeError('not the real one')\n")
    return path


@pytest.fixture(scope="module")
def made(folder: Path) -> Iterator[Callable[..., FunctionVerifier]]:
    verifiers: list[FunctionVerifier] = []

    def build(name: str = "hostile:reward", **fields: object) -> FunctionVerifier:
        with contextlib.chdir(folder):
            verifiers.append(FunctionVerifier(name, **fields))
        return verifiers[-1]

    yield build
    for verifier in verifiers:
        verifier.close()


@pytest.fixture(scope="module")
def verifier(made: Callable[..., FunctionVerifier]) -> FunctionVerifier:
    return made(timeout_s=20.0)


@pytest.fixture(scope="module")
def hasty(made: Callable[..., FunctionVerifier]) -> FunctionVerifier:
    return made(timeout_s=1.0)


def rewards(
    verifier: FunctionVerifier, item: Callable, *completions: str
) -> list[float | None]:
    """Rewards of completions whose gold answers count from 1."""
    items = [item(str(n), text) for n, text in enumerate(completions, start=1)]
    return [verdict.reward for verdict in verifier.verify(items)]


@pytest.mark.parametrize("kind", HARMLESS)
def test_every_reward_reaches_its_own_rollout(
    kind: str, verifier: FunctionVerifier, item: Callable
) -> None:
    asked = [kind, "give", kind, "give", "give"]
    assert rewards(verifier, item, *asked) == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert rewards(verifier, item, *["give"] * 5) == [1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize("kind", FATAL)
def test_what_ends_its_own_call_costs_one_verdict(
    kind: str, hasty: FunctionVerifier, item: Callable
) -> None:
    items = [item("1", "give"), item("2", kind), item("3", "give")]
    verdicts = hasty.verify(items)
    assert [verdict.reward for verdict in verdicts] == [1.0, None, 3.0]
    assert verdicts[1].reason.startswith("reward function 'hostile:reward' ")


def test_the_trainer_is_out_of_reach(
    verifier: FunctionVerifier, item: Callable
) -> None:
    bystander = subprocess.Popen(["sleep", "30"])
    try:
        asked = [f"trainer {bystander.pid}", f"trainer {os.getpid()}", "give"]
        assert rewards(verifier, item, *asked) == [1.0, 2.0, 3.0]
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.parametrize("form", [Form.NAMESPACES, Form.SESSION])
def test_no_daemon_outlives_the_pool(form: Form, folder: Path, tmp_path: Path) -> None:
    marker, problem = str(tmp_path / "marker"), problem_record()
    arguments = ("hostile:daemon", str(folder))
    task = Task(
        "accredit.verification.user_function:scorer", arguments, None, form=form
    )
    with Pool(task, 1) as pool:
        assert pool.check().form is form
        outcome = pool.run([[marker, problem]], 10.0)[0]
        assert outcome.value == {"reward": 1.0}
        supervisor = pool.worker_ids()[0]
        assert len(descendants(supervisor)) >= 2
    assert Path(f"{marker}.began").exists()
    assert descendants(supervisor) == []
    time.sleep(1.2)
    assert not Path(marker).exists()


def problem_record() -> dict[str, object]:
    return {"id": "p", "messages": [], "answer": "1", "split": "s", "metadata": {}}


def test_a_worker_that_is_only_held_by_its_session_serves_as_well(
    folder: Path, item: Callable
) -> None:
    arguments = ("hostile:reward", str(folder))
    task = Task(
        "accredit.verification.user_function:scorer",
        arguments,
        None,
        form=Form.SESSION,
    )
    kinds = ["fork_and_exit", "give", "close_all", "give", "own_group", "sleeps"]
    with Pool(task, 1) as pool:
        outcomes = pool.run([[kind, problem_record()] for kind in kinds], 1.0)
    failures = [outcome.failure for outcome in outcomes]
    assert failures == [None, None, Failure.CRASH, None, None, Failure.TIMEOUT]


def test_the_standard_library_comes_first(made: Callable, item: Callable) -> None:
    assert rewards(made("hostile:drawn"), item, "x") == [1.0]
    with pytest.raises(ValueError, match=r"got the standard library's; give your file"):
        made("random:reward").check()


def test_a_function_sees_no_variable_that_is_not_plain_or_named(
    made: Callable, item: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_API_KEY", "hunter2")
    asked = ["PATH", "JUDGE_API_KEY", "UNKNOWN"]
    assert rewards(made("hostile:sees"), item, *asked) == [1.0, 0.0, 0.0]
    named = made("hostile:sees", environment=("JUDGE_API_KEY", "UNKNOWN"))
    assert rewards(named, item, *asked) == [1.0, 1.0, 0.0]


def test_a_function_that_deletes_its_file_ends_with_its_worker(
    tmp_path: Path, item: Callable
) -> None:
    (tmp_path / "hostile.py").write_text(HOSTILE)
    with contextlib.chdir(tmp_path):
        verifier = FunctionVerifier("hostile:reward", timeout_s=5.0)
    try:
        asked = ["deletes_itself", "give", "exits", "give"]
        assert rewards(verifier, item, *asked) == [1.0, 2.0, None, None]
    finally:
        verifier.close()


def test_what_is_printed_is_bounded_and_shows_no_control_character(
    made: Callable, item: Callable, capfd: pytest.CaptureFixture[str]
) -> None:
    verifier = made()
    assert rewards(verifier, item, "print_control", "print_much 100") == [1.0, 2.0]
    captured = capfd.readouterr()
    assert captured.out == "" and r"\x1b[2J\x07\u202e" in captured.err
    assert "is dropped" in captured.err
    assert MAX_PRINTED_BYTES - 100 < len(captured.err) < MAX_PRINTED_BYTES + 200
    assert rewards(verifier, item, "print_control") == [1.0]
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        ([b"abcdef", b"gh"], "abcdef"),
        ([b"abc", b"defgh"], "abcdef"),
        ([b"a\xffb"], "a\\xffb"),
        ([b"a\rb\x00"], "a\\rb\\x00"),
        ([b"", b"a\tb\n"], "a\tb\n"),
    ],
)
def test_printed_text_stops_at_its_limit(
    pieces: list[bytes], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = Printed(max_bytes=6)
    for piece in pieces:
        printed.show(piece)
    written = capsys.readouterr().err
    assert written.partition("\naccredit:")[0] == shown
    assert ("is dropped" in written) == (sum(map(len, pieces)) >= 6)


def test_printing_into_a_closed_terminal_harms_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open(os.devnull, "w") as closed:
        pass
    monkeypatch.setattr(sys, "stderr", closed)
    Printed().show(b"text")


@pytest.mark.parametrize(
    "value",
    [
        [],
        "text",
        7,
        None,
        {},
        {"reward": "1"},
        {"reward": True},
        {"reward": float("nan")},
        {"reward": {}},
        {"other": 1.0},
    ],
)
def test_a_reply_of_another_shape_is_a_failed_verdict(
    value: object, monkeypatch: pytest.MonkeyPatch, made: Callable, item: Callable
) -> None:
    from accredit.verification.process import Outcome

    verifier = made()
    monkeypatch.setattr(Pool, "run", lambda *_: [Outcome(value)])
    verdict = verifier.verify([item("1", "give")])[0]
    assert verdict.reward is None and "another shape" in verdict.reason


@pytest.mark.parametrize(
    "payload", [b"[1]", b"null", b"{", b"\xff", b"[" * 100_000, b"1" * 10_000]
)
def test_a_frame_that_is_no_object_is_refused(payload: bytes) -> None:
    frame = bytearray(len(payload).to_bytes(4, "big") + payload)
    with pytest.raises(ValueError):
        take_frame(frame)


def test_frames_are_taken_one_by_one() -> None:
    first, second = b'{"a": 1}', b'{"b": 2}'
    buffer = bytearray()
    for payload in (first, second):
        buffer += len(payload).to_bytes(4, "big") + payload
    tail = buffer[-3:]
    del buffer[-3:]
    assert take_frame(buffer) == {"a": 1}
    assert take_frame(buffer) is None
    buffer += tail
    assert take_frame(buffer) == {"b": 2}
    assert take_frame(buffer) is None and not buffer


def test_the_source_is_that_of_the_function_and_the_files_beside_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine.py").write_text("import part\ndef reward(c, p): return part.A\n")
    (tmp_path / "part.py").write_text("A = 1.0\n")
    (tmp_path / "unused.py").write_text("A = 1.0\n")
    seen = []
    for name in ("unused", "part", "mine"):
        with contextlib.chdir(tmp_path):
            verifier = FunctionVerifier("mine:reward")
        assert verifier.source == "" and verifier.weakness == ""
        verifier.check()
        seen.append(verifier.source)
        (tmp_path / f"{name}.py").write_text(
            (tmp_path / f"{name}.py").read_text() + "# changed\n"
        )
        verifier.close()
    with contextlib.chdir(tmp_path):
        verifier = FunctionVerifier("mine:reward")
    verifier.check()
    # The unused file changed between the first two, a used one before the others.
    assert seen[0] == seen[1] and len({*seen, verifier.source}) == 3
    verifier.close()


def test_a_refused_namespace_is_said_in_one_line(
    made: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    from accredit.verification.process import Started

    verifier = made()
    started = Started(Form.SESSION, {"source": "abc"})
    monkeypatch.setattr(Pool, "check", lambda _: started)
    verifier.check()
    assert "could signal the trainer" in verifier.weakness
    assert "\n" not in verifier.weakness and verifier.source == "abc"


def test_problem_is_what_the_record_says() -> None:
    assert set(problem_record()) == set(Problem.__dataclass_fields__)
