"""What each key of the algorithms changes that go on from stored rollouts.

`[algorithm]` and its critic: numbers of three real steps from one remembered start.
`[algorithm.gate]`: who is trusted after one step that is followed by hand.
"""

from collections.abc import Callable
from contextlib import closing
from functools import lru_cache, partial
from typing import Any

import pytest

from ac2_worlds import chosen, one_step, reads, remembering, spoken_world
from accredit.critics.readiness import Track
from accredit.recipe.config import recipe_from
from accredit.recipe.overrides import RecipeError
from tiny_models import tiny_qwen3
from worlds import algorithm, small_policy, small_world, steps

Keys = dict[str, object]
NAMES = ("prefix_grpo", "ac2", "ac2_plus")

SEVERAL: Keys = {"num_epochs": 3}
"""Ratios leave 1, so that clips have something to say."""
STEADY: Keys = {**SEVERAL, "entropy_control": False}
CORRECTED: Keys = {"engine_correction": "truncated_importance"}
REPLAY_CHANGES: dict[str, tuple[Keys, Keys]] = {
    "prompts_per_step": ({}, {"prompts_per_step": 3}),
    "group_size": ({}, {"group_size": 3}),
    "num_refill": ({}, {"num_refill": 2}),
    "refill_every": ({}, {"refill_every": 2}),
    "replay_capacity": ({}, {"replay_capacity": 3}),
    "admission": ({}, {"admission": "passed"}),
    "pass_mark": ({"admission": "passed"}, {"pass_mark": 0.1}),
    "chunk_length": ({}, {"chunk_length": 3}),
    "cut_grid": ({}, {"cut_grid": 1}),
    "largest_cut_share": ({}, {"largest_cut_share": 0.3}),
    "baseline": ({}, {"baseline": "leave_one_out"}),
    "unverified": ({}, {"unverified": "zero"}),
    "num_minibatches": ({}, {"num_minibatches": 1}),
    "num_epochs": ({}, {"num_epochs": 2}),
    "entropy_coefficient": ({}, {"entropy_coefficient": 0.1}),
    "engine_correction": ({}, CORRECTED),
    "engine_correction_cap": (CORRECTED, {"engine_correction_cap": 0.01}),
    "aggregation": ({}, {"aggregation": "sequence_mean_token_mean"}),
    "clip_low": (STEADY, {"clip_low": 0.001}),
    "clip_high": (STEADY, {"clip_high": 0.001}),
    "dual_clip": (STEADY, {"dual_clip": 1.001}),
    "entropy_control": (SEVERAL, {"entropy_control": False}),
    "entropy_target": ({}, {"entropy_target": 3.0}),
}
SPEAKING: Keys = {"critic.readout": "expectation"}
"""All ends have a value, and no two the same."""
BREACHING: Keys = {"displacement_limit": 1e-3}
AC2_CHANGES: dict[str, tuple[Keys, Keys]] = {
    "grouping": ({}, {"grouping": "prefixes"}),
    "audit_share": ({}, {"audit_share": 1.0}),
    "ready_lambda": ({}, {"ready_lambda": 0.5}),
    "chunk_weight": (SPEAKING, {"chunk_weight": 0.5}),
    "critic_targets": (SPEAKING, {"critic_targets": "monte_carlo"}),
    "critic_capacity": ({}, {"critic_capacity": 2}),
    "records_per_step": ({}, {"records_per_step": 2}),
    "critic_steps": ({}, {"critic_steps": 2}),
    "min_valid": ({}, {"min_valid": 4}),
    "grid_size": ({}, {"grid_size": 4}),
    "order": ({}, {"order": "critic_actor"}),
    "joint_loss": ({}, {"joint_loss": True}),
    "rate_floor": (BREACHING, {"rate_floor": 1.0}),
    "displacement_limit": ({"displacement_limit": None}, BREACHING),
}
LASTING: Keys = {"gate.revocable": False}
PLUS_BASES: dict[str, Keys] = {
    "baseline": {"boundary_credit": False},
    "grouping": LASTING,
    "ready_lambda": LASTING,
    "order": {"correction": "none", "critic.weights": "tied"},
    "joint_loss": {"correction": "none", "critic.weights": "tied"},
}
"""What AC2+ has to do without for a change of these."""
ROUNDING: dict[str, tuple[Keys, Keys]] = {
    "ac2": ({}, {"target_rounding": "none"}),
    "ac2_plus": ({}, {"target_rounding": "nearest"}),
}
AUDITED: Keys = {"audit_share": 1.0, "audit_half_life": None, "chunk_signal": None}
CORRECTED_TARGETS: Keys = {"correction": "doubly_robust"}
LONG_CHUNKS: Keys = {"chunk_signal": 1.0}
PLUS_CHANGES: dict[str, tuple[Keys, Keys]] = {
    "boundary_credit": (AUDITED, {"boundary_credit": False}),
    "boundary_lambda": (AUDITED, {"boundary_lambda": 0.1}),
    "boundary_examples": ({}, {"boundary_examples": False}),
    "correction": ({}, CORRECTED_TARGETS),
    "correction_cap": (CORRECTED_TARGETS, {"correction_cap": 1.0}),
    "recalibration_steps": ({}, {"recalibration_steps": 0}),
    "audit_half_life": ({"audit_share": 1.0}, {"audit_half_life": 0.5}),
    "smallest_audit_share": ({"audit_half_life": 0.1}, {"smallest_audit_share": 0.25}),
    "chunk_signal": ({}, LONG_CHUNKS),
    "max_chunks": (LONG_CHUNKS, {"max_chunks": 1}),
}
READ_OUT = {"ac2": "expectation", "ac2_plus": "greedy"}
WEIGHTS = {"ac2": "separate", "ac2_plus": "tied"}
PROMPTED_CHANGES: dict[str, tuple[Keys, Keys]] = {
    "template": ({"critic.template": "compact"}, {"critic.template": "instruction"}),
    "reference": ({}, {"critic.reference": "none"}),
    "both_prompts": ({}, {"critic.both_prompts": False}),
    "learning_rate": ({}, {"critic.learning_rate": 3e-3}),
    "weight_decay": ({}, {"critic.weight_decay": 1.0}),
    "max_gradient_norm": ({}, {"critic.max_gradient_norm": 1e-4}),
}
HEAD: Keys = {"critic.kind": "value_head"}
OWN: Keys = {**HEAD, "critic.trunk": "own"}
LORA: Keys = {**HEAD, "critic.trunk": "lora"}
BINS: Keys = {**HEAD, "critic.output": "categorical"}
HEAD_CHANGES: dict[str, tuple[Keys, Keys]] = {
    "trunk": (HEAD, {"critic.trunk": "own"}),
    "output": (HEAD, {"critic.output": "categorical"}),
    "num_bins": (BINS, {"critic.num_bins": 11}),
    "bin_sigma": (BINS, {"critic.bin_sigma": 3.0}),
    "value_clip": (
        {**HEAD, "critic.output": "linear", "critic.num_epochs": 4},
        {"critic.value_clip": 1e-4},
    ),
    "initial_value": (HEAD, {"critic.initial_value": 0.1}),
    "learning_rate": (HEAD, {"critic.learning_rate": 3e-3}),
    "weight_decay": (HEAD, {"critic.weight_decay": 1.0}),
    "max_gradient_norm": (HEAD, {"critic.max_gradient_norm": 1e-4}),
    "num_epochs": (HEAD, {"critic.num_epochs": 3}),
    "num_minibatches": (HEAD, {"critic.num_minibatches": 2}),
    "freeze_attention": (OWN, {"critic.freeze_attention": True}),
    "lora_rank": (LORA, {"critic.lora_rank": 2}),
    "lora_alpha": (LORA, {"critic.lora_alpha": 4.0}),
}
REFUSED: dict[str, object] = {
    "template": "{prompt} x",
    "warmup_steps": 1,
    "warmup_epochs": 2,
    "follows_schedule": True,
    "max_prefixes": 3,
    "deviation_floor": 0.1,
    "reward_low": -1.0,
    "reward_high": 3.0,
}
"""Keys of a value head that reads whole rollouts, and a value of each."""

STORED = [
    ("p0", "aabcddefga", 1.0),
    ("p1", "cdcdefbcab", 0.4),
    ("p2", "fedcbagfed", 0.0),
    ("p3", "bcdefaabcd", 0.2),
    ("p4", "ccabdeffge", 0.3),
]
TRACK = Track(
    ready=True,
    nonzero_seen=True,
    num_errors=4,
    total=0.8,
    total_squares=0.2,
    num_audits=2,
)
LESSONS = [
    ("p0", "aa", 1.0, "aabcdd"),
    ("p1", "cd", 0.0, None),
    ("p2", "fe", 0.0, None),
    ("p3", "", 1.0, None),
]
"""On a grid of any size."""


def marked(text: str) -> float | None:
    """Some pass, some are not judged, the others earn what they hold of `c`."""
    if text.endswith("f"):
        return None
    return 1.0 if text.startswith("a") else text.count("c") / len(text)


def start(learning_rate: float, empty: Any):
    """Three of six problems are ready, one is in the bank; capacities as configured."""
    examples = getattr(empty, "examples", None)
    return remembering(
        STORED,
        capacity=empty.rollouts.capacity,
        critic_capacity=len(LESSONS) if examples is None else examples.capacity,
        bank={"p2": "abcdef"},
        examples=LESSONS,
        window=[[0.1, 0.3]],
        tracks=dict.fromkeys(("p0", "p1", "p2"), TRACK),
        spreads=dict.fromkeys(("p0", "p1", "p2"), (2, 0.04)),
        learning_rate=learning_rate,
    )


@lru_cache
def outcome(name: str, keys: tuple[tuple[str, object], ...]) -> tuple[float, ...]:
    """Numbers of three steps: sizes, losses, gradient norms, costs, what is kept.

    The engine begins with other weights than the learner.
    """
    world = small_world(marked, rate=5e-2, stop_token_ids=(7,), max_gradient_norm=None)
    world.engine.load(small_policy(seed=5), 0)
    asked = {"prompts_per_step": 8, "group_size": 4, "num_refill": 3, **dict(keys)}
    built = algorithm(name, 10, world, **asked)
    rate = 0.0 if name == "prefix_grpo" else built.critic.learning_rate
    state, records = steps(built, world, 3, start(rate, built.initial_memory))
    numbers: list[float] = [len(state.memory.rollouts.items)]
    for record in records:
        numbers += [record.batch.num_rollouts, float(record.batch.sampled.sum())]
        numbers += [float(record.credit.advantages.abs().sum())]
        numbers += [record.cost.total_flops, record.cost.num_questions]
        if record.policy is not None:
            numbers += [*record.policy.losses, *record.policy.gradient_norms]
        if record.critic is not None:
            numbers += [*record.critic.losses, *record.critic.gradient_norms]
            numbers += [record.critic.learning_rate]
    return tuple(numbers)


def changes_the_steps(name: str, base: Keys, change: Keys, *_: object) -> None:
    """The same recipe gives the same steps; the changed one gives others."""
    before = outcome(name, tuple(base.items()))
    after = outcome(name, tuple({**base, **change}.items()))
    assert len(before) > 10
    assert after != pytest.approx(before, rel=1e-5, nan_ok=True)


def is_refused(name: str, key: str, value: object, *_: object) -> None:
    """A key for critics of whole rollouts, at a critic of single prefixes."""
    section: dict[str, Any] = {"name": name, "critic": {"kind": "value_head"}}
    recipe_from({"algorithm": section}, "test")
    section["critic"][key] = value
    with pytest.raises(RecipeError, match=key):
        recipe_from({"algorithm": section}, "test")


HAND: Keys = {
    "gate.rule": "last_visit",
    "gate.require_bank": False,
    "gate.require_nonzero": False,
    "gate.revocable": False,
    "gate.error_against": "group_mean",
}
POOLED: Keys = {"gate.rule": "pooled", "gate.standard_errors": 0.0}
BACK: Keys = {"ready": True, "audit_share": 1.0, "reward": 1.0}
GATE_CHANGES: dict[str, tuple[Keys, Keys]] = {
    # .1 now, (.6 + .1) / 4 = .175 over all visits, and a standard error on top
    "rule": ({}, {"gate.rule": "pooled", "gate.standard_errors": 1.0}),
    "window": ({}, {"gate.window": 6}),
    "tau_global": ({}, {"gate.tau_global": 0.05}),
    "tau_local": ({}, {"gate.tau_local": 0.05}),
    "require_bank": ({}, {"gate.require_bank": True}),
    "require_nonzero": ({"said": 0.0, "reward": 0.1}, {"gate.require_nonzero": True}),
    "error_against": (
        {"ready": True, "audit_share": 0.0},
        {"gate.error_against": "rewards"},
    ),
    "standard_errors": (POOLED, {"gate.standard_errors": 1.0}),
    "min_errors": (POOLED, {"gate.min_errors": 9}),
    # .7 / 4 = .175 is too much; with twenty errors of .1 beside it is 2.7 / 24 = .1125
    "prior_errors": (
        {**POOLED, "gate.tau_local": 0.15, "gate.prior_errors": 20},
        {"gate.prior_errors": 0},
    ),
    "revocable": (BACK, {"gate.revocable": True}),
}


def gate_after(name: str, keys: Keys) -> object:
    """What the gate remembers after one visit of p1, V = .3 and R = .4."""
    keys = {**HAND, "said": 0.3, "reward": 0.4, "ready": False, **keys}
    said, reward, ready = (keys.pop(key) for key in ("said", "reward", "ready"))
    track = Track(ready=bool(ready), num_errors=3, total=0.6, total_squares=0.2)
    state = remembering(
        [("p1", "cdcdef", 0.4)], window=[[0.1]] * 5, tracks={"p1": track}
    )
    world = spoken_world(lambda *_: "bbbbbbbb", lambda text: reward)
    plus = {} if name == "ac2" else {"chunk_signal": None, "audit_half_life": None}
    built = chosen(reads({}, said), name, grid_size=11, **plus, **keys)
    return one_step(built, world, state)[2].gate


def changes_the_gate(name: str, base: Keys, change: Keys, *_: object) -> None:
    """Other problems are trusted; of errors against rewards, the window says so."""
    before, after = gate_after(name, base), gate_after(name, {**base, **change})
    assert before == gate_after(name, base)
    if change.keys() == {"gate.error_against"}:
        assert (before.window[-1], after.window[-1]) == ((0.0,), ())
    else:
        assert before.ready("p1") and not after.ready("p1")


def head_path(name: str, bench: Any) -> None:
    """The head's own trunk begins with the weights of the folder."""
    other = tiny_qwen3(bench.folder / "critic", seed=2)
    tables = []
    for critic in ({}, {"path": str(other)}):
        critic = {"kind": "value_head", "trunk": "own", **critic}
        changes = {"algorithm": {"name": name, "critic": critic}}
        with closing(bench.assembly(**changes)) as assembly:
            trunk = assembly.algorithm.critic.critic.trunk.module
            tables.append(trunk.get_input_embeddings().weight.detach().clone())
    assert (tables[0] - tables[1]).abs().max() > 1e-3


def kind_chooses(name: str, *_: object) -> None:
    """Three critics, three courses."""
    kinds = ("prompted", "value_head", "exact")
    found = {outcome(name, (("critic.kind", kind),)) for kind in kinds}
    assert len(found) == 3


def cases() -> dict[str, Callable[..., None]]:
    """Every key of every algorithm that replays."""
    found: dict[str, Callable[..., None]] = {}

    def add(name: str, changes: dict[str, tuple[Keys, Keys]], inner: str = "") -> None:
        for key, (base, change) in changes.items():
            without = PLUS_BASES.get(key, {}) if name == "ac2_plus" else {}
            found[f"algorithm.{name}.{inner}{key}"] = partial(
                changes_the_steps, name, {**without, **base}, change
            )

    for name in NAMES:
        add(name, REPLAY_CHANGES)
    for name in NAMES[1:]:
        add(name, AC2_CHANGES | {"target_rounding": ROUNDING[name]})
        add(name, PROMPTED_CHANGES, "critic.prompted.")
        read_out = ({}, {"critic.readout": READ_OUT[name]})
        weights = ({}, {"critic.weights": WEIGHTS[name]})
        own = {"readout": read_out, "weights": weights}
        add(name, own, "critic.prompted.")
        add(name, HEAD_CHANGES, "critic.value_head.")
        for key, value in REFUSED.items():
            found[f"algorithm.{name}.critic.value_head.{key}"] = partial(
                is_refused, name, key, value
            )
        found[f"algorithm.{name}.critic.value_head.path"] = partial(head_path, name)
        found[f"algorithm.{name}.critic.kind"] = partial(kind_chooses, name)
        for key, (base, change) in GATE_CHANGES.items():
            found[f"algorithm.{name}.gate.{key}"] = partial(
                changes_the_gate, name, base, change
            )
    add("ac2_plus", PLUS_CHANGES)
    return found


CASES = cases()
