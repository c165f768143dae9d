"""What a step of AC2 costs, by hand, and what it leaves for the next one.

A = 2 (16 + 18 + 10) = 88: attention 2 * 2 * 2 + 2 * 2 * 2, feed-forward 3 * 2 * 3 and
logits 2 * 5 of one layer with hidden size 2; B = 4 * 1 * 1 * 2 = 8.
"""

import json

import pytest
import torch

from ac2_worlds import chosen, one_step, reads, remembering, spoken_world
from accredit.algorithms.ac2.metrics import Routing
from accredit.algorithms.replay import routes
from accredit.loops.synchronous import advance, first_state
from accredit.storage.state_json import state_from_json, state_json
from worlds import algorithm, small_world

pytestmark = pytest.mark.whole_run

STORED = [("p1", "abcdefabcd", 0.2)]
names = pytest.mark.parametrize("name", ["prefix_grpo", "ac2", "ac2_plus"])
OPEN_GATE = {
    "window": 1,
    "tau_global": 2.0,
    "tau_local": 2.0,
    "require_bank": False,
    "require_nonzero": False,
}


def decoding(num_prefix, num_new):
    """A m + B (m p + m (m + 1) / 2),    m = n - 1"""
    m = num_new - 1
    return 88 * m + 8 * (m * num_prefix + m * (m + 1) // 2)


def stepped(monkeypatch, ready, **keys):
    """p1 (two prompt tokens) goes on behind `abcd`: prefixes of 6 tokens."""
    monkeypatch.setattr(routes, "drawn_cut", lambda *_: 4)
    world = spoken_world(
        lambda problem, text, sibling: ["eabh", "fh"][sibling] if text else "abah",
        num_prompts=2,
    )
    critic = reads({})
    algorithm_ = chosen(critic, grid_size=11, audit_share=0.0, **keys)
    state = remembering(STORED, ready=["p1"] if ready else [])
    _, record, _ = one_step(algorithm_, world, state)
    refilled = record.section(Routing).refill[0].prompt
    return record, len(refilled.token_ids), critic


def test_decode_flops_are_those_of_every_request_refill_included(monkeypatch):
    record, prompt, _ = stepped(monkeypatch, ready=False)
    # m = 3: 264 + 8 (18 + 6) = 456; m = 1: 88 + 8 (6 + 1) = 144
    assert (decoding(6, 4), decoding(6, 2)) == (456, 144)
    # m = 3 behind a prompt of one or two tokens: 264 + 8 (3 p + 6) = 336 or 360
    fresh = {1: 336, 2: 360}[prompt]
    assert record.cost.decode_flops == 456 + 144 + fresh
    assert record.cost.tokens_generated == 4 + 2 + 4
    assert record.cost.num_verifications == 3


def test_a_stopped_rollout_costs_its_chunk_only(monkeypatch):
    record, prompt, _ = stepped(monkeypatch, ready=True)
    fresh = {1: 336, 2: 360}[prompt]
    # Two tokens each: the second sibling stops by itself.
    assert record.cost.decode_flops == 144 + 144 + fresh
    assert record.cost.num_verifications == 2


def test_questions_are_in_a_ledger_of_their_own(monkeypatch):
    record, _, critic = stepped(monkeypatch, ready=True)
    # One of the prefix, one of the stopped end.
    assert record.cost.num_questions == 2
    assert record.cost.critic_flops == 14.0
    costly, _, _ = stepped(monkeypatch, ready=True, baseline="value")
    assert costly.cost.decode_flops == record.cost.decode_flops
    assert record.cost.total_flops == (
        record.cost.decode_flops
        + record.cost.prefill_flops
        + record.cost.train_flops
        + record.cost.critic_flops
    )
    assert len(critic.asked[0]) == 2


def test_the_critic_s_training_and_the_entropy_s_pass_are_paid(monkeypatch):
    """Two steps that differ in nothing else."""
    with_entropy, _, _ = stepped(monkeypatch, ready=True)
    without, _, _ = stepped(monkeypatch, ready=True, entropy_control=False)
    prompt = len(without.section(Routing).refill[0].prompt.token_ids)
    # One pass over the refilled rollout: 88 L + 8 L (L + 1) / 2
    length = prompt + 4
    expected = 88 * length + 8 * length * (length + 1) // 2
    spent = with_entropy.cost.train_flops - without.cost.train_flops
    assert spent == pytest.approx(expected)
    assert without.cost.train_flops == pytest.approx(11.0)


def fingerprint(record):
    """Everything a step made, to the bit."""
    policy, critic = record.policy, record.critic
    return (
        record.batch.token_ids.tolist(),
        record.batch.rewards.tolist(),
        record.credit.advantages.tolist(),
        None if policy is None else (policy.losses, policy.gradient_norms),
        None if critic is None else (critic.losses, critic.learning_rate),
        record.cost,
        dict(record.counts),
    )


@names
def test_all_state_survives_a_round_trip_to_the_bit(name):
    """Six steps at a stretch, or three, a file, and three more."""
    gated = {} if name == "prefix_grpo" else {"gate": OPEN_GATE, "pass_mark": 0.3}
    found = []
    for interrupted in (False, True):
        world = small_world(rate=1e-2)
        algorithm_ = algorithm(name, world=world, **gated)
        state, records = first_state(algorithm_), []
        for step in range(6):
            state, record = advance(algorithm_, state, world)
            records.append(fingerprint(record))
            if interrupted and step == 2:
                saved = state_json(state)
                assert json.loads(saved)["memory"]["rollouts"]["items"]
                state = state_from_json(saved, type(state.memory))
                assert state_json(state) == saved
        found.append((records, state_json(state)))
    (straight, last), (resumed, last_resumed) = found
    assert straight == resumed
    assert last == last_resumed
    memory = json.loads(last)["memory"]
    if name != "prefix_grpo":
        assert memory["examples"]["items"] and memory["bank"]["items"]
        assert memory["gate"]["window"]
        assert any(track["ready"] for track in memory["gate"]["tracks"].values())
    assert torch.tensor(straight[-1][2]).abs().max() > 0
