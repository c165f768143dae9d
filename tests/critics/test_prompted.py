"""A critic that is asked in words: what it reads, what it learns, what it refuses."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from critic_cases import same
from torch import Tensor

from accredit.critics.prefix_configs import PromptedConfig
from accredit.critics.prompted.card import CARD_FILE
from accredit.critics.prompted.critic import PromptedCritic, padded
from accredit.critics.prompted.questions import Questions, template_named
from accredit.engines.local.engine import TransformersEngine
from accredit.engines.local.module_decoder import ModuleDecoder
from accredit.functional.flops import ModelShape, decode_flops, prefill_flops
from accredit.models.loading import Pretrained, load_model
from accredit.protocols import PrefixCritic
from accredit.records import nothing_fitted
from accredit.tasks import walk
from accredit.tasks.rendering import render
from accredit.types import (
    Completion,
    CriticExample,
    CriticQuery,
    Message,
    Problem,
    Request,
    Sampling,
    StopReason,
)

pytestmark = pytest.mark.whole_run

BUDGET = 60


@pytest.fixture(scope="session")
def packaged() -> Pretrained:
    return load_model("packaged", torch.float32, "cpu")


@pytest.fixture(scope="session")
def questions(packaged: Pretrained) -> Questions:
    return questions_of(packaged)


def questions_of(packaged: Pretrained, name: str = "compact", grid: int = 11):
    return Questions(
        template_named(name),
        packaged.tokenizer,
        stop_token_ids=packaged.stop_token_ids,
        max_new_tokens=BUDGET,
        grid_size=grid,
    )


Build = Callable[..., PromptedCritic]


@pytest.fixture
def build(packaged: Pretrained, questions: Questions) -> Build:
    """A critic on a copy of the packaged model."""

    def built(config: dict[str, Any] | None = None, **changes: Any) -> PromptedCritic:
        settings: dict[str, Any] = {
            "engine": None,
            "grid_size": 11,
            "target_rounding": "none",
            "is_tied": True,
        }
        return PromptedCritic(
            copy.deepcopy(packaged.model),
            changes.pop("questions", questions),
            PromptedConfig(**({"template": "compact"} | (config or {}))),
            **settings | changes,
        )

    return built


def attempt_of(
    packaged: Pretrained, text: str, written: str = "", reference: str | None = None
) -> CriticQuery:
    def ids(part: str) -> tuple[int, ...]:
        return tuple(packaged.tokenizer(part)["input_ids"])

    prompt = render(Problem(text, (Message("user", text),)), packaged.tokenizer)
    return CriticQuery(
        prompt, ids(written), None if reference is None else ids(reference)
    )


@pytest.fixture
def examples(packaged: Pretrained) -> list[CriticExample]:
    """Four records, two of which have a reference and two targets off the grid."""
    rows = [
        ("S20G47", "R21", "D30", 0.3),
        ("S11G53", "", None, 0.84),
        ("S20G47", "R21U11L10", None, 1.0),
        ("S65G01", "U55", "U55R56U46", 0.25),
    ]
    return [
        CriticExample(attempt_of(packaged, *texts), target) for *texts, target in rows
    ]


def plain_loss(
    critic: PromptedCritic, records: Sequence[tuple[CriticQuery, bool, int, float]]
) -> Tensor:
    """Sum of weight x NLL / 4 of (query, with reference, answer, weight), by hand."""
    total = torch.zeros(())
    for query, shown, k, weight in records:
        context = critic.questions.context(query, shown)
        said = f"{k / 10:.1f}<|end|>"
        answer = [*map(int, encoded(critic, said))]
        logits = critic.model(input_ids=torch.tensor([[*context, *answer]])).logits[0]
        logprobs = logits.log_softmax(-1)
        for place, token in enumerate(answer, start=len(context)):
            total = total - weight * logprobs[place - 1, token] / 4
    return total


def encoded(critic: PromptedCritic, text: str) -> list[int]:
    return critic.questions.tokenizer(text, add_special_tokens=False)["input_ids"]


def gradients(critic: PromptedCritic) -> dict[str, Tensor]:
    named = critic.model.named_parameters()
    return {name: p.grad.clone() for name, p in named if p.grad is not None}


def weights(critic: PromptedCritic) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in critic.model.named_parameters()}


def close(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, expected[name], atol=2e-5, rtol=1e-4)


def walk_cuts(packaged: Pretrained) -> tuple[list[CriticQuery], list[float]]:
    """One cut of a sampled walk of each problem of two splits, and its exact value."""
    draw = np.random.default_rng(0)
    beliefs = walk.belief_policy()
    exact = walk.success_values(beliefs)
    queries, truth = [], []
    for split in ("easy", "hard"):
        problems = walk.walk_problems(split)
        for problem in (*problems.train, *problems.evaluation):
            start, goal = problem.metadata["start"], problem.metadata["goal"]
            text = walk.sample_walk(beliefs, start, goal, draw)
            done = int(draw.integers(0, len(text) // 3 + 1))
            here = walk.WORLD.number[text[: 3 * done][-2:] or start]
            queries.append(
                attempt_of(packaged, walk.prompt_text(start, goal), text[: 3 * done])
            )
            truth.append(exact[walk.WORLD.goals.index(goal), 20 - done, here])
    return queries, truth


@pytest.mark.parametrize("readout", ["expectation", "greedy"])
def test_the_packaged_model_reads_walks(
    packaged: Pretrained, build: Build, readout: str
):
    critic = build({"readout": readout})
    assert isinstance(critic, PrefixCritic)
    queries, truth = walk_cuts(packaged)
    valuation = critic.values(queries)
    values = np.array(valuation.values, dtype=float)
    assert len(queries) > 100
    assert np.corrcoef(values, truth)[0, 1] > 0.97
    assert np.abs(values - truth).mean() < 0.04
    if readout == "greedy":
        assert {round(10 * value, 9) % 1 for value in values} == {0.0}


def test_an_expectation_is_over_the_grid(packaged: Pretrained, build: Build):
    """sum p_k v_k / sum p_k, with p_k from plain forwards of a less certain model."""
    critic = build({"readout": "expectation"})
    with torch.no_grad():
        critic.model.model.norm.weight.mul_(0.4)
    query = attempt_of(packaged, "S20G47", "R21", "D30")
    context = critic.questions.context(query, True)
    chances = []
    for k in range(11):
        answer = encoded(critic, f"{k / 10:.1f}")
        logits = critic.model(input_ids=torch.tensor([[*context, *answer]])).logits
        logprobs = logits[0].log_softmax(-1)
        places = enumerate(answer, start=len(context) - 1)
        total = sum(logprobs.detach()[place, token] for place, token in places)
        chances.append(math.exp(total))
    assert 0.5 < sum(chances) < 0.9
    expected = sum(p * k / 10 for k, p in enumerate(chances)) / sum(chances)
    assert critic.values([query]).values[0] == pytest.approx(expected, abs=1e-5)


def test_flops_count_questions_and_what_is_written(packaged: Pretrained, build: Build):
    """A grid of eleven has the inner nodes 0, 1, 0. and 1. behind the stem."""
    query = attempt_of(packaged, "S20G47", "R21")
    shape = ModelShape.from_config(packaged.model.config)
    # Prompt 9, written 3, end, user, ?57, end, assistant, stem.
    length = 9 + 3 + 2 + 3 + 2 + 1
    greedy = build().values([query] * 2).flops
    one = prefill_flops(shape, length) + decode_flops(shape, length, 4)
    assert greedy == 2 * one
    expected = build({"readout": "expectation"}).values([query]).flops
    nodes = 2 * decode_flops(shape, length, 2) + 2 * decode_flops(shape, length + 1, 2)
    assert expected == prefill_flops(shape, length) + nodes


class Speaker:
    """An engine that always says the same."""

    version = 0

    def __init__(self, ids: Sequence[int], reason: StopReason = StopReason.STOP):
        self.completion = Completion(tuple(ids), (0.0,) * len(ids), reason)
        self.requests: list[Request] = []

    def generate(
        self, requests: Sequence[Request], sampling: Sampling
    ) -> list[Completion]:
        assert sampling.temperature == 0
        self.requests += requests
        return [self.completion] * len(requests)

    def load(self, model: Any, version: int) -> None: ...


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("0.7<|end|>", 0.7),
        ("0.75", None),
        ("maybe", None),
        ("<|end|>", None),
        # A number that goes on is none, from the token behind it on.
        ("0.7v", None),
        ("0.70.1", None),
        ("0.7R0.", None),
    ],
)
def test_an_answer_off_the_grid_is_not_valid(
    packaged: Pretrained, build: Build, said: str, value: float | None
):
    engine = Speaker(packaged.tokenizer(said)["input_ids"])
    valuation = build(engine=engine).values([attempt_of(packaged, "S20G47")])
    assert valuation.values == (value,)
    assert [request.max_new_tokens for request in engine.requests] == [6]


def test_a_failed_engine_says_nothing(packaged: Pretrained, build: Build):
    said = packaged.tokenizer("0.7")["input_ids"]
    critic = build(engine=Speaker(said, StopReason.FAILURE))
    assert critic.values([attempt_of(packaged, "S20G47")]).values == (None,)


def test_an_expectation_without_mass_is_not_valid(packaged: Pretrained, build: Build):
    """A model that writes no number."""
    critic = build({"readout": "expectation"})
    query = attempt_of(packaged, "S20G47")
    assert critic.values([query]).values[0] is not None
    with torch.no_grad():
        critic.model.model.norm.weight.zero_()
    assert critic.values([query]).values == (None,)


@pytest.mark.parametrize("readout", ["greedy", "expectation"])
def test_what_does_not_fit_is_not_valued(
    packaged: Pretrained, build: Build, readout: str
):
    """The question and four tokens must fit, in the order they were asked."""
    critic = build({"readout": readout})
    fits = attempt_of(packaged, "S20G47", "R21")
    length = len(critic.questions.context(fits, False))
    longer = attempt_of(packaged, "S20G47", "R21R22")
    critic.model.config.max_position_embeddings = length + 4
    first, second, third = critic.values([longer, fits, longer]).values
    assert (first, third) == (None, None)
    assert second is not None
    if readout == "greedy":
        engine = Speaker(packaged.tokenizer("0.7<|end|>")["input_ids"])
        other = build(engine=engine)
        other.model.config.max_position_embeddings = length + 4
        assert other.values([fits]).values == (0.7,)
        # No token is asked for behind the model's last position.
        assert [request.max_new_tokens for request in engine.requests] == [4]
    critic.model.config.max_position_embeddings = length + 3
    nothing = replace(critic.values([]), values=(None,), left_out=(True,))
    assert critic.values([fits]) == nothing


@pytest.mark.parametrize("readout", ["greedy", "expectation"])
def test_without_room_for_the_reference_the_plain_question_is_asked(
    packaged: Pretrained, build: Build, readout: str
):
    critic = build({"readout": readout})
    query = attempt_of(packaged, "S20G47", "R21", "D30U21D30")
    plain = replace(query, reference=None)
    short = len(critic.questions.context(query, False))
    shown, unshown = critic.values([query]), critic.values([plain])
    assert shown != unshown
    assert shown.left_out == (False,)
    critic.model.config.max_position_embeddings = short + 4
    assert critic.values([query]) == unshown
    critic.model.config.max_position_embeddings = short + 3
    assert critic.values([plain, query]).left_out == (True, True)


def test_no_valid_answer_is_not_left_out(packaged: Pretrained, build: Build):
    """It is the critic's own error, and the longer attempt's is not."""
    engine = Speaker(packaged.tokenizer("maybe")["input_ids"])
    critic = build(engine=engine)
    fits = attempt_of(packaged, "S20G47", "R21")
    length = len(critic.questions.context(fits, False))
    critic.model.config.max_position_embeddings = length + 4
    said = critic.values([attempt_of(packaged, "S20G47", "R21R22"), fits])
    assert (said.values, said.left_out) == ((None, None), (True, False))
    assert len(engine.requests) == 1


@pytest.mark.parametrize("readout", ["greedy", "expectation"])
def test_it_reads_no_more_at_once_than_it_is_let(
    packaged: Pretrained, build: Build, readout: str, monkeypatch: pytest.MonkeyPatch
):
    """One attempt a batch, whatever the read-out, and the same values."""
    queries = [attempt_of(packaged, "S20G47", "R21" * n) for n in (1, 2, 3)]
    rows: list[int] = []
    prefill = ModuleDecoder.prefill

    def counted(decoder: ModuleDecoder, prompts: Any) -> Any:
        rows.append(len(prompts))
        return prefill(decoder, prompts)

    monkeypatch.setattr(ModuleDecoder, "prefill", counted)
    found = []
    for most in (256, 1):
        rows.clear()
        critic = build({"readout": readout}, is_tied=False, max_batch_rows=most)
        found.append(critic.values(queries).values)
        assert rows == ([3] if most == 256 else [1, 1, 1])
    assert found[0] == pytest.approx(found[1], abs=1e-6)


def test_a_reference_is_shown_where_there_is_one(packaged: Pretrained, build: Build):
    queries = [
        attempt_of(packaged, "S20G47", "R21", "D30"),
        attempt_of(packaged, "S20G47", "R21"),
    ]
    for reference, expected in (("source", [True, False]), ("none", [False] * 2)):
        engine = Speaker(packaged.tokenizer("0.5")["input_ids"])
        build({"reference": reference}, engine=engine).values(queries)
        texts = [packaged.tokenizer.decode(r.token_ids) for r in engine.requests]
        assert ["=D30" in text for text in texts] == expected


def test_the_gradient_is_that_of_the_plain_formula(
    build: Build, examples: list[CriticExample]
):
    """Halves by prompt, shares by neighbour, 1/4 of each answer, 1/N of records."""
    critic, plain = build(), build()
    first, second, third, fourth = (record.query for record in examples)
    loss = (
        plain_loss(
            plain,
            [
                (first, True, 3, 0.5),
                (first, False, 3, 0.5),
                (second, False, 8, 0.6),
                (second, False, 9, 0.4),
                (third, False, 10, 1.0),
                (fourth, True, 2, 0.25),
                (fourth, True, 3, 0.25),
                (fourth, False, 2, 0.25),
                (fourth, False, 3, 0.25),
            ],
        )
        / 4
    )
    loss.backward()
    update = critic.add_gradient(examples)
    assert update.losses == pytest.approx([loss.item()], rel=1e-5)
    close(gradients(critic), gradients(plain))


@pytest.mark.parametrize(
    ("keys", "prompts"),
    [
        ({"both_prompts": False}, [(0, True), (1, False)]),
        ({"reference": "none"}, [(0, False), (1, False)]),
    ],
)
def test_one_prompt_has_all_the_weight(
    build: Build, examples: list[CriticExample], keys: dict, prompts: list
):
    critic = build(keys)
    records = [replace(examples[0], target=0.3), replace(examples[1], target=0.8)]
    targets = (3, 8)
    expected = plain_loss(
        critic,
        [(records[i].query, shown, targets[i], 0.5) for i, shown in prompts],
    )
    found = critic.add_gradient(records).losses[0]
    assert found == pytest.approx(expected.item(), rel=1e-5)


def test_only_the_value_and_the_end_of_turn_have_loss(
    packaged: Pretrained, build: Build, examples: list[CriticExample]
):
    """Pitfall 1: no token of the reference, nor of the attempt."""
    rows = build()._tokenized(examples).rows
    token_ids, wanted, row_weights = padded(rows)
    said = [
        packaged.tokenizer.decode(ids[where].tolist())
        for ids, where in zip(token_ids, wanted, strict=True)
    ]
    assert said == [
        f"{value}<|end|>"
        for value in ["0.3", "0.3", "0.8", "0.9", "1.0", "0.2", "0.3", "0.2", "0.3"]
    ]
    texts = [packaged.tokenizer.decode(row.context) for row in rows]
    assert ["=" in text for text in texts] == [i in (0, 5, 6) for i in range(9)]
    for row, ids, where in zip(rows, token_ids, wanted, strict=True):
        at = len(row.context)
        assert where.nonzero()[:, 0].tolist() == [at, at + 1, at + 2, at + 3]
        assert ids[at + 4 :].sum() == 0
    expected = [0.5, 0.5, 0.6, 0.4, 1.0, 0.25, 0.25, 0.25, 0.25]
    assert row_weights.tolist() == pytest.approx(expected)


def test_a_memory_knob_changes_no_gradient(build: Build, examples: list[CriticExample]):
    critics = [build(micro_batch_tokens=size) for size in (4096, 80, 1)]
    updates = [critic.add_gradient(examples) for critic in critics]
    for critic, update in zip(critics[1:], updates[1:], strict=True):
        assert update.losses == pytest.approx(updates[0].losses, rel=1e-5)
        assert update.train_flops == updates[0].train_flops
        close(gradients(critic), gradients(critics[0]))


def test_a_gradient_is_added_and_no_step_taken(
    build: Build, examples: list[CriticExample]
):
    critic = build()
    before = weights(critic)
    critic.add_gradient(examples)
    once = gradients(critic)
    update = critic.add_gradient(examples)
    close(gradients(critic), {name: 2 * x for name, x in once.items()})
    assert same(weights(critic), before)
    assert update.learning_rate == 0.0
    assert (update.num_skipped, update.num_left_out) == (0, 0)
    assert update.train_flops > 0


def test_an_update_moves_as_far_as_it_says(build: Build, examples: list[CriticExample]):
    critic = build()
    for _ in range(2):
        before = weights(critic)
        update = critic.update(examples, 1e-4)
        assert update is not None
        after = weights(critic)
        moves = [(after[name] - x).double().norm() for name, x in before.items()]
        distance = float(torch.stack(moves).norm())
        assert update.displacement == pytest.approx(distance, rel=1e-2)
        assert update.displacement > 0
        assert update.learning_rate == 1e-4
        assert update.gradient_norms[0] > 0
        assert gradients(critic) == {}


def test_an_update_forgets_older_gradients(build: Build, examples: list[CriticExample]):
    critic, other = build(), build()
    critic.add_gradient(examples[:1])
    assert critic.update(examples, 1e-4) == other.update(examples, 1e-4)
    assert same(weights(critic), weights(other))


@pytest.mark.parametrize("target", [0.9, 0.15])
def test_a_taught_value_is_learned(packaged: Pretrained, build: Build, target: float):
    critic = build({"readout": "expectation", "max_gradient_norm": None})
    query = attempt_of(packaged, "S20G47", "R21", "D30")
    plain = replace(query, reference=None)
    before = critic.values([query, plain]).values
    for _ in range(12):
        critic.update([CriticExample(query, target)], 3e-4)
    after = critic.values([query, plain]).values
    for old, new in zip(before, after, strict=True):
        assert old is not None
        assert new is not None
        assert abs(new - target) < min(0.1, abs(old - target))


def test_both_modes_come_back(build: Build, examples: list[CriticExample]):
    critic = build()
    for training in (True, False):
        critic.model.train(training)
        critic.add_gradient(examples)
        critic.update(examples, 1e-5)
        critic.values([examples[0].query])
        assert {m.training for m in critic.model.modules()} == {training}


def test_gradient_checkpointing_changes_the_ledger_alone(
    build: Build, examples: list[CriticExample]
):
    plain, checkpointed = build(), build()
    checkpointed.model.gradient_checkpointing_enable({"use_reentrant": False})
    first, second = plain.add_gradient(examples), checkpointed.add_gradient(examples)
    assert second.losses == first.losses
    assert second.train_flops == pytest.approx(first.train_flops * 4 / 3)
    close(gradients(checkpointed), gradients(plain))


def test_a_record_that_does_not_fit_is_left_out(
    packaged: Pretrained, build: Build, examples: list[CriticExample]
):
    """Whole, where none of its prompts has room; the others are as without it."""
    longer = attempt_of(packaged, "S65G01", "U55R56U46" * 4)
    examples[3] = CriticExample(longer, 0.25)
    critic, other = build(), build()
    longest = len(critic.questions.context(longer, False)) + 4
    critic.model.config.max_position_embeddings = longest
    assert critic.add_gradient(examples).num_left_out == 0
    critic.model.zero_grad()
    critic.model.config.max_position_embeddings = longest - 1
    update = critic.add_gradient(examples)
    assert update.num_left_out == 1
    assert update.losses == other.add_gradient(examples[:3]).losses
    close(gradients(critic), gradients(other))


@pytest.mark.parametrize("both", [True, False])
def test_without_room_for_the_reference_the_plain_prompt_is_taught(
    build: Build, examples: list[CriticExample], both: bool
):
    """With all the weight, as `values` asks it there."""
    critic, other = build({"both_prompts": both}), build()
    record = examples[3]
    plain = replace(record.query, reference=None)
    questions = critic.questions
    shown = len(questions.context(record.query, True)) + 4
    critic.model.config.max_position_embeddings = shown
    assert critic._tokenized([record]).rows[0].context == questions.context(
        record.query, True
    )
    for limit in (shown - 1, len(questions.context(plain, False)) + 4):
        critic.model.config.max_position_embeddings = limit
        rows, num_records, num_left_out = critic._tokenized([record])
        assert (num_records, num_left_out) == (1, 0)
        assert [row.weight for row in rows] == pytest.approx([0.5, 0.5])
        assert {row.context for row in rows} == {questions.context(plain, False)}
    update = critic.add_gradient([record])
    assert update.losses == other.add_gradient([replace(record, query=plain)]).losses
    close(gradients(critic), gradients(other))
    critic.model.config.max_position_embeddings = limit - 1
    assert critic._tokenized([record]) == ([], 0, 1)


def test_nothing_that_fits_is_no_update(build: Build, examples: list[CriticExample]):
    critic = build()
    before = weights(critic)
    assert critic.update([], 1e-4) is None
    critic.model.config.max_position_embeddings = 8
    assert critic.update(examples, 1e-4) == nothing_fitted(4, 1e-4)
    update = critic.add_gradient(examples)
    assert math.isnan(update.losses[0])
    assert (update.num_left_out, update.num_skipped, update.train_flops) == (4, 1, 0.0)
    assert gradients(critic) == {}
    assert same(weights(critic), before)


def test_a_target_must_lie_on_the_grid_unless_it_is_shared(
    build: Build, examples: list[CriticExample]
):
    critic = build(target_rounding="nearest")
    assert critic.update([examples[0]], 1e-5) is not None
    for target in (0.25, 1.3, -0.1):
        with pytest.raises(ValueError, match=f"must lie on the grid of 11.*{target}"):
            critic.update([replace(examples[0], target=target)], 1e-5)


def test_a_loss_that_is_not_finite_is_skipped(
    build: Build, examples: list[CriticExample]
):
    critic = build(max_consecutive_skips=2)
    with torch.no_grad():
        critic.model.model.norm.weight[0] = math.nan
    before = weights(critic)
    update = critic.update(examples, 1e-4)
    assert update is not None
    assert not math.isfinite(update.losses[0])
    assert math.isnan(update.gradient_norms[0])
    assert (update.num_skipped, update.displacement) == (1, 0.0)
    assert gradients(critic) == {}
    for name, tensor in weights(critic).items():
        torch.testing.assert_close(tensor, before[name], equal_nan=True, atol=0, rtol=0)
    with pytest.raises(RuntimeError, match="loss and gradient of the critic must be"):
        critic.update(examples, 1e-4)


@pytest.mark.parametrize("is_tied", [True, False])
def test_a_resumed_critic_goes_on_bit_for_bit(
    build: Build, examples: list[CriticExample], tmp_path: Path, is_tied: bool
):
    critic = build(is_tied=is_tied)
    for _ in range(2):
        critic.update(examples, 1e-4)
    critic.save(tmp_path)
    expected = [critic.update(examples, 5e-5) for _ in range(2)]
    resumed = build(is_tied=is_tied)
    if is_tied:
        # The learner's: here the state before the last two updates, taught again.
        again = build()
        for _ in range(2):
            again.update(examples, 1e-4)
        resumed.model.load_state_dict(again.model.state_dict())
    resumed.load(tmp_path)
    assert [resumed.update(examples, 5e-5) for _ in range(2)] == expected
    assert same(weights(resumed), weights(critic))


def test_skips_in_a_row_are_remembered(build: Build, tmp_path: Path):
    critic, resumed = build(), build()
    critic._descent.num_consecutive_skips = 7
    critic.save(tmp_path)
    resumed.load(tmp_path)
    assert resumed._descent.num_consecutive_skips == 7


def test_its_own_model_is_a_directory_of_its_own(
    packaged: Pretrained, build: Build, examples: list[CriticExample], tmp_path: Path
):
    tied = build()
    tied.save(tmp_path / "tied")
    assert not (tmp_path / "tied" / "config.json").exists()
    critic = build(is_tied=False, tokenizer=packaged.tokenizer)
    critic.update(examples, 1e-4)
    critic.save(tmp_path / "own")
    loaded = load_model(tmp_path / "own", torch.float32, "cpu")
    assert same(dict(loaded.model.named_parameters()), weights(critic))
    assert loaded.tokenizer.get_vocab() == packaged.tokenizer.get_vocab()


def test_its_own_model_is_asked_and_not_the_policys_engine(
    packaged: Pretrained, build: Build
):
    engine = Speaker(packaged.tokenizer("0.7")["input_ids"])
    critic = build(engine=engine, is_tied=False)
    query = attempt_of(packaged, "S20G47")
    own = TransformersEngine(critic.model, packaged.stop_token_ids)
    assert critic.values([query]) == build(engine=own).values([query])
    assert engine.requests == []


def test_another_critic_is_refused_by_name(
    packaged: Pretrained, build: Build, tmp_path: Path
):
    build().save(tmp_path)
    progress = build(questions=questions_of(packaged, "compact_progress"))
    with pytest.raises(ValueError, match=r"of another kind: the template 'compact' mu"):
        progress.load(tmp_path)
    halves = build(questions=questions_of(packaged, grid=3), grid_size=3)
    with pytest.raises(ValueError, match="grid_size must be 3, got 11"):
        halves.load(tmp_path)
    with pytest.raises(ValueError, match="is_tied must be False, got True"):
        build(is_tied=False).load(tmp_path)
    with pytest.raises(ValueError, match=f"must hold {CARD_FILE}"):
        build().load(tmp_path / "nowhere")
    (tmp_path / CARD_FILE).write_text("{")
    with pytest.raises(ValueError, match="got a damaged file"):
        build().load(tmp_path)
    (tmp_path / CARD_FILE).write_text('{"schema": 2}')
    with pytest.raises(ValueError, match="must have schema 1, got 2"):
        build().load(tmp_path)


def test_a_template_file_that_changed_is_told_by_its_key(
    packaged: Pretrained, build: Build, tmp_path: Path
):
    """The first text that differs, from about where it does, and no other."""
    file = tmp_path / "mine.toml"

    def asked_by(content: str) -> PromptedCritic:
        file.write_text(content)
        name = str(file)
        return build({"template": name}, questions=questions_of(packaged, name))

    begun = "?{left}" + "1" * 200
    toml = f'question = "{begun}"\nquestion_with_reference = "{{left}}{{reference}}"\n'
    asked_by(toml + 'stem = "v"').save(tmp_path / "saved")
    asked_by(toml + 'stem = "v"').load(tmp_path / "saved")
    changed = asked_by(toml + 'stem = "w"')
    said = r"stem 'w', was 'v'; restore the file$"
    with pytest.raises(ValueError, match=said) as told:
        changed.load(tmp_path / "saved")
    assert f"the template '{file}' must be as it was" in str(told.value)
    assert "{left}" not in str(told.value)
    changed = asked_by(toml.replace(begun, begun + "2") + 'stem = "v"')
    ones = "1" * 30
    with pytest.raises(ValueError, match=f"got question '{ones}2', was '{ones}'; res"):
        changed.load(tmp_path / "saved")


def test_questions_must_be_of_its_grid(build: Build):
    with pytest.raises(ValueError, match="must have 5 answers"):
        build(grid_size=5)


def test_it_begins_with_its_own_learning_rate(build: Build):
    assert build().learning_rate == 2.83e-6
    assert build({"learning_rate": 1e-3}).learning_rate == 1e-3
