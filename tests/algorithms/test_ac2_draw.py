"""Steps 1 to 4 of AC2: refill, slots, cuts, routes, continuations."""

from collections import Counter
from itertools import pairwise

import pytest

from ac2_worlds import (
    chosen,
    memory_in,
    one_step,
    reads,
    remembering,
    spoken_world,
    text_of,
    texts,
)
from accredit.loops.synchronous import advance, first_state
from accredit.types import StopReason
from worlds import algorithm, moved, small_world, weights

pytestmark = pytest.mark.whole_run

STORED = [("p0", "abcdefabcd", 0.2), ("p1", "bbbbbbbb", 0.0)]
ENDLESS = "abcdefgabcdefg"
names = pytest.mark.parametrize("name", ["prefix_grpo", "ac2", "ac2_plus"])


def endless(problem, text, sibling):
    return ENDLESS


def built(name="ac2", **keys):
    return chosen(None if name == "prefix_grpo" else reads({}), name, **keys)


@names
def test_the_refill_is_stored_for_the_next_step_and_never_trained_on(name):
    after = []
    for fresh in ("aah", "ffffh"):

        def lines(problem, text, sibling, fresh=fresh):
            # Fresh rollouts are the first siblings at an empty prefix.
            return fresh if text == "" and sibling == 0 else ["ab", "ca"][sibling]

        world = spoken_world(lines, learner=small_world().learner)
        algorithm_ = built(name, num_refill=2, largest_cut_share=0.85, cut_grid=8)
        state = remembering([("p0", "abcdefabcd", 0.2)], step=cut_at_eight(algorithm_))
        _, record, memory = one_step(algorithm_, world, state)
        assert texts(record) == ["abcdefabab", "abcdefabca"]
        stored = memory.stored
        assert stored[0] == ("p0", "abcdefabcd", 0.2)
        assert [text for _, text, _ in stored[1:]] == [fresh] * 2
        assert stored[1][2] == pytest.approx({"aah": 2 / 3, "ffffh": 0}[fresh])
        after.append(weights(world))
        # They are paid for all the same.
        generated = 4 + 2 * len(fresh)
        assert record.cost.tokens_generated == generated
        assert record.counts["rollouts_drawn"] == 4
    assert all(bool((after[0][key] == after[1][key]).all()) for key in after[0])


def cut_at_eight(algorithm_):
    """The first step whose only slot is cut behind eight tokens, of 0 and 8."""
    for step in range(20):
        state = remembering([("p0", "abcdefabcd", 0.2)], step=step)
        world = spoken_world(endless)
        _, record, _ = one_step(algorithm_, world, state)
        if len(record.groups[0].rollouts[0].completion_ids) - 8 == int(
            record.batch.sampled[0].sum()
        ):
            return step
    raise AssertionError("half of all steps should do")


@names
def test_with_an_empty_store_the_slots_are_fresh_and_trained_on(name):
    world = spoken_world(
        lambda problem, text, sibling: ["aa", "bc", "af"][sibling],
        learner=small_world().learner,
    )
    before = weights(world)
    algorithm_ = built(name, prompts_per_step=2, group_size=3, num_refill=3)
    state, record, memory = one_step(algorithm_, world)
    source = [prompt.problem.id for prompt in world.problems.draw(0, 5)]
    # The refill comes first, the slots go on behind it.
    assert [name for name, _, _ in memory.stored] == source[:3]
    assert [group.prompt.problem.id for group in record.groups] == source[3:]
    assert state.num_drawn == 5
    assert texts(record) == ["aa", "bc", "af"] * 2
    assert moved(world, before)


@names
def test_from_then_on_slots_come_from_the_store_and_only_the_refill_is_drawn(name):
    world = spoken_world(lambda problem, text, sibling: ["aa", "bc"][sibling % 2])
    algorithm_ = built(name, prompts_per_step=2, num_refill=3)
    state, _, memory = one_step(algorithm_, world)
    known = {name for name, _, _ in memory.stored}
    state, record, _ = one_step(algorithm_, world, state)
    assert {group.prompt.problem.id for group in record.groups} <= known
    assert state.num_drawn == 5 + 3


@names
def test_a_run_without_its_store_begins_anew(name):
    """Also in the middle of a run: nothing is left to go on from."""
    world = spoken_world(endless)
    state, record, memory = one_step(built(name), world, remembering([], step=7))
    assert record.batch.num_rollouts == 2
    assert len(memory.stored) == 1
    assert state.num_drawn == 2


@names
def test_what_the_data_no_longer_hold_is_passed_over(name):
    stored = [("gone", "aaaa", 0.5), ("p1", "bbbb", 0.5)]
    algorithm_ = built(name, prompts_per_step=4)
    _, record, memory = one_step(algorithm_, spoken_world(endless), remembering(stored))
    assert [g.prompt.problem.id for g in record.groups] == ["p1"] * 4
    # It stays in store until it is pushed out.
    assert memory.stored[0][0] == "gone"


@names
def test_distinct_problems_are_permuted_and_cycled(name):
    """p0 has three of five rollouts in store and is drawn as often as the others."""
    stored = [("p0", "aaaa", 0.1), ("p0", "bbbb", 0.2), ("p1", "cccc", 0.3)]
    stored += [("p0", "dddd", 0.4), ("p2", "eeee", 0.5)]
    algorithm_ = built(name, prompts_per_step=7)
    firsts, written = Counter(), Counter()
    for step in range(16):
        state = remembering(stored, step=step)
        _, record, _ = one_step(algorithm_, spoken_world(lambda *_: "ab"), state)
        problems = [group.prompt.problem.id for group in record.groups]
        assert sorted(problems[:3]) == ["p0", "p1", "p2"]
        assert problems[3:6] == problems[:3]
        assert problems[6] == problems[0]
        firsts[problems[0]] += 1
        written.update(
            text_of(group.rollouts[0].completion_ids)[0]
            for group in record.groups
            if group.prompt.problem.id == "p0"
            and len(group.rollouts[0].completion_ids) > 2
        )
    assert len(firsts) == 3
    # Any of a problem's rollouts may be the one to go on from.
    assert set(written) == set("abd")


@names
@pytest.mark.parametrize(
    ("length", "keys", "cuts"),
    [
        # .9 * 10 = 9, and multiples of the chunk of 2
        (10, {}, {0, 2, 4, 6, 8}),
        # .9 * 8 = 7.2
        (8, {}, {0, 2, 4, 6}),
        # A grid of its own: 9 = .9 * 10 is allowed.
        (10, {"cut_grid": 3}, {0, 3, 6, 9}),
        (10, {"cut_grid": 3, "largest_cut_share": 0.89}, {0, 3, 6}),
        (10, {"largest_cut_share": 0.5}, {0, 2, 4}),
        # One chunk or less can only be begun anew.
        (2, {}, {0}),
        (1, {}, {0}),
        # The chunk without the grid moves no cut.
        (10, {"cut_grid": 2, "chunk_length": 5}, {0, 2, 4, 6, 8}),
    ],
)
def test_a_cut_lies_on_the_grid_within_the_first_nine_tenths(name, length, keys, cuts):
    text = "abcdefgabc"[:length]
    algorithm_ = built(name, prompts_per_step=40, **keys)
    state = remembering([("p0", text, 0.5)])
    _, record, _ = one_step(algorithm_, spoken_world(lambda *_: "dd"), state)
    rollouts = [group.rollouts[0] for group in record.groups]
    found = [len(r.completion_ids) - r.num_sampled for r in rollouts]
    counts = Counter(found)
    assert set(counts) == cuts
    # Uniform: 40 draws over at most five cuts.
    assert min(counts.values()) > 40 / len(cuts) / 5
    for rollout, cut in zip(rollouts, found, strict=True):
        assert text_of(rollout.completion_ids[:cut]) == text[:cut]


@names
def test_the_replayed_tokens_are_conditioning_only(name):
    algorithm_ = built(name, prompts_per_step=8, num_minibatches=1)
    state = remembering([("p1", "abcdefabcd", 0.5)])
    world = spoken_world(
        lambda problem, text, sibling: ["ab", "fc"][sibling % 2],
        learner=small_world().learner,
    )
    _, record, _ = one_step(algorithm_, world, state)
    batch, replayed = record.batch, 0
    for row, group in enumerate(batch.group_index.tolist()):
        rollout = record.groups[group].rollouts[row % 2]
        written = len(rollout.completion_ids) - 2
        replayed += written
        start = len(rollout.prompt.token_ids) + written
        assert not batch.sampled[row, :start].any()
        assert batch.sampled[row, start : start + 2].all()
        assert not record.credit.advantages[row, :start].any()
        assert not record.policy.logprobs[row, :start].any()
    assert replayed > 8
    assert record.credit.advantages.abs().max() > 0


@pytest.mark.parametrize(
    ("chunk", "budget", "stopped"), [(2, 10, 2), (3, 10, 3), (4, 10, 4), (5, 7, 5)]
)
def test_a_stopped_rollout_is_exactly_a_chunk_of_new_tokens(chunk, budget, stopped):
    """Prefixes count for the budget: what it ends is not stopped."""
    algorithm_ = built(
        prompts_per_step=20, chunk_length=chunk, audit_share=0.0, budget=budget
    )
    state = remembering([("p1", "abcdefa", 0.5)], ready=["p1"])
    world = spoken_world(endless, max_new_tokens=budget)
    _, record, _ = one_step(algorithm_, world, state)
    seen = set()
    for group in record.groups:
        for rollout in group.rollouts:
            replayed = len(rollout.completion_ids) - rollout.num_sampled
            room = budget - replayed
            seen.add(room > chunk)
            assert rollout.num_sampled == min(stopped, room)
            is_stopped = rollout.stop_reason is StopReason.CHUNK
            assert is_stopped == (room > chunk)
            assert len(rollout.completion_ids) <= budget
    assert True in seen


def test_a_chunk_is_a_fifth_of_the_budget_and_the_grid_a_chunk():
    assert [algorithm("ac2", budget).chunk for budget in (1, 5, 6, 10, 50_000)] == [
        1,
        1,
        2,
        2,
        10_000,
    ]
    both = algorithm("ac2", 10, chunk_length=3)
    assert (both.chunk, both.grid) == (3, 3)
    apart = algorithm("ac2", 10, chunk_length=3, cut_grid=4)
    assert (apart.chunk, apart.grid) == (3, 4)


@names
def test_every_prefix_has_its_continuations(name):
    algorithm_ = built(name, prompts_per_step=3, group_size=5)
    state = remembering(STORED, ready=["p0"])
    _, record, _ = one_step(algorithm_, spoken_world(endless), state)
    assert record.batch.group_index.tolist() == [0] * 5 + [1] * 5 + [2] * 5
    for group in record.groups:
        replayed = {
            tuple(r.completion_ids[: len(r.completion_ids) - r.num_sampled])
            for r in group.rollouts
        }
        assert len(replayed) == 1


@names
@pytest.mark.parametrize("admission", ["all", "passed"])
def test_the_store_admits_every_judged_rollout_or_only_those_that_passed(
    name, admission
):
    """Rewards 1, 6/7 (up to rounding), .8 and none."""
    said = {"p0": "a", "p1": "b", "p2": "c", "p3": "d"}
    worth = {"a": 1.0, "b": 6 / 7 - 1e-7, "c": 0.8, "d": None}
    world = spoken_world(
        lambda problem, text, sibling: said[problem],
        lambda text: worth[text],
        num_prompts=4,
    )
    algorithm_ = built(name, num_refill=4, admission=admission)
    _, _, memory = one_step(algorithm_, world)
    expected = {"p0": 1.0, "p1": 6 / 7 - 1e-7}
    if admission == "all":
        expected["p2"] = 0.8
    assert {p: r for p, _, r in memory.stored} == pytest.approx(expected)


@names
def test_the_pass_mark_is_a_knob(name):
    world = spoken_world(lambda *_: "ab", lambda text: 0.5)
    low = built(name, admission="passed", pass_mark=0.5)
    high = built(name, admission="passed", pass_mark=0.51)
    assert len(one_step(low, world)[2].stored) == 1
    assert one_step(high, world)[2].stored == []


@names
def test_a_stale_store_is_refilled_at_once_every_few_steps(name):
    algorithm_ = built(name, num_refill=2, refill_every=3)
    world, sizes, drawn = spoken_world(endless), [], []
    state = first_state(algorithm_)
    for _ in range(5):
        state, _ = advance(algorithm_, state, world)
        sizes.append(len(memory_in(state).stored))
        drawn.append(state.num_drawn)
    # Steps 0 and 3 draw six problems each; the store holds eight.
    assert sizes == [6, 6, 6, 8, 8]
    # And one slot is fresh in the first step.
    assert drawn == [7, 7, 7, 13, 13]


@names
def test_the_oldest_leave_the_store_first(name):
    algorithm_ = built(name, num_refill=3, replay_capacity=4)
    stored = [("p0", text, 0.5) for text in ("aa", "bb", "cc")]
    state = remembering(stored, capacity=algorithm_.initial_memory.rollouts.capacity)
    _, _, memory = one_step(algorithm_, spoken_world(lambda *_: "dd"), state)
    assert [text for _, text, _ in memory.stored] == ["cc", "dd", "dd", "dd"]


@names
def test_draws_of_a_step_depend_on_its_number_and_the_seed(name):
    def cuts(seed, step):
        state = remembering([("p1", "abcdefabcd", 0.5)], step=step)
        world = spoken_world(endless, seed=seed)
        _, record, _ = one_step(built(name, prompts_per_step=6), world, state)
        return [
            len(g.rollouts[0].completion_ids) - g.rollouts[0].num_sampled
            for g in record.groups
        ]

    found = [cuts(0, 1), cuts(0, 1), cuts(0, 2), cuts(1, 1)]
    assert found[0] == found[1]
    assert all(a != b for a, b in pairwise(found[1:]))
