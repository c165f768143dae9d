"""The clock, the measured parts, and the two ledgers by hand."""

import time
from dataclasses import replace

import pytest
import torch

from accredit.batches.collate import collate
from accredit.functional.flops import ModelShape
from accredit.records import Cost, PolicyUpdate
from accredit.types import (
    Completion,
    Group,
    Message,
    Problem,
    Prompt,
    Request,
    Rollout,
    Sampling,
    StopReason,
    Verdict,
)
from accredit.world import (
    Clock,
    TimedEngine,
    TimedVerifier,
    forward_cost,
    rollout_cost,
    update_cost,
    valuation_cost,
)

# Per token: attention 4 projections of 2 x 2, feed-forward 3 of 2 x 3, logits 2 x 5:
# A = 2 (16 + 18 + 10) = 88, of which logits 20. Per token of context B = 4 x 2 = 8.
SHAPE = ModelShape(
    num_layers=1,
    hidden=2,
    feed_forward=3,
    num_heads=1,
    num_kv_heads=1,
    head_dim=2,
    vocab=5,
)
ASKED = Prompt(Problem("a", (Message("user", "?"),)), (1, 2, 3))


def rollout(flags: str, stop_reason: StopReason = StopReason.STOP) -> Rollout:
    """`flags` after the prompt: s sampled, o observed."""
    sampled = torch.tensor([False] * 3 + [flag == "s" for flag in flags])
    logprobs = torch.where(sampled, -1.0, 0.0)
    token_ids = torch.tensor([1, 2, 3] + [4] * len(flags))
    return Rollout(ASKED, token_ids, sampled, logprobs, stop_reason)


def group(*flags: str) -> Group:
    members = tuple(map(rollout, flags))
    return Group(ASKED, members, (Verdict(1.0),) * len(members))


def test_one_rollout_by_hand():
    """Four tokens behind a prompt of three: the first is the prefill's."""
    cost = rollout_cost([group("ssss")], SHAPE)
    assert cost.decode_flops == 88 * 3 + 8 * (3 * 3 + 6)
    assert cost.prefill_flops == (88 - 20) * 3 + 20 + 8 * (1 + 2 + 3)
    assert (cost.tokens_generated, cost.num_verifications) == (4, 1)
    assert cost.train_flops == cost.evaluation_flops == 0


def test_siblings_share_one_prefill_and_other_groups_do_not():
    alone = rollout_cost([group("ss")], SHAPE)
    siblings = rollout_cost([group("ss", "ss", "ss")], SHAPE)
    assert siblings.prefill_flops == alone.prefill_flops
    assert siblings.decode_flops == 3 * alone.decode_flops
    two = rollout_cost([group("ss"), group("ss")], SHAPE)
    assert two.prefill_flops == 2 * alone.prefill_flops


def test_a_later_turn_reads_only_what_is_new():
    """Two tokens, two observed, two tokens: prefixes of 3, then 7 with 4 read.

    The second token was sampled, but nothing has been predicted from it yet.
    """
    cost = rollout_cost([group("ssooss")], SHAPE)
    assert cost.decode_flops == (88 + 8 * (3 + 1)) + (88 + 8 * (7 + 1))
    prefix = 68 * 3 + 20 + 8 * 6
    assert cost.prefill_flops == prefix + 68 * 3 + 20 + 8 * (5 + 6 + 7)
    assert cost.tokens_generated == 4


def test_what_the_verifier_could_not_tell_was_still_asked():
    members = (rollout("s"), rollout("s"))
    verdicts = (Verdict(0.0), Verdict(None, "hung"))
    cost = rollout_cost([Group(ASKED, members, verdicts)], SHAPE)
    assert (cost.num_verifications, cost.tokens_generated) == (2, 2)


def test_what_failed_or_stopped_at_a_chunk_is_not_verified_and_costs_its_tokens():
    """One of each reason: three are sent to a verifier, all five were decoded."""
    members = tuple(rollout("ss", reason) for reason in StopReason)
    verdicts = (Verdict(None, "not asked"),) * len(members)
    cost = rollout_cost([Group(ASKED, members, verdicts)], SHAPE)
    assert (cost.num_verifications, cost.tokens_generated) == (3, 10)
    assert cost.decode_flops == 5 * (88 + 8 * (3 + 1))
    assert cost.num_questions == 0


def test_an_empty_completion_costs_nothing():
    assert rollout_cost([group("")], SHAPE) == Cost()
    assert rollout_cost([], SHAPE) == Cost()


def policy_update(num_forward: int, num_backward: int) -> PolicyUpdate:
    nothing = torch.zeros(1, 4)
    return PolicyUpdate(
        old_logprobs=nothing,
        logprobs=nothing,
        entropies=nothing,
        reference_logprobs=None,
        losses=(0.0,),
        gradient_norms=(0.0,),
        learning_rate=1.0,
        num_skipped=0,
        num_forward_tokens=num_forward,
        num_backward_tokens=num_backward,
    )


def test_an_update_costs_its_passes_and_a_skipped_one_nothing():
    """A row of 4 tokens forward costs 88 x 4 + 8 x 10; backward twice that."""
    batch = collate([group("s")])
    forward = 88 * 4 + 8 * 10
    cost = update_cost(policy_update(4, 4), batch, SHAPE)
    assert cost == Cost(train_flops=3.0 * forward)
    twice = update_cost(policy_update(8, 4), batch, SHAPE)
    assert twice.train_flops == pytest.approx(4 * forward)
    assert update_cost(None, batch, SHAPE) == Cost()


def test_a_pass_without_gradient_ends_at_the_last_sampled_token():
    """Rows of 4 and 6 tokens, the second with two trailing observations."""
    batch = collate([group("s", "soo")])
    both = 2.0 * (88 * 4 + 8 * 10)
    assert forward_cost(batch, SHAPE, num_passes=1) == Cost(train_flops=both)
    assert forward_cost(batch, SHAPE, num_passes=3).train_flops == pytest.approx(
        3 * both
    )


def test_costs_add_up():
    first = Cost(1.0, 2.0, 3.0, 4.0, 5.0, 6, 7, 8)
    assert first + first == Cost(2.0, 4.0, 6.0, 8.0, 10.0, 12, 14, 16)
    assert first.total_flops == 15.0


def test_a_critics_answers_are_in_the_full_ledger_and_not_in_decoding():
    cost = valuation_cost(12.5, 3)
    assert cost == Cost(critic_flops=12.5, num_questions=3)
    assert (cost.total_flops, cost.decode_flops) == (12.5, 0.0)


def test_the_clock_adds_by_name_and_starts_afresh():
    clock = Clock()
    for seconds in (0.01, 0.02):
        with clock.measure("verify"):
            time.sleep(seconds)
    with clock.measure("step"), clock.measure("update"):
        pass
    times = clock.drain()
    assert times.keys() == {"verify", "step", "update"}
    assert times["verify"] >= 0.03
    assert times["update"] <= times["step"]
    assert clock.drain() == {}


def test_time_is_counted_where_the_block_fails():
    clock = Clock()
    with pytest.raises(KeyError), clock.measure("generate"):
        raise KeyError
    assert "generate" in clock.drain()


class Echo:
    """An engine that answers with the request's last token."""

    def __init__(self) -> None:
        self.version = 7
        self.model: object = None

    def generate(self, requests, sampling):
        return [
            Completion(request.token_ids[-1:], (-1.0,), StopReason.STOP)
            for request in requests
        ]

    def load(self, model, version):
        self.model, self.version = model, version


class Fixed:
    """A verifier that gives every rollout .5."""

    closed = False

    def verify(self, items):
        return [Verdict(0.5) for _ in items]

    def close(self):
        self.closed = True


def test_measured_parts_answer_as_the_parts_themselves():
    clock, engine, verifier = Clock(), Echo(), Fixed()
    timed = TimedEngine(engine, clock)
    (completion,) = timed.generate([Request((4, 9), 1, 0)], Sampling())
    assert completion.token_ids == (9,)
    assert timed.version == 7
    timed.load("weights", 8)
    assert (engine.model, engine.version, timed.version) == ("weights", 8, 8)
    judged = TimedVerifier(verifier, clock)
    assert judged.verify([(ASKED.problem, "x", rollout("s"))]) == [Verdict(0.5)]
    judged.close()
    assert verifier.closed
    assert clock.drain().keys() == {"generate", "sync", "verify"}


def test_a_rejected_group_costs_what_a_kept_one_costs():
    other = replace(ASKED, token_ids=(1, 2))
    kept = group("ss")
    short = Rollout(
        other,
        torch.tensor([1, 2, 4]),
        torch.tensor([False, False, True]),
        torch.tensor([0.0, 0.0, -1.0]),
        StopReason.LENGTH,
    )
    rejected = Group(other, (short,), (Verdict(0.0),))
    both = rollout_cost([kept, rejected], SHAPE)
    assert both == rollout_cost([kept], SHAPE) + rollout_cost([rejected], SHAPE)
