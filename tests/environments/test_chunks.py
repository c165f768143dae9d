"""Where a continuation is stopped, and what is judged there all the same."""

from dataclasses import replace

import pytest

from ac2_worlds import ids, spoken_world, text_of
from accredit.environments.single_turn import CHUNK_ENDED, NO_ROOM
from accredit.types import Prefix, Sampling, StopReason
from worlds import prompts, share_of_a

ONE = prompts(1)[0]
SAMPLING = Sampling()


def went_on(line, prefix, answered=None, group_size=1, **options):
    """Rollout, verdict, texts that were judged, and what the engine was asked for."""
    judged = []

    def reward(text):
        judged.append(text)
        return share_of_a(text)

    keys = {} if answered is None else {"answered": answered}
    world = spoken_world(lambda *_: line, reward, **keys, **options)
    environment = world.environment
    (group,) = environment.continue_from([prefix], group_size, SAMPLING, ("t",))
    asked = [request.max_new_tokens for request in world.engine.asked[0]]
    return group.rollouts[0], group.verdicts[0], judged, asked


@pytest.mark.parametrize("chunk", [1, 2, 3, 5])
def test_a_stopped_rollout_is_exactly_a_chunk_of_new_tokens_and_not_judged(chunk):
    prefix = Prefix(ONE, ids("cc"), chunk)
    rollout, verdict, judged, asked = went_on("abababab", prefix)
    assert asked == [chunk]
    assert rollout.num_sampled == chunk
    assert text_of(rollout.completion_ids) == "cc" + "abababab"[:chunk]
    assert rollout.stop_reason is StopReason.CHUNK
    assert (verdict.reward, verdict.reason, judged) == (None, CHUNK_ENDED, [])


def test_without_a_chunk_it_runs_to_its_end():
    rollout, verdict, judged, asked = went_on("abababah", Prefix(ONE, ids("cc")))
    assert asked == [8]
    assert rollout.stop_reason is StopReason.STOP
    assert judged == ["ccabababah"]
    assert verdict.reward == 0.4


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        # It stops by itself before the boundary, and right at it.
        ("ah", StopReason.STOP),
        ("aah", StopReason.STOP),
    ],
)
def test_one_that_ends_by_itself_within_its_chunk_is_judged(line, reason):
    rollout, verdict, judged, _ = went_on(line, Prefix(ONE, ids("b"), 3))
    assert rollout.stop_reason is reason
    assert judged == ["b" + line]
    assert verdict.reward == pytest.approx((len(line) - 1) / (len(line) + 1))


@pytest.mark.parametrize(
    ("written", "stopped"),
    [("bbbbbb", True), ("bbbbbbb", False), ("bbbbbbbb", False), ("bbbbbbbbb", False)],
)
def test_one_that_ends_exactly_at_the_budget_is_judged(written, stopped):
    """Pitfall 9: budget 10, chunk 3; from 7 tokens on, the budget ends it."""
    prefix = Prefix(ONE, ids(written), 3)
    rollout, verdict, judged, asked = went_on("aaaa", prefix)
    assert asked == [min(3, 10 - len(written))]
    if stopped:
        assert rollout.stop_reason is StopReason.CHUNK
        assert (verdict.reward, judged) == (None, [])
    else:
        new = 10 - len(written)
        assert rollout.stop_reason is StopReason.LENGTH
        assert judged == [written + "a" * new]
        assert verdict.reward == pytest.approx(new / 10)


def test_one_that_the_context_ends_at_its_border_is_judged_too():
    """Context 6 = prompt 1 + written 2 + chunk 3."""
    world = spoken_world(lambda *_: "aaaa")
    environment = replace(world.environment, max_context_tokens=6)
    (group,) = environment.continue_from(
        [Prefix(ONE, ids("bb"), 3)], 1, SAMPLING, ("t",)
    )
    assert group.rollouts[0].stop_reason is StopReason.LENGTH
    assert group.verdicts[0].reward == pytest.approx(0.6)


def test_where_no_room_is_left_what_is_written_is_judged():
    prefix = Prefix(ONE, ids("a" * 10), 3)
    world = spoken_world(lambda *_: "b")
    (group,) = world.environment.continue_from([prefix], 2, SAMPLING, ("t",))
    assert [r.num_sampled for r in group.rollouts] == [0, 0]
    assert [v.reward for v in group.verdicts] == [1.0, 1.0]
    assert world.engine.asked == []
    prompt = replace(ONE, token_ids=tuple([0] * 6))
    tight = replace(world.environment, max_context_tokens=6)
    (none,) = tight.continue_from([Prefix(prompt, (), 3)], 1, SAMPLING, ("t",))
    assert none.verdicts[0].reason == NO_ROOM


def done_at_g(problem, text):
    return "g" in text


def test_an_answer_that_is_there_at_the_border_is_judged():
    prefix = Prefix(ONE, ids("b"), 3)
    rollout, verdict, judged, _ = went_on("agab", prefix, done_at_g)
    assert rollout.stop_reason is StopReason.ENVIRONMENT
    assert rollout.stop_reason.finished
    assert judged == ["baga"]
    assert verdict.reward == 0.5
    # One that comes in the replayed part counts as well: nothing is open any more.
    rollout, _, judged, _ = went_on("aaaa", Prefix(ONE, ids("g"), 3), done_at_g)
    assert rollout.stop_reason is StopReason.ENVIRONMENT
    assert judged == ["gaaa"]
    # One that would have come behind the boundary is not there.
    rollout, _, judged, _ = went_on("aaag", prefix, done_at_g)
    assert (rollout.stop_reason, judged) == (StopReason.CHUNK, [])


def test_an_answer_ends_nothing_where_no_chunk_does():
    rollout, _, judged, _ = went_on("agaaaaaaaa", Prefix(ONE), done_at_g)
    assert rollout.stop_reason is StopReason.LENGTH
    assert judged == ["agaaaaaaaa"]


def test_what_the_engine_ends_early_by_itself_is_no_chunk():
    """Two tokens and LENGTH, where three were asked for: the budget is not known."""
    rollout, verdict, judged, _ = went_on("aa", Prefix(ONE, ids("b"), 3))
    assert rollout.stop_reason is StopReason.LENGTH
    assert (judged, verdict.reward) == (["baa"], pytest.approx(2 / 3))


def test_siblings_may_end_in_different_ways():
    lines = ("aah", "aaaa", "ab")
    world = spoken_world(lambda problem, text, sibling: lines[sibling])
    prefix = Prefix(ONE, (), 3)
    (group,) = world.environment.continue_from([prefix], 3, SAMPLING, ("t",))
    assert [rollout.stop_reason for rollout in group.rollouts] == [
        StopReason.STOP,
        StopReason.CHUNK,
        StopReason.LENGTH,
    ]
    assert [verdict.reward for verdict in group.verdicts] == [
        pytest.approx(2 / 3),
        None,
        0.5,
    ]


def test_whether_an_answer_is_there_is_asked_of_the_text():
    asked = []

    def answered(problem, text):
        asked.append((problem.id, text))
        return len(text) > 2

    environment = spoken_world(lambda *_: "a", answered=answered).environment
    assert not environment.has_answer(ONE, ids("ab"))
    assert environment.has_answer(ONE, ids("abc"))
    assert asked == [("p0", "ab"), ("p0", "abc")]


def test_a_thought_that_looks_like_an_answer_ends_no_episode():
    """The task is asked about what `read` makes of prompt and completion."""
    seen = []

    def read(prompt_ids, written):
        seen.append((tuple(prompt_ids), text_of(written)))
        return "<think>" + text_of(written)

    def answered(problem, text):
        return "g" in text and not text.startswith("<think>")

    world = spoken_world(lambda *_: "agab", answered=answered)
    prefix = Prefix(ONE, ids("b"), 3)
    for environment, reason in (
        (world.environment, StopReason.ENVIRONMENT),
        (replace(world.environment, read=read), StopReason.CHUNK),
    ):
        (group,) = environment.continue_from([prefix], 1, SAMPLING, ("t",))
        assert group.rollouts[0].stop_reason is reason
        assert environment.has_answer(ONE, ids("bag")) is (
            reason is not StopReason.CHUNK
        )
    assert seen == [(ONE.token_ids, "baga"), (ONE.token_ids, "bag")]


def test_a_chunk_holds_a_token_or_more():
    with pytest.raises(ValueError, match="a chunk must hold a token or more, got 0"):
        Prefix(ONE, (), 0)
