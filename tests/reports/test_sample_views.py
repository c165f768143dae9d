"""Which rollouts a page shows, and what each token was paid and was worth."""

from synthetic_run import decode

from accredit.reports.rollouts import rollout_rows
from accredit.reports.samples import (
    advantage_scale,
    chosen_rollouts,
    credit_scale,
    printable,
    sample_view,
    step_credits,
)


def rows_of(rewards):
    return [{"reward": r, "index": i} for i, r in enumerate(rewards)]


def test_the_best_the_worst_and_another_are_chosen():
    chosen = chosen_rollouts(rows_of([0.5, None, 1.0, 0.0, 0.2]), seed=0)
    assert chosen["Best"]["reward"] == 1.0
    assert chosen["Worst"]["reward"] == 0.0
    assert len({row["index"] for row in chosen.values()}) == len(chosen)
    assert chosen == chosen_rollouts(rows_of([0.5, None, 1.0, 0.0, 0.2]), seed=0)


def test_the_random_rollout_is_uniform():
    draws = [
        chosen_rollouts(rows_of([None] * 4), seed)["Random"]["index"]
        for seed in range(400)
    ]
    counts = [draws.count(i) for i in range(4)]
    assert min(counts) > 70


def test_nothing_chosen_from_nothing():
    assert chosen_rollouts([], seed=0) == {}
    assert advantage_scale([]) == 1.0
    assert credit_scale([]) is None


def test_tokens_carry_their_credit(record):
    row = next(iter(rollout_rows(record, 3, decode)))
    start = row["num_prompt_tokens"]
    row["advantages"][start : start + 3] = [0.2, -0.05, 0.0]
    row["values"][start : start + 2] = [0.25, 0.45]
    row["logprobs"][start] = -0.5
    row["sampled"][start + 3] = 0
    row |= dict.fromkeys(("value_targets", "ratios", "accepted"))
    view = sample_view("Best", row, scale=0.1)
    kinds = [(token.kind, token.strength) for token in view.tokens[:4]]
    assert kinds == [("up", 1.0), ("down", 0.5), ("none", 0.0), ("given", 0.0)]
    note = view.tokens[0].note
    assert "advantage +0.200\n" in note
    assert "credit +0.200: value 0.250 before it, 0.450 after" in note
    assert "log-prob −0.500 (probability 0.61)" in note
    assert "ratio" not in note and "target" not in note
    assert view.title == "Best of step 3"
    assert ("reward", "not verified") not in view.facts


def worth_row(**changes) -> dict:
    """A prompt token, two sampled ones with an observation between, one more."""
    row = {
        "step": 1,
        "problem_id": "p",
        "prompt": "",
        "tokens": ["a", "b", "c", "d", "e"],
        "num_prompt_tokens": 1,
        "sampled": [0, 1, 0, 1, 1],
        "values": [9.0, 0.25, 9.0, 0.5, 0.375, 9.0],
        "advantages": [0.0, 0.75, 0.0, 0.5, 0.625],
        "reward": 1.0,
        "shaped_reward": 1.0,
        "reason": "",
        "stop_reason": "stop",
        "share_f": 1.0,
        "logprobs": [0.0] * 5,
        "sampling_logprobs": [0.0] * 5,
    }
    return row | changes


def test_a_tokens_credit_is_what_it_changed_and_not_what_was_paid():
    assert step_credits(worth_row()) == [0.0, 0.25, 0.0, -0.125, 0.625]
    assert step_credits(worth_row(reward=None)) == [0.0, 0.25, 0.0, -0.125, 0.0]
    assert step_credits(worth_row(share_f=0.0)) is None
    view = sample_view("Best", worth_row(), 0.5, 0.25)
    shown = [(token.kind, token.credit_kind) for token in view.tokens]
    assert shown == [("up", "gain"), ("given", "none"), ("up", "loss"), ("up", "gain")]
    assert [token.credit_strength for token in view.tokens] == [1.0, 0.0, 0.5, 1.0]
    last = view.tokens[-1].note
    assert (
        "advantage +0.625\ncredit +0.625: value 0.375 before it, then outcome 1" in last
    )


def test_what_no_critic_valued_has_an_advantage_alone():
    row = worth_row(share_f=0.0, values=[0.5] * 6)
    view = sample_view("Best", row, 0.5)
    assert "advantage +0.750\nbaseline 0.500\nlog-prob" in view.tokens[0].note
    paid = worth_row(share_f=0.0, values=[0.0] * 6, advantage_unit="nats")
    note = sample_view("Best", paid, 0.5).tokens[0].note
    assert note.startswith("advantage +0.750 nats\nlog-prob")
    assert {token.credit_kind for token in view.tokens} == {"none"}


def test_tokens_carry_what_the_critic_was_taught(record):
    row = next(iter(rollout_rows(record, 3, decode)))
    start = row["num_prompt_tokens"]
    row["value_targets"][start : start + 2] = [1.25, 0.0]
    row["ratios"][start : start + 2] = [1.25, 7.0]
    row["accepted"][start : start + 2] = [1, 0]
    first, second = sample_view("Best", row, scale=0.1).tokens[:2]
    assert "value target 1.250\nratio 1.250 of new policy to old\n" in first.note
    assert "ratio 7.000 of new policy to old, not accepted\n" in second.note


def test_long_completions_are_cut_on_the_page_and_say_so(record, monkeypatch):
    monkeypatch.setattr("accredit.reports.samples.MOST_TOKENS", 10)
    row = next(iter(rollout_rows(record, 1, decode)))
    view = sample_view("Best", row, 1.0)
    assert len(view.tokens) == 10
    assert view.num_hidden == len(row["tokens"]) - row["num_prompt_tokens"] - 10


def test_text_can_neither_hide_nor_reorder():
    assert printable("a\x00b\x1b[31m") == "a␀b␛[31m"
    assert printable("a\u202eb\u2066c") == "a\ufffdb\ufffdc"
    assert printable("tab\tand\nline 😀 é") == "tab\tand\nline 😀 é"
    assert printable("a\ud835b") == "a\ufffdb"
