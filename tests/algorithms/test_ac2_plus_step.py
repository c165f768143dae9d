"""AC2+: each of its ideas as a knob, by hand.

The problem p1 is replayed up to `ab`; a chunk has two tokens, the budget ten.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from ac2_worlds import (
    IdleLearner,
    chosen,
    memory_in,
    one_step,
    reads,
    remembering,
    row_advantages,
    spoken_world,
    texts,
)
from accredit.algorithms.ac2.metrics import Routing
from accredit.algorithms.replay import routes
from accredit.critics.readiness import Track
from accredit.loops.synchronous import advance
from accredit.recipe.overrides import RecipeError
from accredit.types import Batch

pytestmark = pytest.mark.whole_run

STORED = [("p1", "abcdefabcd", 0.2)]
PLAIN: dict[str, Any] = {
    "boundary_credit": False,
    "boundary_examples": False,
    "correction": "none",
    "audit_half_life": None,
    "chunk_signal": None,
}
LINES = ["cdefah", "ch"]
REWARDS = {"abcdefah": 1.0, "abch": 0.2, "h": 0.0}
SAYS = {"ab": 0.5, "abcd": 0.6, "abcdef": 0.3}


@pytest.fixture(autouse=True)
def cut_at_two(monkeypatch):
    monkeypatch.setattr(routes, "drawn_cut", lambda *_: 2)


def stepped(
    lines=LINES,
    says=SAYS,
    rewards=REWARDS,
    *,
    ready=True,
    learner=None,
    state=None,
    **keys,
):
    world = spoken_world(
        lambda problem, text, sibling: lines[sibling % len(lines)] if text else "h",
        lambda text: rewards[text],
        learner=learner,
    )
    critic = reads(says)
    section = {"group_size": len(lines), "audit_share": 1.0, "grid_size": 11}
    section |= PLAIN | keys
    if section["boundary_credit"]:
        section = {"boundary_lambda": 0.0} | section
    if not section["audit_share"]:
        section["gate"] = {"revocable": False}
    algorithm_ = chosen(critic, "ac2_plus", **section)
    state = state or remembering(STORED, ready=["p1"] if ready else [])
    _, record, memory = one_step(algorithm_, world, state)
    return record, memory, critic


def by_token(record, row):
    return record.credit.advantages[row][record.batch.sampled[row]].tolist()


def test_without_its_ideas_it_deals_as_ac2_does():
    record, memory, _ = stepped()
    assert texts(record) == ["abcdefah", "abch"]
    assert row_advantages(record) == pytest.approx([0.4, -0.4])
    assert [text for _, text, _, _ in memory.examples] == ["ab"]


def test_its_gate_read_out_and_rounding_have_other_defaults():
    plus, plain = chosen(name="ac2_plus"), chosen()
    assert (plus.gate.rule, plain.gate.rule) == ("pooled", "last_visit")
    assert (plus.gate.revocable, plain.gate.revocable) == (True, False)
    assert plus.config.gate.error_against == "rewards"
    assert plus.config.critic.readout == "expectation"
    assert plain.config.critic.readout == "greedy"
    assert plus.config.critic.weights == "separate"
    assert plain.config.critic.weights == "tied"
    assert (plus.target_grid, plain.target_grid) == (None, 6)
    # A section that names other keys keeps them.
    named = chosen(name="ac2_plus", gate={"window": 2}).config.gate
    assert (named.rule, named.window) == ("pooled", 2)


def test_an_audited_rollout_is_paid_chunk_by_chunk():
    """First known values .6 and .2: the mean is .4.

    cd: .6 - .4 = .2    ef: .3 - .6 = -.3    ah: 1 - .3 = .7;    ch: .2 - .4 = -.2
    """
    record, _, critic = stepped(boundary_credit=True)
    assert by_token(record, 0) == pytest.approx([0.2, 0.2, -0.3, -0.3, 0.7, 0.7])
    assert by_token(record, 1) == pytest.approx([-0.2, -0.2])
    assert len(critic.asked[0]) == 3
    # The chunks of a rollout add up to its reward less that mean.
    assert pytest.approx(1.0 - 0.4) == 0.2 - 0.3 + 0.7


@pytest.mark.parametrize(
    ("decay", "expected"),
    [
        # Changes .2, -.3, .7: the last alone, with half of the next, with all of them.
        (0.0, [0.2, -0.3, 0.7]),
        (0.5, [0.2 + 0.5 * 0.05, -0.3 + 0.5 * 0.7, 0.7]),
        (1.0, [1.0 - 0.4, 1.0 - 0.6, 1.0 - 0.3]),
    ],
)
def test_a_chunk_has_a_share_of_what_the_next_one_is_paid(decay, expected):
    record, _, _ = stepped(boundary_credit=True, boundary_lambda=decay)
    assert by_token(record, 0)[::2] == pytest.approx(expected)
    assert by_token(record, 1) == pytest.approx([-0.2, -0.2])


@pytest.mark.parametrize(
    ("silent", "expected"),
    [
        # cd .2, then efah: 1 - .6
        ("abcdef", [0.2, 0.2, 0.4, 0.4, 0.4, 0.4]),
        # The first mark is .3 behind four tokens; the mean (.3 + .2) / 2 = .25
        ("abcd", [0.05, 0.05, 0.05, 0.05, 0.7, 0.7]),
    ],
)
def test_a_border_that_was_not_valued_is_passed_over(silent, expected):
    record, _, _ = stepped(says=SAYS | {silent: None}, boundary_credit=True)
    assert by_token(record, 0) == pytest.approx(expected)


@pytest.mark.parametrize("keys", [{"ready": False}, {"audit_share": 0.0}])
def test_only_audited_rollouts_are_paid_by_their_borders(keys):
    says = SAYS | {"abch": 0.1}
    record, _, _ = stepped(says=says, boundary_credit=True, **keys)
    assert len(row_advantages(record)) == 2


def test_a_failed_audit_is_paid_nothing_and_counts_nowhere():
    rewards = REWARDS | {"abch": None}
    record, _, _ = stepped(rewards=rewards, boundary_credit=True)
    # Its first value is left out of the mean: .6 - .6, .3 - .6, 1 - .3
    assert by_token(record, 0) == pytest.approx([0, 0, -0.3, -0.3, 0.7, 0.7], abs=1e-6)
    assert by_token(record, 1) == [0.0, 0.0]


@pytest.mark.parametrize("ready", [True, False])
def test_one_rollout_of_a_group_that_ran_on_teaches_at_a_border_of_its_own(ready):
    """Its reward at `abcd` or `abcdef`; `ch` has no boundary inside it.

    Before the group's own example, so that it is forgotten first.
    """
    seen = set()
    for step in range(8):
        state = remembering(STORED, ready=["p1"] if ready else [], step=step)
        _, memory, _ = stepped(boundary_examples=True, state=state)
        boundary, group = memory.examples
        assert group == ("p1", "ab", 0.6, None)
        assert boundary[2] == 1.0
        seen.add(boundary[1])
    assert seen == {"abcd", "abcdef"}


def test_its_target_is_the_reward_on_the_grid_where_targets_are():
    rewards = REWARDS | {"abcdefah": 0.35}
    for rounding, target in (("none", 0.35), ("nearest", 0.3)):
        _, memory, _ = stepped(
            rewards=rewards, boundary_examples=True, target_rounding=rounding
        )
        assert memory.examples[0][2] == pytest.approx(target)


def test_one_border_of_a_group_is_taught_whoever_went_on():
    lines, seen = ["ccaah", "ddaah"], set()
    rewards = {"abccaah": 0.9, "abddaah": 0.3, "h": 0.0}
    for step in range(8):
        state = remembering(STORED, step=step)
        _, memory, _ = stepped(lines, {}, rewards, boundary_examples=True, state=state)
        assert len(memory.examples) == 2
        seen.add(memory.examples[0][1:3])
    assert seen == {("abcc", 0.9), ("abccaa", 0.9), ("abdd", 0.3), ("abddaa", 0.3)}


def test_what_was_stopped_or_not_judged_teaches_no_border():
    says = SAYS | {"abch": 0.1}
    _, memory, _ = stepped(says=says, boundary_examples=True, audit_share=0.0)
    assert [text for _, text, _, _ in memory.examples] == ["ab"]
    rewards = REWARDS | {"abcdefah": None}
    _, memory, _ = stepped(rewards=rewards, boundary_examples=True)
    assert [text for _, text, _, _ in memory.examples] == ["ab"]


@dataclass
class MovingLearner(IdleLearner):
    """Its log-probs grow by `moves` once it has taken a step."""

    moves: tuple[float, ...] = (0.0, 0.0)
    """Of each rollout's tokens."""
    calls: list[int] = field(default_factory=list)

    def logprobs(self, batch: Batch) -> Tensor:
        self.calls.append(len(self.advantages))
        grown = torch.tensor(self.moves)[:, None].expand(batch.token_ids.shape)
        moved = torch.where(batch.sampled, grown, 0.0)
        return moved if self.advantages else torch.zeros_like(moved)


def moving(*ratios, lengths=(6, 2)):
    """So that each continuation's probability grows by its ratio."""
    nothing = torch.zeros(0)
    moves = tuple(
        math.log(ratio) / length for ratio, length in zip(ratios, lengths, strict=True)
    )
    return MovingLearner(nothing, nothing, moves=moves)


@pytest.mark.parametrize(
    ("ratios", "keys", "target"),
    [
        # V = .5: .5 + 1.5 (1 - .5) = 1.25 and .5 + .5 (.2 - .5) = .35; their mean
        ((1.5, 0.5), {}, 0.8),
        ((1.0, 1.0), {}, 0.6),
        # The largest ratio that counts is 2, or as it is told.
        ((8.0, 1.0), {}, (1.5 + 0.2) / 2),
        ((8.0, 1.0), {"correction_cap": 1.2}, (1.1 + 0.2) / 2),
        ((1.5, 0.5), {"correction": "none"}, 0.6),
    ],
)
def test_targets_follow_the_policy_by_the_doubly_robust_rule(ratios, keys, target):
    """Y = V + ratio (v - V), V of the prefix."""
    section = {"correction": "doubly_robust"} | keys
    _, memory, _ = stepped(learner=moving(*ratios), **section)
    assert memory.examples == [("p1", "ab", pytest.approx(target, abs=1e-5), None)]


@pytest.mark.parametrize(
    "keys",
    [{"order": "critic_actor"}, {"joint_loss": True}, {"critic_targets": "bootstrap"}],
)
def test_a_correction_without_a_minibatch_to_follow_is_refused(keys):
    tied = {"critic.weights": "tied", "correction": "doubly_robust"}
    with pytest.raises(RecipeError, match=r"set algorithm\.correction"):
        chosen(reads({}), "ac2_plus", **tied, **keys)


def test_border_credit_without_the_mean_of_the_siblings_is_refused():
    with pytest.raises(RecipeError, match="take 'group_mean'"):
        chosen(reads({}), "ac2_plus", baseline="leave_one_out")


def test_where_the_prefix_has_no_value_the_group_s_mean_stands_for_it():
    """.6 + 1.5 (1 - .6) = 1.2 and .6 + .5 (.2 - .6) = .4"""
    _, memory, _ = stepped(
        says=SAYS | {"ab": None},
        learner=moving(1.5, 0.5),
        correction="doubly_robust",
    )
    assert memory.examples[0][2] == pytest.approx(0.8, abs=1e-5)


def test_the_gate_is_told_the_error_of_before_the_correction():
    """|.5 - .6|, not |.5 - .8|."""
    _, memory, _ = stepped(learner=moving(1.5, 0.5), correction="doubly_robust")
    assert memory.gate.window[-1] == pytest.approx((0.1,))


def test_the_correction_s_passes_are_paid():
    plain, _, _ = stepped(learner=moving(1.5, 0.5))
    paid, _, _ = stepped(learner=moving(1.5, 0.5), correction="doubly_robust")
    # Twice over rows of 2 + 8 and 2 + 4 tokens: 88 L + 8 L (L + 1) / 2
    expected = 2 * (88 * 10 + 8 * 55 + 88 * 6 + 8 * 21)
    assert paid.cost.train_flops - plain.cost.train_flops == pytest.approx(expected)


ERRORS = {"p1": Track(ready=True, nonzero_seen=True, num_errors=4, total=0.8)}
"""A mean error of .2."""


@pytest.mark.parametrize(
    ("signal", "variance", "keys", "count"),
    [
        # (.2 / .1)^2 = 4 chunks, at most 3
        (1.0, 0.01, {}, 3),
        # 4 up to rounding, and no more than that
        (1.0, 0.01, {"max_chunks": 5}, 4),
        # (.15 / .1)^2 = 2.25
        (0.75, 0.01, {}, 3),
        (0.6, 0.01, {}, 2),
        (0.5, 0.01, {}, 1),
        (0.1, 0.01, {}, 1),
        (None, 0.01, {}, 1),
        # Where the critic says one thing of everything, longer chunks do not help.
        (1.0, 0.0, {}, 1),
        (1.0, 1.0, {}, 1),
    ],
)
def test_chunks_grow_until_their_credit_exceeds_the_critic_s_error(
    signal, variance, keys, count
):
    """n = (signal error / s)^2 chunks, rounded up."""
    algorithm_ = chosen(
        reads({}), "ac2_plus", **(PLAIN | keys | {"chunk_signal": signal})
    )
    state = remembering(STORED, tracks=ERRORS, spreads={"p1": (2, 2 * variance)})
    assert algorithm_.rules.chunks(state.memory, "p1") == count


def test_a_longer_chunk_stops_the_rollouts_later():
    state = remembering(STORED, tracks=ERRORS, spreads={"p1": (2, 0.02)})
    record, _, _ = stepped(
        ["cccccccc", "dddddddd"],
        {},
        state=state,
        audit_share=0.0,
        chunk_signal=1.0,
    )
    assert record.batch.sampled.sum(1).tolist() == [6, 6]


def test_what_nobody_knows_of_a_problem_leaves_its_chunk():
    algorithm_ = chosen(reads({}), "ac2_plus", **(PLAIN | {"chunk_signal": 1.0}))
    for state in (
        remembering(STORED),
        remembering(STORED, tracks=ERRORS),
        remembering(STORED, spreads={"p1": (2, 0.02)}),
        remembering(STORED, tracks={"p1": Track()}, spreads={"p1": (2, 0.02)}),
    ):
        assert algorithm_.rules.chunks(state.memory, "p1") == 1


@pytest.mark.parametrize(
    ("signal", "says", "added"),
    [
        # Stopped behind two tokens: .6 and .2, and (.2^2 + .2^2) / 1 = .08
        (None, {"abcd": 0.6, "abcc": 0.2}, 0.08),
        # Behind three chunks the same is shared among them.
        (1.0, {"abcdefag": 0.6, "abcccccc": 0.2}, 0.08 / 3),
    ],
)
def test_the_spread_of_values_a_chunk_on_is_remembered(signal, says, added):
    """Beside .02 of two groups before."""
    state = remembering(STORED, tracks=ERRORS, spreads={"p1": (2, 0.02)})
    lines = ["cdefagaa", "ccccccaa"]
    keys = {"audit_share": 0.0, "chunk_signal": signal}
    _, memory, _ = stepped(lines, says, {"h": 0.0}, state=state, **keys)
    assert memory.spreads == {"p1": (3, pytest.approx(0.02 + added))}


def test_a_spread_needs_two_siblings_that_the_critic_valued():
    """Only the first goes beyond its boundary."""
    state = remembering(STORED, ready=["p1"], spreads={"p1": (3, 0.1)})
    _, memory, _ = stepped(state=state)
    assert memory.spreads == {"p1": (3, 0.1)}


@pytest.mark.parametrize(
    ("num_audits", "half_life", "share"),
    [
        (0, 4.0, 0.25),
        (4, 4.0, 0.125),
        (5, 4.0, 0.25 * 0.5**1.25),
        (99, 4.0, 0.1),
        (8, None, 0.25),
    ],
)
def test_audits_of_a_problem_thin_out_with_every_half_life(
    num_audits, half_life, share
):
    tracks = {"p1": Track(ready=True, num_audits=num_audits)}
    state = remembering(STORED, tracks=tracks)
    keys = PLAIN | {"audit_half_life": half_life, "prompts_per_step": 16}
    algorithm_ = chosen(reads({}), "ac2_plus", audit_share=0.25, **keys)
    assert algorithm_.rules.audits(state.memory, "p1") == pytest.approx(share)
    assert algorithm_.rules.audits(state.memory, "p2") == 0.25
    world = spoken_world(lambda *_: "cccccccc")
    record = advance(algorithm_, state, world)[1]
    assert int(record.section(Routing).audited.sum()) == math.ceil(16 * share)


def test_the_smallest_share_is_a_knob_and_never_above_the_share_itself():
    tracks = {"p1": Track(ready=True, num_audits=99)}
    known_state = remembering(STORED, tracks=tracks)
    for least, share, expected in ((0.2, 0.25, 0.2), (0.5, 0.25, 0.25)):
        keys = {"audit_half_life": 4.0, "smallest_audit_share": least}
        algorithm_ = chosen(reads({}), "ac2_plus", audit_share=share, **(PLAIN | keys))
        memory = known_state.memory
        assert algorithm_.rules.audits(memory, "p1") == expected


def test_audits_are_counted_by_problem():
    state = remembering(STORED, ready=["p1"])
    world = spoken_world(lambda *_: "ch", lambda text: 0.5)
    algorithm_ = chosen(reads({}), "ac2_plus", audit_share=1.0, **PLAIN)
    state, _ = advance(algorithm_, state, world)
    assert memory_in(state).gate.tracks["p1"].num_audits == 1
