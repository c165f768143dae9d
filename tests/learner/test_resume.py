"""Saved and loaded, a learner goes on as if nothing had happened."""

import gc
import resource
import shutil
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from learner_cases import GRPO, ragged_advantages, ragged_batch, same, weights_of
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedModel

from accredit.functional.divergences import kl_k3
from accredit.learner.learner import Learner
from accredit.learner.options import LearnerOptions
from accredit.learner.schedules import Schedule, cosine
from accredit.models.optimizer import AdamWOptions, adamw, load_optimizer_tensors
from accredit.protocols import Objective
from accredit.records import PolicyUpdate

pytestmark = pytest.mark.whole_run

SCHEDULE = Schedule(peak=1e-2, decay=cosine, num_warmup_updates=2, num_updates=9)
OBJECTIVE = replace(
    GRPO, num_minibatches=2, num_epochs=2, kl_estimator=kl_k3, kl_coefficient=0.1
)


def updates(
    learner: Learner, first: int, last: int, objective: Objective = OBJECTIVE
) -> list[PolicyUpdate]:
    return [
        learner.begin(
            ragged_batch(seed), ragged_advantages(ragged_batch(seed)), objective, seed
        ).run()
        for seed in range(first, last)
    ]


@pytest.mark.parametrize("name", ["qwen3", "llama", "gpt2"])
def test_a_resumed_run_equals_the_uninterrupted_one_bit_for_bit(
    learner: Callable[..., Learner], tmp_path: Path, name: str
) -> None:
    """Weights, moments, losses and log-probs after 3 updates, against 1 + 2."""
    whole = learner(name, schedule=SCHEDULE)
    expected = updates(whole, 0, 3)
    first, second = learner(name, schedule=SCHEDULE), learner(name, schedule=SCHEDULE)
    updates(first, 0, 1)
    first.save(tmp_path)
    # The second has other weights and moments by then; none of them may survive.
    updates(second, 5, 6)
    second.load(tmp_path)
    found = updates(second, 1, 3)
    assert same(weights_of(whole), weights_of(second))
    for left, right in zip(expected[1:], found, strict=True):
        assert left.losses == right.losses
        assert left.gradient_norms == right.gradient_norms
        assert torch.equal(left.logprobs, right.logprobs)
        assert torch.equal(left.old_logprobs, right.old_logprobs)
        assert left.reference_logprobs is not None
        assert right.reference_logprobs is not None
        assert torch.equal(left.reference_logprobs, right.reference_logprobs)
    assert (second.num_updates, second.version) == (3, whole.version)


def test_the_learning_rate_goes_on_where_it_was(
    learner: Callable[..., Learner], tmp_path: Path
) -> None:
    """Case B118: warm-up of 10, resumed at 5."""
    schedule = Schedule(peak=1e-2, num_warmup_updates=10)
    whole = learner(schedule=schedule)
    expected = [update.learning_rate for update in updates(whole, 0, 7, GRPO)]
    assert expected == pytest.approx([1e-3 * u for u in range(1, 8)])
    first, second = learner(schedule=schedule), learner(schedule=schedule)
    updates(first, 0, 5, GRPO)
    first.save(tmp_path)
    second.load(tmp_path)
    assert [u.learning_rate for u in updates(second, 5, 7, GRPO)] == expected[5:]


def test_skips_in_a_row_are_remembered(
    learner: Callable[..., Learner], tmp_path: Path
) -> None:
    batch = ragged_batch(0)
    poisoned = torch.where(batch.trainable, torch.nan, 0.0)
    first, second = learner(max_consecutive_skips=2), learner(max_consecutive_skips=2)
    first.begin(batch, poisoned, GRPO, 0).run()
    first.save(tmp_path)
    second.load(tmp_path)
    with pytest.raises(RuntimeError, match="2 steps in a row"):
        second.begin(batch, poisoned, GRPO, 0).run()


def test_a_fresh_learner_can_be_saved(
    learner: Callable[..., Learner], tmp_path: Path
) -> None:
    first, second = learner(), learner()
    first.save(tmp_path)
    updates(second, 0, 1)
    second.load(tmp_path)
    updates(first, 0, 1)
    assert second.version == 0
    updates(second, 0, 1)
    assert same(weights_of(first), weights_of(second))


def test_the_model_of_a_checkpoint_is_a_plain_hugging_face_directory(
    learner: Callable[..., Learner], tmp_path: Path
) -> None:
    """Case B106: tied embeddings stay tied, and are stored once."""
    actor = learner("qwen3")
    updates(actor, 0, 1)
    actor.save(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    assert "lm_head.weight" not in load_file(tmp_path / "model" / "model.safetensors")
    ids = torch.arange(10)[None]
    with torch.no_grad():
        expected = actor.model(input_ids=ids).logits
        assert torch.equal(loaded(input_ids=ids).logits, expected)
    actor.load(tmp_path)
    updates(actor, 1, 2)
    model = actor.model
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_a_generation_config_that_cannot_be_saved_does_not_end_the_run(
    model: Callable[..., PreTrainedModel],
    learner: Callable[..., Learner],
    tmp_path: Path,
) -> None:
    """A temperature beside greedy decoding, as some published models have it."""
    policy = model()
    policy.generation_config.temperature = 0.5
    with pytest.warns(UserWarning, match="checkpoints keep its token ids only"):
        actor = Learner(policy, learner().options)
    actor.save(tmp_path)
    kept = GenerationConfig.from_pretrained(tmp_path / "model")
    assert (kept.eos_token_id, kept.temperature) == ([2, 4], None)


def test_a_checkpoint_holds_no_pickle(
    learner: Callable[..., Learner], tmp_path: Path
) -> None:
    actor = learner()
    updates(actor, 0, 1)
    actor.save(tmp_path)
    suffixes = {path.suffix for path in tmp_path.rglob("*") if path.is_file()}
    assert suffixes == {".json", ".safetensors"}


def test_the_checkpoint_of_another_model_is_refused(
    learner: Callable[..., Learner], tmp_path: Path
) -> None:
    actor = learner("llama")
    actor.save(tmp_path)
    with pytest.raises(ValueError, match=r"of the model of the run.*q_norm"):
        learner("qwen3").load(tmp_path)
    (tmp_path / "learner.json").write_text('{"schema": 7}')
    with pytest.raises(ValueError, match="must have schema 2, got 7"):
        actor.load(tmp_path)


def test_optimizer_state_of_another_model_is_refused(
    learner: Callable[..., Learner], tmp_path: Path
) -> None:
    actor, other = learner("llama"), learner("gpt2")
    updates(other, 0, 1)
    other.save(tmp_path)
    actor.save(tmp_path / "own")
    (tmp_path / "optimizer.safetensors").replace(
        tmp_path / "own" / "optimizer.safetensors"
    )
    with pytest.raises(ValueError, match="resume with the model of the run"):
        actor.load(tmp_path / "own")


def test_memory_is_flat_over_thirty_updates(learner: Callable[..., Learner]) -> None:
    """Case B184: live tensors do not grow after the fifth update; nor does RSS."""

    def num_tensors() -> int:
        gc.collect()
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    actor = learner()
    single = replace(OBJECTIVE, num_minibatches=1, num_epochs=1)
    updates(actor, 0, 5, single)
    settled = num_tensors()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    updates(actor, 5, 30, single)
    assert num_tensors() == settled
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 20_000


def without(tensors: dict[str, torch.Tensor], slot: str) -> None:
    del tensors[next(key for key in tensors if key.startswith(f"{slot}/"))]


def of_a_weight(tensors: dict[str, torch.Tensor]) -> str:
    """A matrix's first moment."""
    return next(
        k for k, t in tensors.items() if k.startswith("exp_avg/") and t.ndim > 1
    )


def without_a_weight(tensors: dict[str, torch.Tensor]) -> None:
    name = of_a_weight(tensors).partition("/")[2]
    for slot in ("exp_avg", "exp_avg_sq", "step"):
        del tensors[f"{slot}/{name}"]


def change(value: Callable[[torch.Tensor], torch.Tensor]) -> Callable:
    def changed(tensors: dict[str, torch.Tensor]) -> None:
        key = of_a_weight(tensors)
        tensors[key] = value(tensors[key]).contiguous()

    return changed


def renamed(tensors: dict[str, torch.Tensor]) -> None:
    tensors["exp_avg/nobody"] = tensors.pop(of_a_weight(tensors))


def another_slot(tensors: dict[str, torch.Tensor]) -> None:
    key = of_a_weight(tensors)
    tensors[key.replace("exp_avg", "momentum")] = tensors.pop(key)


EDITS = {
    "first moment gone": (partial(without, slot="exp_avg"), "the 1?[0-9]+ tensors"),
    "step gone": (partial(without, slot="step"), "tensors that were saved, got"),
    "weight gone": (without_a_weight, "tensors that were saved, got"),
    "scalar": (change(lambda t: t.sum()), "must be of this model's parameters"),
    "other shape": (change(lambda t: t[:1]), "must be of this model's parameters"),
    "transposed": (change(lambda t: t.T), "must be of this model's parameters"),
    "whole numbers": (change(lambda t: t.long()), "must be of this model's parameters"),
    "renamed": (renamed, "must be of this model's parameters, got exp_avg/nobody"),
    "other slot": (another_slot, "must be of this model's parameters, got momentum/"),
}


@pytest.fixture(scope="module")
def trained(originals: dict[str, PreTrainedModel], tmp_path_factory) -> Path:
    learner = Learner(deepcopy(originals["gpt2"]), LearnerOptions(schedule=SCHEDULE))
    updates(learner, 0, 1, GRPO)
    folder = tmp_path_factory.mktemp("trained")
    learner.save(folder)
    return folder


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_optimizer_is_refused_by_name(
    learner: Callable[..., Learner], trained: Path, tmp_path: Path, edit: str
) -> None:
    changed, message = EDITS[edit]
    shutil.copytree(trained, tmp_path / "saved")
    file = tmp_path / "saved" / "optimizer.safetensors"
    tensors = {name: t.clone() for name, t in load_file(file).items()}
    count = len(tensors)
    changed(tensors)
    save_file(tensors, file, metadata={"num_tensors": str(count)})
    with pytest.raises(ValueError, match=f"optimizer.safetensors.*{message}"):
        learner("gpt2", schedule=SCHEDULE).load(tmp_path / "saved")


def test_a_weight_without_all_its_moments_is_refused(trained: Path, originals) -> None:
    model = deepcopy(originals["gpt2"])
    tensors = load_file(trained / "optimizer.safetensors")
    without(tensors, "exp_avg_sq")
    with pytest.raises(ValueError, match="must hold exp_avg, exp_avg_sq, step of a we"):
        load_optimizer_tensors(adamw(model, AdamWOptions()), model, tensors)


@pytest.mark.parametrize("content", [b"", b"text", b"\xff" * 100, None])
def test_a_damaged_optimizer_is_refused_by_name(
    learner: Callable[..., Learner],
    trained: Path,
    tmp_path: Path,
    content: bytes | None,
) -> None:
    shutil.copytree(trained, tmp_path / "saved")
    file = tmp_path / "saved" / "optimizer.safetensors"
    file.unlink() if content is None else file.write_bytes(content)
    with pytest.raises(ValueError, match=r"optimizer\.safetensors"):
        learner("gpt2", schedule=SCHEDULE).load(tmp_path / "saved")
