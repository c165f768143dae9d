"""The engine: what it samples, with which log-probs, and when it stops."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.generation.logits_process import (
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from accredit.engines.local import lean_decoder
from accredit.engines.local.engine import TransformersEngine
from accredit.models.loading import load_model
from accredit.types import Completion, Request, Sampling, StopReason
from tiny_models import decoder_settings, seeded, tiny_gpt2, tiny_llama, tiny_qwen3

PROMPTS = [
    tuple(range(10, 22)),
    (30,),
    (31, 40, 55),
    tuple(range(60, 95)),
    (31, 40, 56),
]
SLIDING: dict[str, Any] = {
    "use_sliding_window": True,
    "sliding_window": 6,
    "layer_types": ["sliding_attention", "full_attention"],
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {
        "qwen3": tiny_qwen3(root / "qwen3"),
        "llama": tiny_llama(root / "llama"),
        "gpt2": tiny_gpt2(root / "gpt2"),
        "sliding": tiny_qwen3(root / "sliding", **SLIDING),
    }


@pytest.fixture(params=["qwen3", "llama", "gpt2", "sliding", "qwen3 by its forward"])
def model(request, folders, monkeypatch) -> Any:
    name = request.param.split()[0]
    if " " in request.param:
        monkeypatch.setattr(lean_decoder, "supports", lambda model: False)
    return load_model(folders[name], device="cpu").model


@pytest.fixture
def qwen3(folders) -> Any:
    return load_model(folders["qwen3"], device="cpu").model


def requests_for(
    prompts: list[tuple[int, ...]], budget: int = 24, siblings: int = 1
) -> list[Request]:
    """Keys 100, 101, ... in order."""
    rows = [prompt for prompt in prompts for _ in range(siblings)]
    return [Request(ids, budget, 100 + i) for i, ids in enumerate(rows)]


def plain_logits(model: Any, ids: tuple[int, ...]) -> Tensor:
    """One unpadded forward without a cache."""
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()


def assert_parity(
    model: Any, request: Request, completion: Completion, sampling: Sampling
) -> None:
    """Log-probs equal a plain forward's within 1e-4, warped by transformers' own."""
    ids = request.token_ids + completion.token_ids
    logits = plain_logits(model, ids)[len(request.token_ids) - 1 : -1]
    if sampling.temperature > 0:
        logits = logits / sampling.temperature
    if sampling.top_k:
        logits = TopKLogitsWarper(sampling.top_k)(torch.empty(0), logits)
    if sampling.top_p < 1:
        logits = TopPLogitsWarper(sampling.top_p)(torch.empty(0), logits)
    tokens = torch.tensor(completion.token_ids)[:, None]
    expected = logits.log_softmax(-1).gather(1, tokens)[:, 0]
    torch.testing.assert_close(
        torch.tensor(completion.logprobs), expected, atol=1e-4, rtol=0
    )


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(temperature=0.6),
        Sampling(temperature=1.5, top_k=7),
        Sampling(top_p=0.8),
        Sampling(temperature=0.8, top_k=20, top_p=0.9),
    ],
    ids=str,
)
def test_logprobs_equal_a_plain_forwards(model, sampling):
    """Cases B063, B077, B078: ragged prompts, groups, every support, within 1e-4."""
    engine = TransformersEngine(model, (2, 4))
    requests = requests_for(PROMPTS, siblings=3)
    completions = engine.generate(requests, sampling)
    assert {c.stop_reason for c in completions} >= {StopReason.LENGTH}
    for request, completion in zip(requests, completions, strict=True):
        assert_parity(model, request, completion, sampling)


def test_greedy_is_the_argmax_of_a_plain_forward(model):
    greedy = Sampling(temperature=0.0)
    requests = requests_for(PROMPTS)
    completions = TransformersEngine(model, ()).generate(requests, greedy)
    for request, completion in zip(requests, completions, strict=True):
        ids = request.token_ids + completion.token_ids
        best = plain_logits(model, ids).argmax(-1)[len(request.token_ids) - 1 : -1]
        assert tuple(best.tolist()) == completion.token_ids
        assert_parity(model, request, completion, greedy)


def test_a_continuation_has_the_logprobs_of_the_whole(model):
    """Continuing a cut completion: same prefix, same distribution."""
    engine = TransformersEngine(model, ())
    (whole,) = engine.generate(requests_for([PROMPTS[0]]), Sampling())
    prefix = PROMPTS[0] + whole.token_ids[:9]
    requests = requests_for([prefix, PROMPTS[2]], siblings=2)
    completions = engine.generate(requests, Sampling())
    for request, completion in zip(requests, completions, strict=True):
        assert_parity(model, request, completion, Sampling())


def test_a_sample_does_not_depend_on_its_companions(model):
    engine = TransformersEngine(model, (2, 4))
    requests = requests_for(PROMPTS, siblings=4)
    together = engine.generate(requests, Sampling())
    backwards = engine.generate(requests[::-1], Sampling())[::-1]
    engine.max_batch_rows = 3
    in_threes = engine.generate(requests, Sampling())
    alone = [engine.generate([request], Sampling())[0] for request in requests]
    for other in (backwards, in_threes, alone):
        assert [c.token_ids for c in other] == [c.token_ids for c in together]
        assert [c.stop_reason for c in other] == [c.stop_reason for c in together]
        for mine, theirs in zip(other, together, strict=True):
            assert mine.logprobs == pytest.approx(theirs.logprobs, abs=1e-4)


def test_b172_different_seeds_differ_and_equal_seeds_agree(qwen3):
    """Case B172, bit for bit."""
    engine = TransformersEngine(qwen3, ())
    first = [Request(PROMPTS[0], 20, seed) for seed in (1, 2)]
    one, two = engine.generate(first, Sampling())
    assert one.token_ids != two.token_ids
    assert engine.generate(first, Sampling()) == [one, two]


def test_b173_siblings_of_a_group_differ(qwen3):
    """Case B173: one prompt, eight keys, eight completions."""
    requests = requests_for([PROMPTS[0]], siblings=8)
    completions = TransformersEngine(qwen3, ()).generate(requests, Sampling())
    assert len({c.token_ids for c in completions}) == 8


def test_samples_do_not_touch_the_global_generator(qwen3):
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    TransformersEngine(qwen3, ()).generate(requests_for(PROMPTS), Sampling())
    assert torch.rand(3).equal(expected)


def test_a_completion_is_cut_by_its_stop_token_and_nothing_else(model):
    """Rows finish at different times; each is the unstopped one up to its stop."""
    requests = requests_for(PROMPTS, budget=40, siblings=6)
    free = TransformersEngine(model, ()).generate(requests, Sampling())
    stops = {2, 4, *free[0].token_ids[5:8]}
    stopped = TransformersEngine(model, stops).generate(requests, Sampling())
    for whole, cut in zip(free, stopped, strict=True):
        ends = [i for i, token in enumerate(whole.token_ids) if token in stops]
        length = ends[0] + 1 if ends else 40
        assert cut.token_ids == whole.token_ids[:length]
        assert cut.logprobs == pytest.approx(whole.logprobs[:length], abs=1e-4)
        reason = StopReason.STOP if ends else StopReason.LENGTH
        assert cut.stop_reason == reason
        assert whole.stop_reason == StopReason.LENGTH
    assert len({len(c.token_ids) for c in stopped}) > 5


def test_each_request_has_its_own_budget(model):
    """B087: a truncated completion is what was sampled; nothing is appended."""
    budgets = [1, 2, 70, 5, 1, 33]
    keys = itertools.count(7)
    requests = [Request(PROMPTS[i % 4], b, next(keys)) for i, b in enumerate(budgets)]
    engine = TransformersEngine(model, ())
    completions = engine.generate(requests, Sampling())
    assert [len(c.token_ids) for c in completions] == budgets
    assert {c.stop_reason for c in completions} == {StopReason.LENGTH}
    for request, completion in zip(requests, completions, strict=True):
        assert_parity(model, request, completion, Sampling())


def test_who_watches_is_told_of_every_token_step(qwen3):
    budgets = [3, 0, 5, 2]
    requests = [Request(PROMPTS[0], b, 7 + i) for i, b in enumerate(budgets)]
    told: list[tuple[int, int, int]] = []
    watching = TransformersEngine(
        qwen3, (), max_batch_rows=2, watch=lambda *numbers: told.append(numbers)
    )
    assert watching.generate(requests, Sampling()) == TransformersEngine(
        qwen3, (), max_batch_rows=2
    ).generate(requests, Sampling())
    # one has nothing to sample; two batches, of budgets (3, 5) and 2
    tokens = [2, 4, 6, 7, 8, 9, 10]
    done = [1, 1, 2, 2, 3, 3, 4]
    assert told == [(d, 4, t) for d, t in zip(done, tokens, strict=True)]


def test_b166_a_stop_token_as_first_token_is_a_completion_of_one(qwen3):
    """Cases B166, B067: the stop token is kept, with its log-prob."""
    stops = range(104)
    requests = requests_for(PROMPTS, budget=5)
    for completion in TransformersEngine(qwen3, stops).generate(requests, Sampling()):
        assert len(completion.token_ids) == len(completion.logprobs) == 1
        assert completion.stop_reason == StopReason.STOP


def test_p18_a_stop_token_as_the_last_of_the_budget_is_a_stop(qwen3):
    """Case P18: finished and truncated are told apart where lengths are equal."""
    requests = [Request((30,), 6, key) for key in range(20)]
    samples = TransformersEngine(qwen3, ()).generate(requests, Sampling())
    key, free = next(
        (key, sample)
        for key, sample in enumerate(samples)
        if sample.token_ids[-1] not in sample.token_ids[:-1]
    )
    engine = TransformersEngine(qwen3, (free.token_ids[-1],))
    (stopped,) = engine.generate([requests[key]], Sampling())
    assert stopped.token_ids == free.token_ids
    assert (free.stop_reason, stopped.stop_reason) == (
        StopReason.LENGTH,
        StopReason.STOP,
    )


def test_no_room_is_an_empty_completion_that_ended_by_length(qwen3):
    engine = TransformersEngine(qwen3, ())
    context = tuple([9] * 510)
    requests = [
        Request((9,), 0, 1),
        Request(context, 40, 2),
        Request((*context, 9, 9), 4, 3),
        Request((9,), 3, 4),
    ]
    completions = engine.generate(requests, Sampling())
    assert [len(c.token_ids) for c in completions] == [0, 2, 0, 3]
    assert {c.stop_reason for c in completions} == {StopReason.LENGTH}
    assert engine.generate([], Sampling()) == []


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request((), 3, 0), "request 1 must continue at least one token, got none"),
        (Request((9,), -1, 0), "request 1 must ask for max_new_tokens >= 0, got -1"),
        (Request((9, 104), 3, 0), r"request 1 must be in \[0, 104\), got 9 to 104"),
        (Request((-1, 9), 3, 0), r"request 1 must be in \[0, 104\), got -1 to 9"),
    ],
)
def test_requests_no_engine_could_answer_are_refused(qwen3, request_, message):
    engine = TransformersEngine(qwen3, ())
    with pytest.raises(ValueError, match=message):
        engine.generate([Request((9,), 3, 0), request_], Sampling())


def test_limits_below_one_are_refused(qwen3):
    with pytest.raises(ValueError, match="must be >= 1, got 0 and 4"):
        TransformersEngine(qwen3, (), max_batch_tokens=0, max_batch_rows=4)


def test_a_batch_never_holds_more_tokens_or_rows_than_allowed(qwen3):
    requests = requests_for(PROMPTS, budget=12, siblings=5)
    shapes: list[tuple[int, int]] = []

    def watch(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        cache = kwargs["past_key_values"]
        shapes.append((len(kwargs["input_ids"]), cache.get_seq_length()))

    engine = TransformersEngine(qwen3, (), max_batch_tokens=60, max_batch_rows=4)
    expected = TransformersEngine(qwen3, ()).generate(requests, Sampling())
    handle = qwen3.register_forward_pre_hook(watch, with_kwargs=True)
    completions = engine.generate(requests, Sampling())
    handle.remove()
    assert [c.token_ids for c in completions] == [c.token_ids for c in expected]
    prefills = [rows for rows, length in shapes if length == 0]
    # 35 + 12 tokens: one row a batch; 12 + 12: two; 3 + 12: four of either prompt.
    assert len(prefills) >= 5 + 3 + 3 + 1
    assert max(prefills) <= 2


def test_a_group_is_prefilled_once(qwen3):
    seen: list[int] = []

    def watch(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        if kwargs["past_key_values"].get_seq_length() == 0:
            seen.append(kwargs["input_ids"].numel())

    handle = qwen3.register_forward_pre_hook(watch, with_kwargs=True)
    requests = requests_for([PROMPTS[0], PROMPTS[3]], siblings=8)
    TransformersEngine(qwen3, ()).generate(requests, Sampling())
    handle.remove()
    # Two prompts, the longer of 35 tokens.
    assert seen == [2 * 35]


def untied(seed: int = 0) -> Any:
    """Input and output embeddings apart, so that one token alone can be broken."""
    config = Qwen3Config(**decoder_settings(104) | {"tie_word_embeddings": False})
    return seeded(Qwen3ForCausalLM, config, seed)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.0)], ids=str)
@pytest.mark.parametrize("lean", [True, False])
def test_b068_broken_logits_end_their_row_as_a_failure(lean, sampling, monkeypatch):
    """Case B068: what was sampled before is kept, neighbours go on as if alone."""
    if not lean:
        monkeypatch.setattr(lean_decoder, "supports", lambda model: False)
    model = untied()
    engine = TransformersEngine(model, ())
    requests = [*requests_for(PROMPTS, budget=20), Request((103, 30), 20, 1)]
    healthy = engine.generate(requests, sampling)
    poison = healthy[0].token_ids[3]
    with torch.no_grad():
        model.model.embed_tokens.weight[[poison, 103]] = torch.nan
    broken = engine.generate(requests, sampling)
    assert broken[-1] == Completion((), (), StopReason.FAILURE)
    for before, after, request in zip(healthy, broken, requests[:-1], strict=False):
        length = 0
        if poison not in request.token_ids:
            ids = list(before.token_ids)
            length = next(
                (i + 1 for i, t in enumerate(ids) if t in (poison, 103)), len(ids)
            )
        assert after.token_ids == before.token_ids[:length]
        assert after.logprobs == pytest.approx(before.logprobs[:length], abs=1e-4)
        failed = length < 20
        expected = StopReason.FAILURE if failed else StopReason.LENGTH
        assert after.stop_reason == expected
    assert 0 < len(broken[0].token_ids) <= 4


def test_b073_an_update_in_place_is_sampled_from_at_once(model):
    """Cases B073, B112: nothing computed with old weights survives a load."""
    engine = TransformersEngine(model, (), version=3)
    requests = requests_for(PROMPTS, siblings=2)
    before = engine.generate(requests, Sampling())
    assert engine.version == 3
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.3)
    engine.load(model, 4)
    assert engine.version == 4
    assert engine.model is model
    after = engine.generate(requests, Sampling())
    assert engine.version == 4
    assert after == TransformersEngine(model, ()).generate(requests, Sampling())
    assert after != before
    for request, completion in zip(requests, after, strict=True):
        assert_parity(model, request, completion, Sampling())


def test_another_module_replaces_the_old_one(qwen3, folders):
    engine = TransformersEngine(qwen3, (2,))
    other = load_model(folders["llama"], device="cpu").model
    engine.load(other, 9)
    assert engine.version == 9
    requests = requests_for(PROMPTS)
    expected = TransformersEngine(other, (2,)).generate(requests, Sampling())
    assert engine.generate(requests, Sampling()) == expected


def test_b069_a_bfloat16_model_gives_finite_float32_logprobs(folders):
    """Case B069: tolerance in bfloat16 is .05 nats against an unbatched forward."""
    model = load_model(folders["qwen3"], torch.bfloat16, "cpu").model
    requests = requests_for(PROMPTS)
    completions = TransformersEngine(model, ()).generate(requests, Sampling())
    for request, completion in zip(requests, completions, strict=True):
        ids = request.token_ids + completion.token_ids
        logits = plain_logits(model, ids)[len(request.token_ids) - 1 : -1]
        tokens = torch.tensor(completion.token_ids)[:, None]
        expected = logits.log_softmax(-1).gather(1, tokens)[:, 0]
        gap = (torch.tensor(completion.logprobs) - expected).abs()
        assert gap.mean() < 0.05
