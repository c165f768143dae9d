"""Malformed model directories: one line for each (issue 10, E7)."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from accredit.models import checks as model_checks
from accredit.models.loading import load_backbone, load_model
from tiny_models import tiny_qwen3


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen3(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def broken(whole: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(whole, tmp_path / "model"))


def refused(folder: Path, load=load_model) -> str:
    with pytest.raises(ValueError, match=r"\S") as caught:
        load(folder, device="cpu")
    told = str(caught.value).replace(str(folder), "MODEL")
    assert "\n" not in told
    assert len(told) <= 300, told
    return told


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("use_cache", None, "config.json in MODEL must load, got "),
        ("hidden_act", 3, "config.json in MODEL must load, got "),
        ("hidden_act", "no_such", "the model in MODEL must load, got KeyError: "),
        ("num_attention_heads", 0, "config.json in MODEL must load, got "),
        ("num_attention_heads", 3, "config.json of MODEL must describe the weights"),
        ("dtype", "bfloat61", "config.json in MODEL must load, got AttributeError: "),
        ("layer_types", ["full_attention"] * 7, "config.json in MODEL must load"),
        ("rope_parameters", [], "config.json in MODEL must load, got "),
        ("vocab_size", "many", "config.json in MODEL must load, got "),
        ("hidden_size", 10**12, "must fit into memory, got 6.85e+14 parameters"),
        ("num_hidden_layers", 3, "config.json in MODEL must load, got "),
        ("attention_dropout", 1.5, "attention_dropout in MODEL must be a share"),
        ("max_position_embeddings", 0, "max_position_embeddings in MODEL must be at"),
        ("quantization_config", {"bits": 4}, "must be stored as numbers, got MODEL"),
        ("model_type", {"a": 1}, "must be a causal language model of transformers"),
        ("model_type", "x" * 999, "must be a causal language model of transformers"),
        ("eos_token_id", 10**9, "eos_token_id in MODEL must be one of the model's 104"),
    ],
    ids=str,
)
def test_a_malformed_configuration_is_told(key, value, told, broken):
    edit_json(broken / "config.json", **{key: value})
    assert told in refused(broken)


@pytest.mark.parametrize(
    "content",
    ["", "null", "[]", "3", '"x"', "{", "[" * 9999, "\xff", "{}\n{}"],
    ids=ascii,
)
@pytest.mark.parametrize(
    "name", ["config.json", "generation_config.json", "tokenizer_config.json"]
)
def test_a_json_file_of_another_kind_is_told(name, content, broken):
    (broken / name).write_text(content, "latin-1")
    assert "MODEL must " in refused(broken)


@pytest.mark.parametrize(
    "index",
    [
        [],
        None,
        {},
        {"weight_map": []},
        {"weight_map": {}},
        {"weight_map": {"a": 3}},
        {"weight_map": {"a": "../model.safetensors"}},
        {"weight_map": {"a": "/etc/passwd"}},
        {"weight_map": {"a": "absent.safetensors"}},
        {"weight_map": {"a": ["part.safetensors"]}},
    ],
    ids=str,
)
def test_an_index_of_another_kind_is_told(index, broken):
    (broken / "model.safetensors").rename(broken / "part.safetensors")
    path = broken / "model.safetensors.index.json"
    path.write_text(json.dumps(index))
    assert "model.safetensors.index.json of MODEL must " in refused(broken)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda w: w.mul_(float("nan")), "got NaN weights in model.norm.weight"),
        (lambda w: w.fill_(float("inf")), "got infinite weights in model.norm"),
        (lambda w: w.to(torch.int64), "got I64 for model.norm.weight"),
        (lambda w: w.to(torch.bool), "got BOOL for model.norm.weight"),
        (lambda w: w.to(torch.complex64), "got C64 for model.norm.weight"),
        (lambda w: w.to(torch.float8_e4m3fn), "got F8_E4M3 for model.norm.weight"),
        (lambda w: w[:-1].clone(), "(32,) for model.norm.weight and (31,) stored"),
        (lambda w: w[None].clone(), "(32,) for model.norm.weight and (1, 32) stored"),
        (lambda w: w[:0].clone(), "(32,) for model.norm.weight and (0,) stored"),
        (lambda w: None, "got none for model.norm.weight (1 in all)"),
    ],
)
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_weights_that_do_not_compute_are_told_by_name(change, told, broken):
    weights = load_file(broken / "model.safetensors")
    changed = change(weights.pop("model.norm.weight").clone())
    if changed is not None:
        weights["model.norm.weight"] = changed
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    assert told in refused(broken)


def test_what_does_not_fit_is_told_before_it_is_loaded(broken, monkeypatch):
    monkeypatch.setattr(model_checks, "free_bytes", lambda: 50_000)
    told = refused(broken)
    assert told.startswith("the model in MODEL must fit into memory, got 2.2e+04 para")
    assert told.endswith("(8.78e-05 GB) by its config.json, with 5e-05 GB free")
    assert refused(broken, load_backbone) == told


@pytest.mark.parametrize(
    "name",
    [
        "generation_config.json",
        "model.safetensors",
        "tokenizer_config.json",
        "chat_template.jinja",
        "model.safetensors.index.json",
    ],
)
def test_a_pipe_or_a_link_to_nowhere_is_never_waited_for(name, broken):
    (broken / name).unlink(missing_ok=True)
    os.mkfifo(broken / name)
    if name != "model.safetensors":
        assert f"must hold files, got a pipe at MODEL/{name}" in refused(broken)
    else:
        assert "must hold *.safetensors" in refused(broken) or "a pipe" in refused(
            broken
        )
    (broken / name).unlink()
    (broken / name).symlink_to("/dev/zero")
    assert "a device at" in refused(broken)
    (broken / name).unlink()
    (broken / name).symlink_to("nowhere")
    told = refused(broken)
    assert "No such file" in told or "must hold *.safetensors" in told


def test_adapters_are_no_whole_model(broken):
    (broken / "adapter_config.json").write_text('{"base_model_name_or_path": "/x"}')
    assert "with the adapter_config.json of an adapter; merge" in refused(broken)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("generation_config.json", "eos_token_id", "x"),
        ("generation_config.json", "eos_token_id", [2, "x"]),
        ("generation_config.json", "eos_token_id", True),
        ("generation_config.json", "eos_token_id", [[2]]),
        ("generation_config.json", "eos_token_id", 104),
        ("generation_config.json", "eos_token_id", 2.5),
    ],
)
def test_a_stop_token_is_a_token(name, key, value, broken):
    edit_json(broken / name, **{key: value})
    assert "MODEL must " in refused(broken)


@pytest.mark.parametrize("template", [3, ["a"], {"a": 3}, [{"name": 3}]], ids=str)
def test_a_chat_template_is_text(template, broken):
    (broken / "chat_template.jinja").unlink(missing_ok=True)
    edit_json(broken / "tokenizer_config.json", chat_template=template)
    told = refused(broken)
    assert "a chat template in MODEL must be text" in told or "tokenizer" in told


def edit_json(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
