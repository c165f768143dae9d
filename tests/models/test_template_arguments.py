"""A chat template's own arguments are a key of the recipe, read by all who apply it."""

import copy
import json
from contextlib import closing

import pytest

from accredit.models.template_arguments import give_template_arguments
from accredit.recipe.config import RecipeError, load_recipe, recipe_from
from accredit.runs.assembly import assemble
from accredit.tasks.rendering import render, shown_prompt_ids
from accredit.types import Message, Problem
from runs import small_config, written_files
from tiny_models import TEMPLATE, character_tokenizer

THINKS = TEMPLATE + "{% if enable_thinking %}thinks{% endif %}{{ mood or '' }}"
PROBLEM = Problem("p", (Message("user", "say 4"),), "4")


def thinker():
    tokenizer = character_tokenizer()
    tokenizer.chat_template = THINKS
    return tokenizer


def text(tokenizer, ids):
    return tokenizer.decode(ids)


def test_whoever_renders_gives_them():
    tokenizer = thinker()
    plain = render(PROBLEM, tokenizer)
    give_template_arguments(tokenizer, {"enable_thinking": True, "mood": "!"})
    prompt = render(PROBLEM, tokenizer)
    assert text(tokenizer, prompt.token_ids).endswith("thinks!")
    assert not text(tokenizer, plain.token_ids).endswith("thinks!")
    shown = shown_prompt_ids("{prompt} {answer}", prompt, tokenizer=tokenizer)
    assert text(tokenizer, shown).endswith("say 4 4<|end|><|assistant|>thinks!")
    again = copy.deepcopy(tokenizer)
    assert render(PROBLEM, again).token_ids == prompt.token_ids


@pytest.mark.parametrize("name", ["mood", "enable_thinking"])
@pytest.mark.parametrize("value", [True, 3, 0.5, "very"])
def test_values_arrive_as_they_are(name, value):
    tokenizer = character_tokenizer()
    tokenizer.chat_template = TEMPLATE + "{{ [" + name + "]|tojson }}"
    give_template_arguments(tokenizer, {name: value})
    said = text(tokenizer, render(PROBLEM, tokenizer).token_ids)
    assert said.endswith(json.dumps([value]).replace("\\", ""))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ([1], r"must be a section of keys, got '\[1\]'"),
        ({"enable thinking": True}, "of the chat template's own, such as enable_thin"),
        ({"messages": "x"}, "of the chat template's own.*got 'messages'"),
        ({"tokenize": True}, "of the chat template's own.*got 'tokenize'"),
        ({"add_generation_prompt": False}, "got 'add_generation_prompt'; leave it out"),
        ({"mood": [1]}, r"template_arguments.mood must be true, false, a number or a "),
        ({"mood": {"a": 1}}, "mood must be true, false, a number or a text"),
        ({"mood": float("nan")}, "mood must be true, false, a number or a text"),
    ],
)
def test_what_is_no_argument_is_refused_in_one_line(content, expected):
    with pytest.raises(RecipeError, match=expected) as error:
        recipe_from({"sampling": {"template_arguments": content}}, "test")
    assert "\n" not in str(error.value)


def test_a_name_that_the_template_does_not_read_is_refused():
    with pytest.raises(ValueError, match="reads, got 'enable_thinkng', which it does"):
        give_template_arguments(thinker(), {"enable_thinkng": True})
    with pytest.raises(ValueError, match="goes with a chat template, got chat = plain"):
        give_template_arguments(thinker(), {"mood": "x"}, "plain")
    bare = character_tokenizer()
    bare.chat_template = None
    with pytest.raises(ValueError, match="got a tokenizer without one"):
        give_template_arguments(bare, {"mood": "x"})


def test_the_command_line_and_toml_set_them(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("[sampling.template_arguments]\nenable_thinking = false\n")
    assert load_recipe(file).sampling.template_arguments == {"enable_thinking": False}
    words = ["--sampling.template_arguments.mood", "calm"]
    found = load_recipe(file, words).sampling.template_arguments
    assert found == {"enable_thinking": False, "mood": "calm"}


def test_a_run_and_its_critics_read_them(tmp_path, monkeypatch):
    monkeypatch.chdir(written_files(tmp_path))
    file = tmp_path / "model" / "chat_template.jinja"
    file.write_text(THINKS)
    chosen = {"template_arguments": {"enable_thinking": True}}
    with closing(assemble(small_config(tmp_path, sampling=chosen))) as assembly:
        prompt = assembly.world.problems.prompts[0]
        assert assembly.decode(prompt.token_ids).endswith("thinks")
        # As a prompted critic asks.
        asked = assembly.tokenizer.apply_chat_template(
            [{"role": "user", "content": "x"}], tokenize=False
        )
        assert str(asked).endswith("thinks")
