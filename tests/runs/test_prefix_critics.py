"""What a run gives the critic that it asks about prefixes, and its environment."""

from contextlib import closing

import pytest

from accredit.critics.prompted import questions
from accredit.critics.prompted.critic import PromptedCritic
from accredit.engines.local.engine import TransformersEngine
from accredit.models.loading import context_tokens
from accredit.recipe.config import recipe_from
from accredit.runs.assembly import assemble
from accredit.runs.prefix_critics import prompted_critic_line
from accredit.types import CriticQuery
from accredit.world import TimedEngine

pytestmark = pytest.mark.whole_run


def built(**critic):
    """AC2 on the packaged walk, with batches of its own."""
    recipe = {
        "task": {"name": "walk"},
        "algorithm": {
            "name": "ac2",
            "prompts_per_step": 2,
            "group_size": 2,
            "critic": {"kind": "prompted", "template": "compact", **critic},
        },
        "engine": {"max_batch_tokens": 5_000, "max_batch_rows": 7},
    }
    return assemble(recipe_from(recipe, "here"))


@pytest.mark.parametrize("weights", ["tied", "separate"])
def test_a_critic_reads_no_larger_batches_than_the_engine(weights):
    critic = built(weights=weights).critic
    assert isinstance(critic, PromptedCritic)
    assert (critic._max_batch_tokens, critic._max_batch_rows) == (5_000, 7)
    engine = critic._engine
    assert isinstance(engine, TransformersEngine)
    assert (engine.max_batch_tokens, engine.max_batch_rows) == (5_000, 7)


def test_the_seconds_of_an_answer_are_no_sampling_of_the_policy():
    """They are the critic's already; the weights are the policy's all the same."""
    assembly = built()
    world, critic = assembly.world, assembly.critic
    assert isinstance(critic, PromptedCritic)
    assert isinstance(world.engine, TimedEngine)
    assert critic._engine is world.engine.inner
    prompt = world.problems.prompts[0]
    with world.clock.measure("critic"):
        critic.values([CriticQuery(prompt)])
    assert set(world.clock.drain()) == {"critic"}


def test_a_question_knows_the_context_of_the_policy():
    assembly = built()
    critic = assembly.critic
    assert isinstance(critic, PromptedCritic)
    expected = context_tokens(assembly.world.learner.model.config)
    assert critic.questions.max_context_tokens == expected
    assert assembly.world.environment.max_context_tokens == expected


def test_whether_an_answer_is_there_is_asked_about_what_is_shown():
    assembly = built()
    world, tokenizer = assembly.world, assembly.tokenizer
    prompt = world.problems.prompts[0]
    environment = world.environment
    ids = tokenizer("R21<|user|>U11", add_special_tokens=False)["input_ids"]
    assert environment.read(prompt.token_ids, ids) == "R21U11"
    # `walk` reads clean text: of a prompt that opens a thought only the tag is added.
    opened = (*prompt.token_ids, *tokenizer("<think>")["input_ids"])
    assert environment.read(opened, ids) == "<think>R21U11"


@pytest.mark.parametrize("weights", ["tied", "separate"])
def test_a_stem_that_had_to_be_spaced_is_told(weights, monkeypatch):
    """As a tokenizer does that merges the stem with the number behind it."""
    monkeypatch.setattr(questions, "spaced_stems", lambda stem: [f"{stem}v"])
    with closing(built(weights=weights)) as assembly:
        line = prompted_critic_line(assembly.config, assembly.critic)
        assert isinstance(assembly.critic, PromptedCritic)
        saved = assembly.critic._card()["template"]["stem"]
    assert line is not None and saved == "vv"
    assert line.endswith(
        "its stem is 'vv' here, as the tokenizer merges 'v' with an answer"
    )
    monkeypatch.undo()
    with closing(built(weights=weights)) as assembly:
        line = prompted_critic_line(assembly.config, assembly.critic)
    assert line is not None and "stem" not in line
