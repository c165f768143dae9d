"""Defaults that make sense at one size of a step alone follow `prompts_per_step`."""

import tomllib
from pathlib import Path

import pytest

from accredit.algorithms.replay.routes import draw_refill
from accredit.recipe.config import load_recipe, recipe_from
from accredit.records import State
from worlds import prompts, small_world

ROOT = Path(__file__).parents[2]
REPLAYED = ("prefix_grpo", "ac2", "ac2_plus")


def options(name, **keys):
    return recipe_from({"algorithm": {"name": name, **keys}}, "test").algorithm


def sizes(config):
    found = (config.fresh_per_step, config.store_size)
    if hasattr(config, "examples_in_store"):
        found += (config.examples_in_store, config.examples_per_step)
    return found


@pytest.mark.parametrize("name", REPLAYED)
@pytest.mark.parametrize(
    ("count", "expected"),
    [
        # the paper: 192 problems a step, B = 256, Q = 1,920, 768 records
        (192, (192, 256, 1920, 768)),
        (96, (96, 128, 960, 384)),
        (16, (16, 22, 160, 64)),
        (20, (20, 27, 200, 80)),
        (3, (3, 4, 30, 12)),
        (1, (1, 2, 10, 4)),
    ],
)
def test_sizes_are_the_paper_s_in_proportion(name, count, expected):
    found = sizes(options(name, prompts_per_step=count))
    assert found == expected[: len(found)]


def test_without_any_key_the_sizes_are_the_paper_s():
    assert sizes(options("ac2")) == (192, 256, 1920, 768)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"num_refill": 5}, (5, 22, 160, 64)),
        ({"replay_capacity": 7}, (16, 7, 160, 64)),
        ({"critic_capacity": 9}, (16, 22, 9, 64)),
        ({"records_per_step": 3}, (16, 22, 160, 3)),
        # a store holds what a refill brings
        ({"refill_every": 10}, (16, 160, 160, 64)),
        ({"refill_every": 10, "num_refill": 2}, (16 // 8, 22, 160, 64)),
        ({"num_refill": "none", "replay_capacity": "none"}, (16, 22, 160, 64)),
    ],
)
def test_what_a_recipe_says_is_taken(keys, expected):
    assert sizes(options("ac2", prompts_per_step=16, **keys)) == expected


@pytest.mark.parametrize("name", REPLAYED)
@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_refill_draws_as_many_as_a_step_has(name, count):
    config = options(name, prompts_per_step=count)
    found = draw_refill(config, State(), small_world(num_prompts=len(prompts(6))))
    assert (found.num_drawn, len(found.groups)) == (count, count)


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ("ac2_fineproofs", {"critic_capacity": 1920, "records_per_step": 768}),
        ("prefix_grpo_fineproofs", {}),
    ],
)
def test_the_paper_s_recipes_state_the_paper_s_numbers(recipe, expected):
    """Written out, and what the defaults would be."""
    path = ROOT / "recipes" / "paper" / f"{recipe}.toml"
    written = tomllib.loads(path.read_text("utf-8"))["algorithm"]
    expected |= {"prompts_per_step": 192, "num_refill": 192, "replay_capacity": 256}
    assert {key: written[key] for key in expected} == expected
    config = load_recipe(path, []).algorithm
    assert sizes(config) == sizes(options(config.name))


def test_the_recipes_of_walk_keep_their_numbers():
    for recipe in ("ac2_walk", "ac2_plus_walk"):
        config = load_recipe(ROOT / "recipes" / f"{recipe}.toml", []).algorithm
        assert sizes(config) == (8, 16, 160, 64)
