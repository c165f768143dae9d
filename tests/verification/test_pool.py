"""Calls that hang, crash and eat memory, and what is left of them: nothing."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from accredit.verification.pool import Failure, Pool, StartError, Task

Census = Callable[[], dict[int, str]]
StandIn = Callable[..., Pool]


def test_results_keep_the_order_of_the_calls(stand_in: StandIn) -> None:
    pool = stand_in(num_workers=2)
    calls = [["sleep", 0.2], *(["echo", n] for n in range(20))]
    values = [outcome.value for outcome in pool.run(calls, timeout_s=10.0)]
    assert values == ["awake", *range(20)]


def test_a_pool_costs_no_process_until_it_is_called(
    stand_in: StandIn, census: Census
) -> None:
    pool = stand_in(num_workers=2)
    assert census() == {} and pool.worker_ids() == ()
    assert pool.run([], timeout_s=1.0) == []
    assert census() == {}
    pool.run([["echo", 1]], timeout_s=10.0)
    assert tuple(census()) == pool.worker_ids() and len(pool.worker_ids()) == 1


def test_a_worker_stays_warm_between_calls(stand_in: StandIn) -> None:
    pool = stand_in()
    first, second = (pool.run([["pid"]], 10.0)[0].value for _ in range(2))
    assert first == second == pool.worker_ids()[0]


def test_b124_a_hanging_call_ends_at_its_deadline_and_the_pool_lives(
    stand_in: StandIn,
) -> None:
    """Case B124."""
    pool = stand_in()
    pool.run([["echo", 0]], 10.0)
    started = time.monotonic()
    outcome = pool.run([["sleep", 60]], timeout_s=1.0)[0]
    assert 0.9 < time.monotonic() - started < 6.0
    assert outcome.failure is Failure.TIMEOUT
    assert outcome.milestone == "asleep"
    assert pool.run([["echo", 5]], 10.0)[0].value == 5


def test_b125_three_hanging_calls_do_not_use_up_two_workers(stand_in: StandIn) -> None:
    """Case B125."""
    pool = stand_in(num_workers=2)
    outcomes = pool.run([["spin"], ["spin"], ["spin"]], timeout_s=0.5)
    assert {outcome.failure for outcome in outcomes} == {Failure.TIMEOUT}
    assert pool.run([["echo", "good"]], 10.0)[0].value == "good"


def test_b148_b150_five_timeouts_leave_no_zombie_and_no_child(
    stand_in: StandIn, census: Census
) -> None:
    """Cases B148 and B150: `spin` also leaves a thread running."""
    pool = stand_in()
    for kind in ("sleep", "sleep", "spin", "sleep", "spin"):
        assert pool.run([[kind, 30]], timeout_s=0.2)[0].failure is Failure.TIMEOUT
        assert census() == {}
    pool.run([["echo", 1]], 10.0)
    assert "Z" not in census().values()
    pool.close()
    assert census() == {}


def test_b149_grandchildren_die_with_their_worker(
    stand_in: StandIn, tmp_path: Path, ends: Callable[[int], bool]
) -> None:
    """Case B149."""
    pool, note = stand_in(), tmp_path / "grandchild"
    outcome = pool.run([["grandchild", str(note)]], timeout_s=1.0)[0]
    assert outcome.failure is Failure.TIMEOUT
    assert ends(int(note.read_text()))


def test_b152_memory_is_bounded_and_the_worker_survives(stand_in: StandIn) -> None:
    """Case B152."""
    pool = stand_in(memory_bytes=512 << 20)
    before = pool.run([["pid"]], 10.0)[0].value
    outcome = pool.run([["allocate", 4 << 30]], 10.0)[0]
    assert outcome.failure is Failure.ERROR
    assert outcome.detail.startswith("MemoryError")
    assert pool.run([["pid"]], 10.0)[0].value == before


def test_a_dead_worker_is_replaced(stand_in: StandIn, census: Census) -> None:
    pool = stand_in()
    outcomes = pool.run([["die"], ["echo", 1], ["exit"], ["echo", 2]], 10.0)
    assert [outcome.failure for outcome in outcomes] == [
        Failure.CRASH,
        None,
        Failure.ERROR,
        None,
    ]
    assert [outcomes[1].value, outcomes[3].value] == [1, 2]
    assert len(census()) == 1


def test_an_exception_or_an_unsendable_value_is_an_error(stand_in: StandIn) -> None:
    outcomes = stand_in().run([["raise", "why"], ["nan"]], 10.0)
    assert [outcome.failure for outcome in outcomes] == [Failure.ERROR] * 2
    assert outcomes[0].detail == "KeyError: 'why'"


def test_what_a_call_prints_does_not_reach_the_protocol(
    stand_in: StandIn, capfd: pytest.CaptureFixture[str]
) -> None:
    assert stand_in().run([["print", '{"value": 1}']], 10.0)[0].value == "printed"
    captured = capfd.readouterr()
    assert captured.out == "" and '{"value": 1}' in captured.err


def test_b123_a_pool_serves_many_threads_at_once(stand_in: StandIn) -> None:
    """Case B123: no thread but the main one may use signals, and none needs to."""
    pool, values = stand_in(num_workers=2), {}

    def ask(number: int) -> None:
        values[number] = [o.value for o in pool.run([["echo", number]] * 5, 20.0)]

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values == {n: [n] * 5 for n in range(4)}


def test_closing_ends_a_running_call_at_once(
    stand_in: StandIn, census: Census, tmp_path: Path
) -> None:
    pool, failures = stand_in(), []
    runs = tmp_path / "runs"
    caller = threading.Thread(
        target=lambda: failures.extend(
            outcome.failure
            for outcome in pool.run([["grandchild", str(runs)], ["echo", 1]], 60.0)
        )
    )
    caller.start()
    deadline = time.monotonic() + 30
    while not (runs.exists() and runs.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)
    pool.close()
    pool.close()
    caller.join(5)
    assert failures == [Failure.CRASH, Failure.START]
    assert census() == {}
    with pytest.raises(ValueError, match="must be open"):
        pool.run([["echo", 1]], 1.0)


def test_a_collected_pool_leaves_nothing(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in()
    path = (str(tmp_path), *sys.path)
    with Pool(Task("stand_in_calls:calls", import_path=path), 1) as pool:
        worker = pool.run([["pid"]], 10.0)[0].value
    assert not Path(f"/proc/{worker}").exists()


def test_a_worker_that_cannot_start_is_a_failure_of_its_own(stand_in: StandIn) -> None:
    pool = stand_in(factory="broken")
    outcome = pool.run([["echo", 1]], 10.0)[0]
    assert (outcome.failure, outcome.detail) == (
        Failure.START,
        "RuntimeError: no luck",
    )
    with pytest.raises(StartError, match="no luck"):
        pool.check()


def test_b157_a_plain_environment_hides_the_trainers_secrets(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case B157, as far as a verifier's worker goes."""
    from accredit.verification.pool import plain_environment

    monkeypatch.setenv("WANDB_API_KEY", "secret")
    pool = stand_in(environment=plain_environment())
    names = pool.run([["environment"]], 10.0)[0].value
    assert "PATH" in names and "WANDB_API_KEY" not in names


ORPHAN = """
import sys
from accredit.verification.pool import Pool, Task
pool = Pool(Task("stand_in_calls:calls", import_path=(sys.argv[1], *sys.path)), 1)
print(pool.run([["pid"]], 20.0)[0].value, flush=True)
pool.run([[sys.argv[2], 30]], float(sys.argv[3]))
"""


@pytest.mark.parametrize("kind", ["sleep", "spin"])
def test_no_worker_outlives_a_killed_parent_by_long(
    stand_in: StandIn, tmp_path: Path, ends: Callable[[int], bool], kind: str
) -> None:
    stand_in()
    parent = subprocess.Popen(
        [sys.executable, "-c", ORPHAN, str(tmp_path), kind, "1"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    time.sleep(0.2)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert ends(worker)


def test_a_process_that_forgets_to_close_exits_cleanly(
    stand_in: StandIn, tmp_path: Path
) -> None:
    stand_in()
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", ORPHAN, str(tmp_path), "echo", "5"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert finished.returncode == 0 and finished.stderr == ""
    assert not Path(f"/proc/{int(finished.stdout)}").exists()


def test_wrong_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="num_workers must be >= 1, got 0"):
        Pool(Task("m:f"), 0)
    with pytest.raises(ValueError, match="memory_bytes must be >= 64 MiB"):
        Task("m:f", memory_bytes=1)
    with pytest.raises(ValueError, match="start_timeout_s must be > 0"):
        Task("m:f", start_timeout_s=0.0)


def test_arguments_must_be_finite_json(stand_in: StandIn) -> None:
    with pytest.raises(ValueError, match="finite JSON values"):
        stand_in().run([["echo", float("nan")]], 1.0)
    with pytest.raises(ValueError, match="finite JSON values"):
        stand_in().run([["echo", object()]], 1.0)
