"""`accredit lab`: every statement holds, and a broken formula does not."""

import json
import math

import pytest
import torch

from accredit.theory import lab
from accredit.theory.lab import IDENTITIES, ONCE, Identity, Result, tried
from accredit.theory.magnitudes import SIZES, Magnitudes, magnitudes, order_error
from commanding import DONE, FAILED, MISTAKE, called

pytestmark = pytest.mark.whole_run

BY_NAME = {identity.name: identity for identity in (*IDENTITIES, *ONCE)}


@pytest.mark.parametrize("name", BY_NAME)
def test_it_holds_on_trees_of_another_seed(name):
    result = tried(BY_NAME[name], 31, 2)
    assert result.ok, result
    assert result.tolerance == 1e-10


def test_every_statement_has_a_name_and_words():
    assert len(BY_NAME) == len(IDENTITIES) + len(ONCE)
    for name, identity in BY_NAME.items():
        assert name.count(" / ") == 1
        assert len(identity.statement.split()) >= 6
    assert len({identity.statement for identity in BY_NAME.values()}) == len(BY_NAME)


def scaled(function, factor=1.1):
    """The function, wrong by a factor."""
    return lambda *words, **more: factor * function(*words, **more)


def with_other_targets(function):
    """A value target with the outcome as its target."""

    def plain(ratios, outcomes, values, step_mask, **knobs):
        aligned = function(ratios, outcomes, values, step_mask, **knobs)
        return aligned._replace(targets=step_mask * outcomes[:, None])

    return plain


@pytest.mark.parametrize(
    ("place", "breaking", "name"),
    [
        ("credit.generalized_advantages", scaled, "theorem 1 / all axioms"),
        ("credit.generalized_advantages", scaled, "theorem 1 / uniqueness"),
        ("credit.generalized_advantages", scaled, "theorem 1 / segments"),
        ("credit.generalized_advantages", scaled, "theorem 4 / energy"),
        ("credit.generalized_advantages", scaled, "critic error / GAE"),
        ("critics.group.leave_one_out_baseline", scaled, "noise / sizes"),
        ("critics.group.group_mean_baseline", scaled, "theorem 3 / group mean"),
        ("theory.gradients.policy_gradient", scaled, "theorem 3 / RLOO"),
        ("theory.gradients.policy_gradient", scaled, "theorem 2 / gradient"),
        ("theory.consequences.binary_cross_entropy", scaled, "loss / BCE gradient"),
        (
            "theory.value_targets.pact_targets",
            with_other_targets,
            "value target / pact",
        ),
        (
            "theory.value_targets.doubly_robust_targets",
            with_other_targets,
            "value target / doubly robust",
        ),
        (
            "theory.value_targets.FIRST_ORDER",
            with_other_targets,
            "value target / windowed",
        ),
        (
            "theory.value_targets.UNCLIPPED_VTRACE",
            with_other_targets,
            "value target / V-trace",
        ),
        (
            "theory.value_targets.FULL_PRODUCT",
            with_other_targets,
            "value target / full product",
        ),
    ],
)
def test_a_broken_formula_is_seen(place, breaking, name, monkeypatch):
    module, _, attribute = f"accredit.{place}".rpartition(".")
    whole = getattr(__import__(module, fromlist=[attribute]), attribute)
    assert tried(BY_NAME[name], 0, 2).ok
    monkeypatch.setattr(f"accredit.{place}", breaking(whole))
    broken = tried(BY_NAME[name], 0, 2)
    assert not broken.ok
    assert broken.error is not None
    assert broken.error > 1e-6


def test_an_error_that_is_no_number_is_none_and_fails():
    def undefined(draw: torch.Generator) -> float:
        """Nothing is said here of anything at all."""
        return math.nan if float(torch.rand((), generator=draw)) < 0.9 else 0.0

    result = tried(Identity("x / y", undefined), 0, 30)
    assert result.error is None
    assert not result.ok


def test_the_worst_tree_counts():
    errors = iter([0.0, 3.0, 1.0])

    def error(draw: torch.Generator) -> float:
        """Whatever comes next."""
        return next(errors)

    assert tried(Identity("x / y", error), 0, 3) == Result(
        "x / y", "Whatever comes next", 3.0
    )


def test_magnitudes_grow_with_the_change_and_keep_their_order():
    found = magnitudes(5)
    assert tuple(row.size for row in found) == SIZES
    assert order_error(found) == 0.0
    for name in ("plain", "pact", "windowed"):
        small, middle, large = (row.errors[name] for row in found)
        assert 0 < small < middle < large
    # First order: a change 4.5 times as large leaves about 20 times as much.
    assert 10 < found[1].errors["windowed"] / found[0].errors["windowed"] < 40
    assert 3 < found[1].errors["plain"] / found[0].errors["plain"] < 6


def test_an_upset_order_is_an_error():
    upset = Magnitudes(0.1, {"plain": 0.3, "pact": 0.1, "windowed": 0.25})
    assert order_error([upset]) == pytest.approx(0.15)


@pytest.fixture
def few(monkeypatch):
    """Three statements, so that the command answers at once."""
    kept = ("theorem 1 / uniqueness", "theorem 4 / energy", "value target / pact")
    monkeypatch.setattr(lab, "IDENTITIES", tuple(BY_NAME[name] for name in kept))
    monkeypatch.setattr(lab, "ONCE", ())
    return kept


def test_json_has_exactly_these_keys(few, capsys):
    code, printed, told = called(capsys, "lab", "--json", "--trees", 2, "--seed", 4)
    assert (code, told) == (DONE, "")
    found = json.loads(printed)
    assert found.keys() == {"identities", "ok"}
    assert found["ok"] is True
    assert [row["name"] for row in found["identities"]] == list(few)
    for row in found["identities"]:
        assert row.keys() == {"name", "error", "tolerance"}
        assert 0 <= row["error"] <= row["tolerance"] == 1e-10


def test_the_seed_decides(few, capsys):
    words = ("lab", "--json", "--trees", 2, "--seed")
    first, again, other = (called(capsys, *words, seed)[1] for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_one_failure_makes_the_command_fail(few, monkeypatch, capsys):
    def wrong(draw: torch.Generator) -> float:
        """Something that is not so at all."""
        return math.nan

    everything = (*lab.IDENTITIES, Identity("made up / wrong", wrong))
    monkeypatch.setattr(lab, "IDENTITIES", everything)
    code, printed, _ = called(capsys, "lab", "--json", "--trees", 1)
    assert code == FAILED
    found = json.loads(printed)
    assert found["ok"] is False
    assert found["identities"][-1]["error"] is None
    code, printed, _ = called(capsys, "lab", "--trees", 1)
    assert code == FAILED
    assert printed.count(" ok") == 3
    assert "NO" in printed
    assert "no number" in printed
    assert printed.endswith("\n3 of 4 hold\n")


def test_the_table_says_each_statement_and_the_magnitudes(few, capsys):
    code, printed, _ = called(capsys, "lab", "--trees", 1)
    assert code == DONE
    words = " ".join(printed.split())
    for part in ("uniqueness", "energy", "theorem 4", "V with token t"):
        assert part in words
    for part in ("plain", "windowed", "0.06", "0.27", "4.1", "|E[target] - V^new|"):
        assert part in words
    assert printed.endswith("\n3 of 3 hold\n")


def test_pictures_that_are_written_are_named(few, capsys, monkeypatch, tmp_path):
    path = tmp_path / "drawn.png"
    monkeypatch.setattr("accredit.theory.pictures.write_pictures", lambda *_: [path])
    words = ("lab", "--trees", 1, "--plots", tmp_path)
    printed = called(capsys, *words)[1]
    assert printed.endswith(f"\nplot: {path}\n3 of 3 hold\n")
    assert "plot: " not in called(capsys, *words, "--json")[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--trees", 0), "the lab needs at least 1 tree, got --trees 0"),
        (("--trees", -3), "the lab needs at least 1 tree, got --trees -3"),
        (("--tres", 3), "this command takes no '--tres'"),
        (("--plots", "taken"), "--plots needs a folder, got the file taken"),
    ],
)
def test_a_mistake_is_one_line(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("")
    code, printed, told = called(capsys, "lab", *words)
    assert (code, printed) == (MISTAKE, "")
    assert told.startswith(f"accredit: {said}")
    assert told.count("\n") == 1
