"""Directories that load, and the one line said of each that does not."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.utils import logging as transformers_logging

from accredit.models import loading as models
from accredit.models.loading import load_model, model_folder
from tiny_models import character_tokenizer, tiny_gpt2, tiny_llama, tiny_qwen3


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen3(tmp_path_factory.mktemp("qwen3"))


@pytest.fixture
def broken(qwen3: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(qwen3, tmp_path / "model"))


@pytest.mark.parametrize("build", [tiny_qwen3, tiny_llama, tiny_gpt2])
def test_a_directory_loads_in_evaluation_mode_and_float32(build, tmp_path):
    model, tokenizer, stop_token_ids = load_model(build(tmp_path), device="cpu")
    assert not model.training
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert tokenizer.decode(tokenizer("2+2=4").input_ids)[-5:] == "2+2=4"
    assert stop_token_ids == (2, 4)


def test_p18_stop_tokens_are_the_union_of_three_sources(broken):
    """Case P18, B086: one tokenizer EOS where the model stops on others."""
    edit_json(broken / "generation_config.json", eos_token_id=[7])
    edit_json(broken / "config.json", eos_token_id=2)
    assert load_model(broken, device="cpu").stop_token_ids == (2, 4, 7)


def test_a_model_without_any_stop_token_loads_with_none(broken):
    edit_json(broken / "generation_config.json", eos_token_id=None)
    edit_json(broken / "config.json", eos_token_id=None)
    edit_json(broken / "tokenizer_config.json", eos_token=None)
    assert load_model(broken, device="cpu").stop_token_ids == ()


def test_dtype_is_the_one_asked_for(qwen3):
    model = load_model(qwen3, torch.bfloat16, "cpu").model
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


def test_a_missing_directory_is_refused():
    with pytest.raises(ValueError, match=r"must be a directory, got Qwen/Qwen3-4B;"):
        load_model("Qwen/Qwen3-4B")


def test_packaged_names_the_folder_inside_the_package(qwen3, tmp_path, monkeypatch):
    monkeypatch.setattr(models, "__file__", str(tmp_path / "models" / "loading.py"))
    with pytest.raises(ValueError, match=r"got packaged; make it with scripts/"):
        load_model("packaged")
    shutil.copytree(qwen3, tmp_path / "packaged")
    assert load_model("packaged", device="cpu").stop_token_ids == (2, 4)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("config.json", "must hold config.json"),
        ("tokenizer.json", "must hold a tokenizer"),
        ("model.safetensors", r"must hold \*.safetensors"),
    ],
)
def test_a_directory_without_a_part_is_refused(broken, name, message):
    (broken / name).unlink()
    with pytest.raises(ValueError, match=message):
        load_model(broken)


def test_pickled_weights_are_not_read(broken):
    (broken / "model.safetensors").rename(broken / "pytorch_model.bin")
    with pytest.raises(ValueError, match="pickled weights are not read"):
        load_model(broken)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("config.json", "config.json of .* must be JSON"),
        ("tokenizer.json", "the tokenizer in .* must load"),
        ("model.safetensors", "the weights in .* must load"),
    ],
)
def test_a_torn_file_is_refused_in_one_line(broken, name, message):
    content = (broken / name).read_bytes()
    (broken / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=message) as caught:
        load_model(broken, device="cpu")
    assert "\n" not in str(caught.value)


def test_a_parameter_that_is_not_on_disk_is_refused(broken):
    weights = load_file(broken / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"got none for model.norm.weight \(1 in all"):
        load_model(broken, device="cpu")


def test_a_tokenizer_larger_than_the_embedding_is_refused(tmp_path):
    tiny_qwen3(tmp_path, vocab_size=40)
    character_tokenizer(60).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="must fit the model's 40 embeddings, got 60"):
        load_model(tmp_path, device="cpu")


@pytest.mark.parametrize("kind", ["no_such_model", "t5", "vit", None])
def test_an_unsupported_architecture_is_refused_by_name(broken, kind):
    edit_json(broken / "config.json", model_type=kind, architectures=None)
    with pytest.raises(ValueError, match=r"causal language model.*got model_type"):
        load_model(broken, device="cpu")


def test_code_that_ships_with_weights_never_runs(broken):
    (broken / "modeling_evil.py").write_text(
        "import pathlib; pathlib.Path(__file__).with_name('ran').touch()\n"
        "class EvilConfig: pass\nclass Evil: pass\n"
    )
    edit_json(
        broken / "config.json",
        model_type="evil",
        auto_map={
            "AutoConfig": "modeling_evil.EvilConfig",
            "AutoModelForCausalLM": "modeling_evil.Evil",
        },
    )
    with pytest.raises(ValueError, match="code that ships with weights is never run"):
        load_model(broken, device="cpu")
    assert not (broken / "ran").exists()


def test_loading_is_silent_and_leaves_the_users_settings(qwen3, capfd):
    transformers_logging.set_verbosity_info()
    transformers_logging.enable_progress_bar()
    try:
        load_model(qwen3, device="cpu")
        assert transformers_logging.get_verbosity() == transformers_logging.INFO
        assert transformers_logging.is_progress_bar_enabled()
    finally:
        transformers_logging.set_verbosity_warning()
        transformers_logging.disable_progress_bar()
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def edit_json(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("Qwen/Qwen3-0.6B", "hf download Qwen/Qwen3-0.6B --local-dir Qwen/Qwen3-0.6B"),
        ("a-b/c_d.e", "hf download a-b/c_d.e --local-dir a-b/c_d.e"),
        ("nowhere", "give the path of its folder"),
        ("/abs/path", "give the path of its folder"),
        ("a/b/c", "give the path of its folder"),
        ("a/b; rm -r", "give the path of its folder"),
        ("../b", "give the path of its folder"),
    ],
)
def test_a_model_that_is_not_here_is_told_with_the_command_that_works(path, advice):
    with pytest.raises(ValueError, match=re.escape(advice)):
        model_folder(path)
