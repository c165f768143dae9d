"""A critic on disk: resumed bit for bit, started from, loaded alone, or refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from critic_cases import (
    TOKENIZER,
    critic_of,
    noisy,
    opinionated,
    rollouts,
    same,
    taught,
    weights_of,
)
from safetensors.torch import load_file, save_file
from transformers import AutoModel, PreTrainedModel

from accredit.critics.build import build_critic, critic_line, warnings_of
from accredit.critics.configs import ValueHeadConfig
from accredit.critics.loading import load_critic
from accredit.critics.value_head.critic import ValueHeadCritic
from accredit.critics.value_head.saved import read_card
from accredit.models.loading import load_model
from accredit.records import State
from accredit.storage.checkpoint import save_checkpoint
from accredit.types import Prompt
from tiny_models import character_tokenizer, tiny_qwen3

pytestmark = pytest.mark.whole_run

Policy = Callable[..., PreTrainedModel]
TRUNKS = ["own", "shared", "lora"]
OUTPUTS: list[dict] = [
    {"output": "sigmoid"},
    {"output": "linear", "reward_high": 3.0},
    {"output": "categorical", "num_bins": 7},
]


def saved(critic: ValueHeadCritic, folder: Path) -> Path:
    critic.save(folder)
    return folder


def shown(template: str, prompt: Prompt) -> list[int]:
    return [1, *prompt.token_ids]


def values(critic: ValueHeadCritic) -> torch.Tensor:
    batch = rollouts(99)
    return critic.values(batch, batch.rewards)


@pytest.mark.parametrize("keys", OUTPUTS)
@pytest.mark.parametrize("trunk", TRUNKS)
def test_b102_a_resumed_critic_goes_on_bit_for_bit(
    policy: Policy, tmp_path: Path, trunk: str, keys: dict
):
    """Case B102: head, trunk, optimizer and counters, after a perturbation."""
    model = policy()
    critic = taught(critic_of(model, trunk=trunk, num_minibatches=2, **keys), 3)
    folder = saved(critic, tmp_path / "critic")
    resumed_policy = policy()
    resumed_policy.load_state_dict(model.state_dict())
    resumed = critic_of(resumed_policy, trunk=trunk, num_minibatches=2, **keys)
    opinionated(resumed, seed=5)
    assert not torch.equal(values(resumed), values(critic))
    resumed.load(folder)
    assert same(weights_of(resumed), weights_of(critic))
    assert torch.equal(values(resumed), values(critic))
    assert resumed.num_updates == critic.num_updates == 3
    taught(critic, 2, seed=50)
    taught(resumed, 2, seed=50)
    assert same(weights_of(resumed), weights_of(critic))


def test_b099_what_follows_the_warm_up_steps_with_the_optimizer_that_was_resumed(
    policy: Policy, tmp_path: Path
):
    """Case B099: two warm-up steps, then save and load; one optimizer, one rate."""
    batch = rollouts()
    critic = critic_of(policy(), learning_rate=3e-3)
    for step in range(2):
        critic.update(batch, noisy(batch), step, warming_up=True)
    folder = saved(critic, tmp_path)
    resumed = critic_of(policy(), learning_rate=3e-3)
    resumed.load(folder)
    for one in (critic, resumed):
        update = one.update(batch, noisy(batch), 2, warming_up=False)
        assert update.learning_rate == 3e-3
        groups = one._descent.optimizer.param_groups
        assert [group["lr"] for group in groups] == [3e-3, 3e-3]
        trained = {id(p) for group in groups for p in group["params"]}
        assert trained == {id(p) for p in one.model.parameters()}
    assert same(weights_of(critic), weights_of(resumed))


@pytest.mark.parametrize("trunk", TRUNKS)
def test_b100_a_warm_start_takes_the_weights_and_nothing_else(
    policy: Policy, tmp_path: Path, trunk: str
):
    """Case B100: from a critic of another schedule; optimizer and counters fresh."""
    model = policy()
    old = taught(critic_of(model, trunk=trunk, num_epochs=3), 2)
    folder = saved(old, tmp_path)
    keys = {"trunk": trunk, "learning_rate": 7e-4, "warmup_steps": 3}
    new = critic_of(model, path=str(folder), **keys)
    assert torch.equal(values(new), values(old))
    assert new.num_updates == 0
    assert not new._descent.optimizer.state
    assert new._descent.optimizer.param_groups[0]["lr"] == 7e-4
    assert "fresh optimizer" in critic_line(new.config)


def test_b101_a_policy_directory_gives_its_backbone_and_a_fresh_head(
    policy: Policy, folders: dict[str, Path], tmp_path: Path
):
    """Case B101: tied or not, the output head is left out; backbone strict; said so."""
    for name in ("qwen3", "llama", "gpt2"):
        config = ValueHeadConfig(path=str(folders[name]), initial_value=0.2)
        critic = build_critic(
            config, policy_model=policy("qwen3"), policy_tokenizer=TOKENIZER
        )
        expected = dict(policy(name).base_model.named_parameters())
        found = dict(critic.trunk.module.named_parameters())
        assert same(dict(expected), dict(found))
        assert "fresh head that says 0.2 of everything" in critic_line(config)
    broken = Path(shutil.copytree(folders["llama"], tmp_path / "broken"))
    tensors = load_file(broken / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, broken / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=r"must hold every parameter, got none for no"):
        critic_of(policy(), path=str(broken))
    tensors["model.norm.weight"] = torch.ones(32)
    tensors["score.weight"] = torch.ones(1, 32)
    save_file(tensors, broken / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=r"must be a causal language model's, got als"):
        critic_of(policy(), path=str(broken))


@pytest.mark.parametrize("trunk", TRUNKS)
@pytest.mark.parametrize(
    "lost",
    ["value_head.safetensors", "value_head.json", "critic_optimizer.safetensors"],
)
def test_b102_a_missing_part_is_an_error_on_resume(
    policy: Policy, tmp_path: Path, trunk: str, lost: str
):
    """Case B102: never a new head in its place with a warning."""
    folder = saved(taught(critic_of(policy(), trunk=trunk), 1), tmp_path)
    (folder / lost).unlink()
    with pytest.raises(ValueError, match=f"must hold {lost}, got .* without it"):
        critic_of(policy(), trunk=trunk).load(folder)


def test_b102_missing_adapters_and_missing_backbones_are_errors(
    policy: Policy, tmp_path: Path
):
    adapted = saved(critic_of(policy(), trunk="lora"), tmp_path / "lora")
    (adapted / "adapter.safetensors").unlink()
    with pytest.raises(ValueError, match=r"must hold adapter.safetensors, got"):
        critic_of(policy(), trunk="lora").load(adapted)
    (adapted / "adapter.safetensors").write_bytes(b"torn")
    with pytest.raises(ValueError, match=r"must hold tensors, got a damaged file"):
        critic_of(policy(), trunk="lora").load(adapted)
    own = saved(critic_of(policy()), tmp_path / "own")
    (own / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"weights|safetensors"):
        critic_of(policy()).load(own)


@pytest.mark.parametrize(
    "head, message",
    [
        ({"weight": (1, 32)}, r"\['bias', 'weight'\] and nothing else, got \['weight'"),
        (
            {"weight": (1, 32), "bias": (1,), "score": (1,)},
            r"nothing else, got \['bias', 'score', 'weight'\]",
        ),
        ({"weight": (2, 32), "bias": (2,)}, r"a critic checkpoint of another shape"),
        ({"weight": (1, 16), "bias": (1,)}, r"a critic checkpoint of another shape"),
    ],
)
def test_b103_a_head_with_other_tensors_or_another_width_is_refused(
    policy: Policy, tmp_path: Path, head: dict, message: str
):
    """Case B103: a lost bias, a stranger, two outputs instead of one."""
    folder = saved(critic_of(policy()), tmp_path)
    tensors = {name: torch.ones(shape) for name, shape in head.items()}
    save_file(tensors, folder / "value_head.safetensors")
    with pytest.raises(ValueError, match=message):
        critic_of(policy()).load(folder)


@pytest.mark.parametrize(
    "keys, name",
    [
        ({"output": "linear"}, "output must be 'linear', got 'sigmoid'"),
        ({"trunk": "shared"}, "trunk must be 'shared', got 'own'"),
        ({"reward_high": 2.0}, "reward_high must be 2.0, got 1.0"),
        ({"output": "categorical"}, "output must be 'categorical'"),
        ({"template": "{prompt}!"}, "template must be '{prompt}!', got ''"),
    ],
)
def test_a_critic_of_another_kind_is_refused(
    policy: Policy, tmp_path: Path, keys: dict, name: str
):
    folder = saved(critic_of(policy()), tmp_path)
    with pytest.raises(ValueError, match=f"another shape: {name}"):
        critic_of(policy(), show=shown, **keys).load(folder)
    with pytest.raises(ValueError, match=f"another shape: {name}"):
        critic_of(policy(), show=shown, path=str(folder), **keys)


@pytest.mark.parametrize("trunk", ["shared", "lora"])
def test_a_critic_without_a_trunk_of_its_own_gives_none(
    policy: Policy, tmp_path: Path, trunk: str
):
    """Its folder is no model directory, and the error speaks of the key to set."""
    folder = saved(critic_of(policy(), trunk=trunk), tmp_path)
    with pytest.raises(ValueError, match=f"trunk must be 'own', got '{trunk}'; set"):
        critic_of(policy(), path=str(folder))


@pytest.mark.parametrize("trunk", TRUNKS)
def test_a_warm_start_on_another_policy_is_said(
    policy: Policy, tmp_path: Path, trunk: str
):
    """What reads the policy's weights means little over others; an own trunk stays."""
    model = policy()
    critic = taught(critic_of(model, trunk=trunk), 1)
    named = ValueHeadConfig(trunk=trunk, path=str(saved(critic, tmp_path)))
    assert warnings_of(named, model) == []
    assert warnings_of(ValueHeadConfig(trunk=trunk), model) == []
    again = policy()
    again.load_state_dict(model.state_dict())
    assert warnings_of(named, again) == []
    with torch.no_grad():
        next(iter(again.base_model.parameters()))[0, 0] += 1e-3
    lines = warnings_of(named, again)
    assert len(lines) == (trunk != "own")
    for line in lines:
        assert f"trunk = '{trunk}' reads: its first values mean little" in line


def test_bins_ranks_and_backbones_of_another_size_are_refused(
    policy: Policy, tmp_path: Path
):
    bins = saved(critic_of(policy(), output="categorical", num_bins=7), tmp_path / "a")
    with pytest.raises(ValueError, match=r"another shape: num_bins must be 9, got 7"):
        critic_of(policy(), output="categorical", num_bins=9).load(bins)
    rank = saved(critic_of(policy(), trunk="lora", lora_rank=2), tmp_path / "b")
    with pytest.raises(ValueError, match=r"another shape: lora_rank must be 4, got 2"):
        critic_of(policy(), trunk="lora", lora_rank=4).load(rank)
    tiny_qwen3(tmp_path / "wide", vocab_size=24, intermediate_size=80)
    wide = critic_of(policy(), path=str(tmp_path / "wide"))
    with pytest.raises(ValueError, match=r"a critic checkpoint of another shape"):
        critic_of(policy()).load(saved(wide, tmp_path / "c"))
    tiny_qwen3(tmp_path / "deep", vocab_size=24, num_hidden_layers=3)
    deep = critic_of(policy(), path=str(tmp_path / "deep"))
    with pytest.raises(ValueError, match=r"must hold the weights of this critic"):
        critic_of(policy()).load(saved(deep, tmp_path / "d"))
    card = json.loads((bins / "value_head.json").read_text())
    (bins / "value_head.json").write_text(json.dumps(card | {"schema": 2}))
    with pytest.raises(ValueError, match=r"must have schema 1, got 2"):
        critic_of(policy(), output="categorical", num_bins=7).load(bins)


@pytest.mark.parametrize("file", ["value_head.safetensors", "model.safetensors"])
def test_a_critic_that_diverged_is_no_start(policy: Policy, tmp_path: Path, file: str):
    folder = saved(critic_of(policy()), tmp_path)
    tensors = load_file(folder / file)
    name = sorted(tensors)[0]
    tensors[name].view(-1)[0] = torch.nan
    save_file(tensors, folder / file, {"format": "pt"})
    with pytest.raises(ValueError, match=rf"must be finite, got NaN .*{name} of"):
        critic_of(policy(), path=str(folder))
    with pytest.raises(ValueError, match=rf"must be finite, got NaN .*{name} of"):
        load_critic(folder)


def test_a_critic_is_no_model_that_writes(policy: Policy, tmp_path: Path):
    folder = saved(critic_of(policy()), tmp_path)
    with pytest.raises(ValueError, match=r"must be a causal language model, got"):
        load_model(folder)


def test_a_vocabulary_other_than_the_policys_is_refused(policy: Policy, tmp_path: Path):
    """As many tokens with other meanings, too."""
    larger = tiny_qwen3(tmp_path / "larger", vocab_size=40)
    with pytest.raises(
        ValueError,
        match=r"a critic must have the policy's vocabulary, got 40 tokens beside the "
        r"policy's 24, the first that differs .* \(id 24\)",
    ):
        critic_of(policy(), path=str(larger))
    renamed = tiny_qwen3(tmp_path / "renamed", vocab_size=24)
    text = (renamed / "tokenizer.json").read_text().replace('"7"', '"!"')
    (renamed / "tokenizer.json").write_text(text)
    with pytest.raises(ValueError, match=r"must have the policy's vocabulary, got 24"):
        critic_of(policy(), path=str(renamed))
    short = tiny_qwen3(tmp_path / "short", vocab_size=24)
    character_tokenizer(40).save_pretrained(short)
    with pytest.raises(ValueError, match=r"must fit the model's 24 embeddings, got 40"):
        critic_of(policy(), path=str(short))


def test_an_own_trunk_is_saved_as_a_plain_directory_of_a_backbone(
    policy: Policy, tmp_path: Path
):
    critic = taught(critic_of(policy("llama")), 1)
    folder = saved(critic, tmp_path)
    plain = AutoModel.from_pretrained(folder, dtype=torch.float32)
    module = critic.trunk.module
    assert same(dict(plain.named_parameters()), dict(module.named_parameters()))
    assert (folder / "tokenizer.json").is_file()
    again = critic_of(policy("qwen3"), path=str(folder))
    assert torch.equal(values(again), values(critic))


@pytest.mark.parametrize("keys", OUTPUTS)
@pytest.mark.parametrize("trunk", TRUNKS)
def test_a_saved_critic_is_loaded_alone(
    policy: Policy, tmp_path: Path, trunk: str, keys: dict
):
    """From its folder, its checkpoint, its run, or with the policy's model named."""
    model = policy()
    critic = taught(critic_of(model, trunk=trunk, **keys), 2)

    def write(folder: Path) -> None:
        critic.save(folder / "critic")
        model.save_pretrained(folder / "model")
        TOKENIZER.save_pretrained(folder / "model")

    run = tmp_path / "run"
    checkpoint = save_checkpoint(run / "checkpoints", 7, write, State())
    for path in (run, checkpoint, checkpoint / "critic"):
        assert torch.equal(values(load_critic(path)), values(critic))
    moved = Path(shutil.copytree(checkpoint / "critic", tmp_path / "moved"))
    named = load_critic(moved, policy=checkpoint / "model")
    assert torch.equal(values(named), values(critic))
    if trunk != "own":
        with pytest.raises(ValueError, match=r"needs its policy's model, got none"):
            load_critic(moved)
    started = critic_of(model, trunk=trunk, path=str(run), **keys)
    assert torch.equal(values(started), values(critic))


def test_what_holds_no_critic_is_refused(
    policy: Policy, folders: dict[str, Path], tmp_path: Path
):
    with pytest.raises(ValueError, match=r"from a folder, got .*nowhere, where there"):
        load_critic(tmp_path / "nowhere")
    (tmp_path / "file").write_text("no critic")
    for path in (str(tmp_path / "nowhere"), str(tmp_path / "file"), ""):
        with pytest.raises(ValueError, match=rf"critic.path must be .* got '{path}'"):
            critic_of(policy(), path=path)
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "recipe.json").write_text("{}")
    with pytest.raises(ValueError, match=r"with a critic, got .*begun with none"):
        critic_of(policy(), path=str(tmp_path / "begun"))
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"with a critic, got .* with none"):
        critic_of(policy(), path=str(tmp_path / "run"))
    save_checkpoint(tmp_path / "run" / "checkpoints", 3, lambda folder: None, State())
    with pytest.raises(ValueError, match=r"with step-000003 without one; name a"):
        load_critic(tmp_path / "run")
    for trunk in ("shared", "lora"):
        with pytest.raises(ValueError, match=r"must be 'policy' or a saved critic"):
            critic_of(policy(), path=str(folders["qwen3"]), trunk=trunk)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("trunk", 3),
        ("output", None),
        ("num_outputs", "1"),
        ("num_outputs", True),
        ("bin_sigma", "wide"),
        ("reward_low", [0.0]),
        ("num_updates", 1.5),
    ],
)
def test_an_edited_card_is_named(
    policy: Policy, tmp_path: Path, key: str, value: object
):
    folder = saved(taught(critic_of(policy()), 1), tmp_path)
    file = folder / "value_head.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: value}))
    with pytest.raises(ValueError, match=rf"{key} in .*value_head\.json must be of"):
        read_card(folder)
