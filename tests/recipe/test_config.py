"""Recipes: what is read, what overrides do, and what every mistake is told."""

import json
import re
from pathlib import Path

import pytest

from accredit.recipe.config import (
    RecipeError,
    RunConfig,
    load_recipe,
    recipe_from,
    union_members,
    with_overrides,
)
from accredit.recipe.overrides import toml_value

OWN_FILE = {"name": "jsonl", "path": "rows.jsonl"}


def fault(content: dict, *overrides: str) -> str:
    """What is said of a recipe that is refused."""
    with pytest.raises(RecipeError) as raised:
        recipe_from(with_overrides(content, overrides), "my.toml")
    message = str(raised.value)
    assert "\n" not in message
    return message.removeprefix("my.toml: ")


def accepted(*overrides: str, content: dict | None = None) -> RunConfig:
    return recipe_from(with_overrides(content or {}, overrides), "my.toml")


def test_an_empty_recipe_is_the_default_run():
    config = accepted()
    assert config == RunConfig()
    assert (config.task.name, config.algorithm.name) == ("walk", "grpo")


def test_a_section_algorithm_without_a_name_is_grpo():
    config = accepted(content={"algorithm": {"group_size": 4}})
    assert (config.algorithm.name, config.algorithm.group_size) == ("grpo", 4)


def test_a_recipe_is_frozen():
    with pytest.raises(ValueError, match="frozen"):
        RunConfig().steps = 3


def test_the_budget_is_the_tasks_own_unless_the_recipe_sets_one():
    assert accepted("--task.name", "walk", "--task.num_moves", "5").max_new_tokens == 15
    assert accepted(content={"task": OWN_FILE}).max_new_tokens == 256
    assert accepted("--sampling.max_new_tokens", "7").max_new_tokens == 7


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            {"stepz": 3},
            r"stepz is not a key; did you mean steps\? \(17 are known, the likest: st",
        ),
        (
            {"learner": {"learning_rte": 1}},
            r"learner.learning_rte is not a key; did you mean learning_rate\? \(known",
        ),
        ({"learner": {"lr": 1}}, r"learner.lr is not a key \(known: beta1, beta2, "),
        (
            {"task": {"name": "walk", "splits": 1}},
            r"task.splits .* did you mean split\?",
        ),
        (
            {"algorithm": {"name": "gspo", "dual_clip": 3.0}},
            r"algorithm.dual_clip is not a key .*\(known: clip_high, clip_low, engine_",
        ),
        # A key of another section is named with its section.
        (
            {"learning_rate": 1e-4},
            r"learning_rate is not a key; did you mean learner.learning_rate\?",
        ),
        ({"group_size": 4}, r"group_size .* did you mean algorithm.group_size\?"),
        ({"task": {"name": "walk", "seed": 4}}, r"task.seed is not a key"),
    ],
)
def test_an_unknown_key_names_the_nearest_one(content, expected):
    assert re.match(expected, fault(content)), fault(content)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            {"task": {"name": "wlk"}},
            "task.name 'wlk' is unknown; did you mean walk? "
            "(known: chain, hub, imo_answerbench, jsonl, reasoning_gym, walk)",
        ),
        (
            {"algorithm": {"name": "gropo"}},
            "algorithm.name 'gropo' is unknown; did you mean grpo? "
            "(known: ac2, ac2_plus, cispo, dapo, dr_grpo, grpo, gspo, opd, pact, ppo, "
            "prefix_grpo, reinforce_pp, rloo, sao, vine)",
        ),
        (
            {"task": {"split": "easy"}},
            "task needs a name, got a section without one (known: chain, hub, "
            "imo_answerbench, jsonl, reasoning_gym, walk)",
        ),
        ({"task": 3}, "task must be a section of keys, got 3"),
        ({"learner": 3}, "learner must be a section of keys, got 3"),
    ],
)
def test_an_unknown_name_lists_the_known_ones(content, expected):
    assert fault(content) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"steps": 0}, "steps must be greater than or equal to 1, got 0"),
        ({"steps": "many"}, "steps must be a valid integer, got 'many'"),
        ({"steps": 1.5}, "steps must be a valid integer, got 1.5"),
        ({"name": 3}, "name must be a valid string, got 3"),
        (
            {"name": "../x"},
            "name must consist of letters, digits, '.', '_' and '-', and begin with "
            "one of the first two, got '../x'",
        ),
        ({"trackers": "wandb"}, "trackers must be a list, got 'wandb'"),
        (
            {"trackers": ["tensorbord"]},
            "trackers.0 must be 'tensorboard', 'wandb' or 'trackio', got 'tensorbord'",
        ),
        (
            {"learner": {"learning_rate": float("nan")}},
            "learner.learning_rate must be a finite number, got nan",
        ),
        (
            {"sampling": {"top_p": 0}},
            "sampling.top_p must be greater than 0, got 0",
        ),
        (
            {"model": {"gradient_checkpointing": "perhaps"}},
            "model.gradient_checkpointing must be a valid boolean, got 'perhaps'",
        ),
        (
            {"task": {"name": "jsonl"}},
            "task.path must be given, got a section without it",
        ),
        (
            {"task": {**OWN_FILE, "on_bad_row": "ignore"}},
            "task.on_bad_row must be 'stop' or 'skip', got 'ignore'",
        ),
        (
            {"seed": "x", "steps": 0},
            "seed must be a valid integer, got 'x' (and 1 more)",
        ),
    ],
)
def test_a_value_of_another_kind_is_told_what_must_hold(content, expected):
    assert fault(content) == expected


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "dapo", "rloo", "gspo", "cispo"])
def test_b041_a_group_of_one_is_refused_where_siblings_are_the_critic(name):
    """Case B041: never NaN, never the raw reward."""
    section = {"name": name, "group_size": 1}
    expected = "algorithm.group_size must be greater than or equal to 2, got 1"
    assert fault({"algorithm": section}) == expected


def test_b041_reinforce_pp_compares_nobody():
    content = {"algorithm": {"name": "reinforce_pp", "group_size": 1}}
    assert accepted(content=content).algorithm.group_size == 1


def test_b031_more_minibatches_than_rollouts_are_refused():
    """Case B031: an empty minibatch would divide by nothing."""
    section = {"name": "grpo", "prompts_per_step": 2, "group_size": 3}
    assert accepted(content={"algorithm": {**section, "num_minibatches": 6}})
    assert fault({"algorithm": {**section, "num_minibatches": 7}}) == (
        "algorithm.num_minibatches must not exceed the 6 rollouts of a step, got 7"
    )


def test_b031_micro_batches_have_nothing_to_do_with_minibatches():
    """Case B031: a micro-batch larger than the batch is fine."""
    assert accepted("--learner.micro_batch_tokens", "100000000")


def critic_fault(name, **keys):
    return fault({"algorithm": {"name": name, "critic": keys}})


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"reward_low": 1.0}, "reward_low must be below reward_high, got 1.0 and 1.0"),
        ({"initial_value": 1.5}, "between reward_low and reward_high, 0.0 and 1.0"),
        ({"value_clip": 0.1}, "value_clip goes with output = 'linear', got 'sigmoid'"),
        ({"freeze_attention": True, "trunk": "shared"}, "needs a trunk of its own"),
        ({"template": "no place for it"}, "template must hold {prompt}, where the"),
        ({"template": "{prompt} {anser}"}, "holds {anser}; did you mean {answer}?"),
        ({"lora_rank": 4}, "lora_rank is read by algorithm.critic.trunk = 'lora'"),
        ({"num_bins": 11}, "num_bins is read by algorithm.critic.output = 'categor"),
        ({"warmup_steps": 0, "warmup_epochs": 2}, "warmup_epochs is read by"),
        ({"warmup_steps": 101}, "warmup_steps must not exceed steps, got 101 and 100"),
        ({"num_minibatches": 17}, "num_minibatches must not exceed the 16 rollouts"),
        ({"deviation_floor": 0.1}, "needs siblings whose rewards deviate, got group"),
        ({"learning_ratte": 1.0}, "learning_ratte is not a key; did you mean learning"),
        ({"max_prefixes": 0}, "max_prefixes must be greater than or equal to 1, got 0"),
    ],
)
def test_keys_of_a_critic_that_cannot_work_are_refused(keys, expected):
    assert expected in critic_fault("pact", **keys)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (
            {"ratio_low": 1.0},
            "ratio_low must be below 1 and algorithm.ratio_high above",
        ),
        (
            {"accept_low": 7.0},
            "must have ratio 1, a token that did not change, between",
        ),
        ({"accept_high": 0.5}, "between them, got 0.0 and 0.5"),
        (
            {"clip_low": 0.1},
            "clip_low is read by actor_loss = 'clipped_surrogate' only",
        ),
        (
            {"actor_loss": "clipped_surrogate", "ratio_high": 3.0},
            "ratio_high is read by actor_loss = 'double_sided_importance' only",
        ),
        ({"window": 3}, "window is read by target = 'windowed' only, got 3 without it"),
        ({"target": "plain", "accept_high": 3.0}, "a target other than 'plain'"),
        ({"target": "exact"}, "algorithm.target must be 'plain', 'pact', 'weighted'"),
    ],
)
def test_keys_of_pact_that_cannot_work_are_refused(keys, expected):
    assert expected in fault({"algorithm": {"name": "pact", **keys}})


@pytest.mark.parametrize("key", ["lambda_policy", "lambda_critic", "gamma"])
@pytest.mark.parametrize("value", [-0.1, 1.1])
def test_a_lambda_outside_of_the_unit_interval_is_refused(key, value):
    told = fault({"algorithm": {"name": "ppo", key: value}})
    assert f"algorithm.{key} must be" in told and told.endswith(f"got {value}")


def test_two_lambdas_of_one_policy_exclude_each_other():
    keys = {"lambda_policy": 0.9, "length_adaptive_alpha": 0.05}
    assert "exclude each other" in fault({"algorithm": {"name": "ppo", **keys}})


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, "must show a teacher that is the policy itself something more, got ''"),
        ({"template": "{prompt}"}, "something more, got '{prompt}'"),
        ({"template": "Hint."}, "template must hold {prompt}, where the problem goes"),
    ],
)
def test_a_teacher_that_knows_no_more_than_the_policy_is_refused(keys, expected):
    assert expected in fault({"algorithm": {"name": "opd", **keys}})


def test_what_a_run_writes_down_is_a_recipe_again():
    """Defaults that nobody reads are not taken for a user's keys."""
    for name in ("ppo", "sao", "pact", "vine"):
        config = recipe_from({"algorithm": {"name": name}}, "test")
        assert recipe_from(config.model_dump(mode="json"), "test") == config


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            {"algorithm": {"name": "dapo", "overlong_cache": 61}},
            "algorithm.overlong_cache must not exceed the budget of 60 tokens "
            "(sampling.max_new_tokens), got 61",
        ),
        (
            {"steps": 10, "learner": {"schedule": "cosine", "warmup_steps": 10}},
            "learner.schedule = 'cosine' needs steps beyond learner.warmup_steps = 10, "
            "got 10 steps in which the policy learns",
        ),
        (
            {"task": {**OWN_FILE, "verifier": "function"}},
            "task.reward_function = 'module:function' and task.verifier = 'function' "
            "go together, got '' with the verifier 'function'",
        ),
        (
            {"task": {**OWN_FILE, "reward_function": "mine:reward"}},
            "task.reward_function = 'module:function' and task.verifier = 'function' "
            "go together, got 'mine:reward' with the verifier 'math'",
        ),
    ],
)
def test_keys_that_do_not_fit_together_are_refused(content, expected):
    assert fault(content) == expected


@pytest.mark.parametrize(
    ("words", "section", "key", "value"),
    [
        (["--steps", "7"], None, "steps", 7),
        (["--steps=7"], None, "steps", 7),
        (["--learner.learning_rate", "1e-4"], "learner", "learning_rate", 1e-4),
        (["--learner.learning-rate=1e-4"], "learner", "learning_rate", 1e-4),
        (["--learner.max_gradient_norm", "none"], "learner", "max_gradient_norm", None),
        (["--learner.max_gradient_norm=None"], "learner", "max_gradient_norm", None),
        (
            ["--trackers", '["wandb", "trackio"]'],
            None,
            "trackers",
            ("wandb", "trackio"),
        ),
        (
            ["--algorithm.engine_correction", "none"],
            "algorithm",
            "engine_correction",
            "none",
        ),
        (["--sampling.system=none"], "sampling", "system", "none"),
        (["--trackers=[]"], None, "trackers", ()),
        (["--name", "second-try"], None, "name", "second-try"),
        (["--name=a=b"], None, "name", None),
        (["--runs_folder", "some/where"], None, "runs_folder", Path("some/where")),
        (["--model.path", "C:\\models"], "model", "path", "C:\\models"),
        (["--model.path", "'17'"], "model", "path", "17"),
        (
            ["--model.gradient_checkpointing", "true"],
            "model",
            "gradient_checkpointing",
            True,
        ),
        (["--seed", "-3"], None, "seed", -3),
        (["--evaluation.success_at", "-0.5"], "evaluation", "success_at", -0.5),
        (["--task.split", "easy"], "task", "split", "easy"),
        (["--algorithm.kl_coefficient=.5"], "algorithm", "kl_coefficient", 0.5),
    ],
    ids=str,
)
def test_overrides_are_read_as_toml_or_as_text(words, section, key, value):
    content = {"task": {"name": "walk"}, "algorithm": {"name": "grpo"}}
    if words == ["--name=a=b"]:
        assert "got 'a=b'" in fault(content, *words)
        return
    config = accepted(*words, content=content)
    assert getattr(getattr(config, section) if section else config, key) == value


def test_a_file_says_none_by_the_word(tmp_path):
    """TOML has no none of its own."""
    recipe = tmp_path / "my.toml"
    recipe.write_text('[learner]\nmax_gradient_norm = "none"\n')
    assert load_recipe(recipe).learner.max_gradient_norm is None
    assert fault({"steps": "none"}) == "steps must be a valid integer, got 'none'"


def test_the_last_override_wins_and_the_recipe_is_left_alone():
    content = {"steps": 3, "learner": {"beta1": 0.5}}
    config = accepted(
        "--steps", "4", "--steps=5", "--learner.beta2", "0.9", content=content
    )
    assert (config.steps, config.learner.beta1, config.learner.beta2) == (5, 0.5, 0.9)
    assert content == {"steps": 3, "learner": {"beta1": 0.5}}


def test_free_options_take_nested_names_and_tables():
    content = {"task": {"name": "reasoning_gym", "data_set": "leg_counting"}}
    for words in (
        ["--task.options.max_animals", "3"],
        ["--task.options", "{max_animals = 3}"],
    ):
        assert accepted(*words, content=content).task.options == {"max_animals": 3}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["steps", "3"], "an override reads --section.key value, got 'steps'"),
        (["-x", "3"], "an override reads --section.key value, got '-x'"),
        (["--", "3"], "an override reads --section.key value, got '--'"),
        (["--=3"], "an override reads --section.key value, got '--=3'"),
        (["--steps"], "override --steps needs a value, got none"),
        (["--steps", "3", "4"], "an override reads --section.key value, got '4'"),
        (["--seed.x", "3"], "--seed.x: 'seed' is a value, not a section"),
        (["--steps", ""], "steps must be a valid integer, got ''"),
        (["--lerner.beta1", "0.5"], "lerner is not a key; did you mean learner?"),
        (["--learner.beta3", "0.5"], "learner.beta3 is not a key; did you mean beta"),
    ],
)
def test_a_mistaken_override_is_told_how_it_reads(words, expected):
    assert fault({"seed": 1}, *words).startswith(expected)


def test_toml_values():
    read = {"1": 1, "1e3": 1000.0, "true": True, "[1, 2]": [1, 2], '"7"': "7"}
    text = {word: word for word in ("none", "a b", "", "2026-11-30x")}
    assert {word: toml_value(word) for word in read | text} == read | text


def test_a_file_is_read_with_overrides(tmp_path):
    recipe = tmp_path / "my.toml"
    recipe.write_text('\ufeffsteps = 5\n[algorithm]\nname = "rloo"\n', "utf-8")
    config = load_recipe(recipe, ["--algorithm.group_size", "4"])
    assert (config.steps, config.algorithm.name) == (5, "rloo")
    assert config.algorithm.group_size == 4


def test_a_resolved_recipe_in_json_reads_back_as_itself(tmp_path):
    config = accepted(content={"task": OWN_FILE, "trackers": ["wandb"]})
    written = tmp_path / "recipe.json"
    written.write_text(json.dumps(config.model_dump(mode="json")))
    assert load_recipe(written) == config


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "steps = \n",
            "must be TOML in UTF-8, or JSON if so named, got: Invalid value",
        ),
        ("steps = 1\nsteps = 2\n", "must be TOML in UTF-8, or JSON if so named, got: "),
        ("[learner\n", "must be TOML"),
        ("stepz = 1\n", "stepz is not a key"),
    ],
)
def test_a_malformed_file_is_named(text, expected, tmp_path):
    recipe = tmp_path / "my.toml"
    recipe.write_text(text)
    with pytest.raises(RecipeError) as raised:
        load_recipe(recipe)
    message = str(raised.value)
    assert str(recipe) in message
    assert expected in message
    assert "\n" not in message


def test_what_is_no_readable_file_is_named(tmp_path):
    expected = "a recipe must be a readable file, got .*: No such file"
    with pytest.raises(RecipeError, match=expected):
        load_recipe(tmp_path / "absent.toml")
    with pytest.raises(RecipeError, match=r"regular file, got a folder at "):
        load_recipe(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'name = "caf\xe9"\n')
    with pytest.raises(RecipeError, match=r"latin\.toml must be TOML in UTF-8"):
        load_recipe(tmp_path / "latin.toml")
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(RecipeError, match=r"list\.json must hold keys .* got \[1\]"):
        load_recipe(tmp_path / "list.json")


@pytest.mark.parametrize("section", ["task", "algorithm"])
def test_every_choice_has_a_name_and_a_description(section):
    members = union_members(RunConfig.model_fields[section])
    names = [member.model_fields["name"].default for member in members]
    assert len(names) == len(set(names)) > 1
    for member in members:
        assert member.__doc__
        for key, field in member.model_fields.items():
            assert key == "name" or field.description, f"{member.__name__}.{key}"


def test_every_key_outside_of_them_has_a_description():
    for key, field in RunConfig.model_fields.items():
        inner = field.annotation
        if hasattr(inner, "model_fields"):
            assert inner.__doc__
            for name, part in inner.model_fields.items():
                assert part.description, f"{key}.{name}"
        elif not field.discriminator:
            assert field.description, key


def test_the_recipes_that_ship_are_valid():
    folder = Path(__file__).parents[2] / "recipes"
    found = sorted(folder.glob("*.toml"))
    assert found
    assert all(load_recipe(recipe) for recipe in found)
