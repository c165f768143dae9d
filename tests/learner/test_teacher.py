"""A teacher: frozen, of one vocabulary with the policy, and paid for."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from learner_cases import VOCAB, ragged_batch
from transformers import PreTrainedModel

from accredit.functional.flops import ModelShape, forward_flops
from accredit.learner.teacher import Teacher, teacher_folder
from accredit.models.forward import scoring_of, without_dropout
from accredit.models.loading import load_model, require_same_vocabulary
from accredit.models.scorer import Scorer
from accredit.records import State
from accredit.storage.checkpoint import save_checkpoint
from tiny_models import tiny_gpt2, tiny_qwen3


@pytest.mark.parametrize("name", ["qwen3", "gpt2"])
def test_it_says_what_its_model_says_at_the_policys_temperature(
    name: str, model: Callable[[str], PreTrainedModel]
) -> None:
    """A GPT-2 drops out a tenth of everything when it trains; a teacher does not."""
    batch, own = ragged_batch(), model(name)
    own.train()
    teacher = Teacher(own, micro_batch_tokens=50, temperature=0.5)
    plain = without_dropout(model(name))
    expected = Scorer(plain, scoring_of(plain), 2048, 0.5).logprobs(batch)
    torch.testing.assert_close(teacher.logprobs(batch), expected)
    hot = Teacher(model(name), temperature=2.0).logprobs(batch)
    assert (hot - expected).abs().max() > 0.1


def test_it_is_frozen(model: Callable[..., PreTrainedModel]) -> None:
    own = model()
    teacher = Teacher(own)
    assert not any(parameter.requires_grad for parameter in own.parameters())
    assert not teacher.logprobs(ragged_batch()).requires_grad


def test_asking_costs_one_pass_up_to_the_last_sampled_token(
    model: Callable[..., PreTrainedModel],
) -> None:
    batch, own = ragged_batch(), model()
    columns = torch.arange(1, batch.token_ids.shape[1] + 1)
    lengths = (batch.sampled * columns).amax(1).tolist()
    shape = ModelShape.from_config(own.config)
    expected = sum(forward_flops(shape, length) for length in lengths)
    found = Teacher(own).logprobs_flops(batch)
    assert found == pytest.approx(expected, rel=1e-12)


def test_a_row_beyond_its_context_is_an_error_and_no_guess(tmp_path: Path) -> None:
    folder = tiny_gpt2(tmp_path / "short", VOCAB, n_positions=8)
    teacher = Teacher(load_model(folder, torch.float32, "cpu").model)
    with pytest.raises(ValueError, match=r"context of 8 tokens .* got 1[0-3]; shorten"):
        teacher.logprobs(ragged_batch())


def test_a_run_stands_for_its_newest_checkpoint(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        (folder / "model").mkdir()
        (folder / "model" / "config.json").write_text("{}")

    for step in (3, 12):
        save_checkpoint(tmp_path / "run" / "checkpoints", step, write, State(step=step))
    folder = teacher_folder(str(tmp_path / "run"))
    assert Path(folder) == tmp_path / "run" / "checkpoints" / "step-000012" / "model"
    assert teacher_folder("packaged") == "packaged"
    assert teacher_folder(str(tmp_path)) == str(tmp_path)


def test_a_run_without_a_checkpoint_is_no_teacher(tmp_path: Path) -> None:
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "recipe.json").write_text("{}")
    for name in ("run", "begun"):
        with pytest.raises(ValueError, match="a run must have a whole checkpoint"):
            teacher_folder(str(tmp_path / name))


def test_b056_another_vocabulary_is_refused_by_its_first_difference(
    tmp_path: Path, folders: dict[str, Path]
) -> None:
    """Case B056: one token more, and the same size with two ids exchanged."""
    policy = load_model(folders["qwen3"], torch.float32, "cpu").tokenizer
    twin = load_model(tiny_qwen3(tmp_path / "twin", VOCAB, seed=1), None, "cpu")
    require_same_vocabulary(twin.tokenizer, policy, "the teacher")
    larger = load_model(tiny_qwen3(tmp_path / "larger", VOCAB + 1), None, "cpu")
    with pytest.raises(ValueError, match=rf"the teacher must .* \(id {VOCAB}\)"):
        require_same_vocabulary(larger.tokenizer, policy, "the teacher")
    file = tmp_path / "twin" / "tokenizer.json"
    text = file.read_text("utf-8")
    assert '"0": 10' in text and '"1": 11' in text
    file.write_text(text.replace('"0": 10', '"1": 10').replace('"1": 11', '"0": 11'))
    exchanged = load_model(tmp_path / "twin", None, "cpu")
    with pytest.raises(ValueError, match=r"the first that differs '[01]' \(id 10\)"):
        require_same_vocabulary(exchanged.tokenizer, policy, "the teacher")
