"""A rollout without a sampled token has no vote: it moves nobody's advantage."""

from dataclasses import replace

import pytest
import torch

from accredit.algorithms.dapo import is_informative
from accredit.algorithms.replay.routes import passing_completions, stored_rollouts
from accredit.batches.collate import collate
from accredit.reports.metrics.step import step_metrics
from worlds import (
    ALGORITHMS,
    REPLAYED,
    ScriptedEnvironment,
    algorithm,
    answered,
    prompts,
    small_world,
    steps,
)

pytestmark = pytest.mark.whole_run

(PROMPT,) = prompts(1)
TOKENS = (1, 2, 3)


def group(*rewards, idle=()):
    """Siblings of three tokens, then some of none."""
    spoken = [(TOKENS, reward) for reward in rewards]
    return answered(PROMPT, [*spoken, *(((), reward) for reward in idle)])


def record_of(name, group, **keys):
    """One step on that group; algorithms that replay take it for what they go on to."""
    script = [[group]]
    if name in REPLAYED:
        script = [[answered(PROMPT, [(TOKENS, 0.5)])], [group]]
    world = replace(small_world(), environment=ScriptedEnvironment(script))
    keys = {"prompts_per_step": 1, "group_size": len(group.rollouts)} | keys
    _, (record,) = steps(algorithm(name, **keys), world, 1)
    return record


@pytest.mark.parametrize("reward", [0.0, 1.0])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_no_algorithm_lets_an_idle_sibling_vote(name, reward):
    """The policy's credit and the critic's targets are those without its verdict."""
    found = record_of(name, group(1.0, 0.0, 0.0, idle=[reward]))
    wanted = record_of(name, group(1.0, 0.0, 0.0, idle=[None]))
    assert found.batch.verified.tolist() == [True, True, True, False]
    assert torch.equal(found.credit.advantages, wanted.credit.advantages)
    assert found.credit.advantages[:3].any()
    assert torch.equal(found.values[:3], wanted.values[:3])
    if found.credit.value_targets is not None:
        targets = found.credit.value_targets
        assert torch.equal(targets, wanted.credit.value_targets)


@pytest.mark.parametrize(
    ("name", "advantages"),
    [
        # (1 - 1/3) / sqrt(1/3), and -1/3 by the same; n - 1 in the deviation
        ("grpo", [1.154699, -0.577350, -0.577350, 0.0, 0.0]),
        ("dr_grpo", [2 / 3, -1 / 3, -1 / 3, 0.0, 0.0]),
        ("rloo", [1.0, -0.5, -0.5, 0.0, 0.0]),
        ("prefix_grpo", [2 / 3, -1 / 3, -1 / 3, 0.0, 0.0]),
        ("ac2", [2 / 3, -1 / 3, -1 / 3, 0.0, 0.0]),
    ],
)
def test_baselines_are_those_of_the_siblings_that_wrote(name, advantages):
    """With their votes the mean of 1, 0, 0, 1, 1 would be .6."""
    record = record_of(name, group(1.0, 0.0, 0.0, idle=[1.0, 1.0]))
    found = [
        float(row[mask].sum()) / max(1, int(mask.sum()))
        for row, mask in zip(
            record.credit.advantages, record.batch.sampled, strict=True
        )
    ]
    assert found == pytest.approx(advantages, abs=1e-4)


@pytest.mark.parametrize("name", ["prefix_grpo", "ac2"])
def test_unverified_as_zero_gives_an_idle_sibling_no_vote_either(name):
    """A failed judge is worth 0 there; who wrote nothing is still nobody."""
    record = record_of(name, group(1.0, None, idle=[1.0, None]), unverified="zero")
    first = [
        float(row[mask].sum())
        for row, mask in zip(
            record.credit.advantages, record.batch.sampled, strict=True
        )
    ]
    assert first == pytest.approx([1.5, -1.5, 0.0, 0.0])


@pytest.mark.parametrize(
    ("rewards", "idle", "informative"),
    [
        ([1.0, 1.0], [0.0], False),
        ([0.0, 0.0], [1.0, 1.0], False),
        ([1.0], [0.0], False),
        ([], [1.0, 0.0], False),
        ([1.0, 0.0], [0.5], True),
        ([1.0, None], [0.0], False),
    ],
)
def test_dynamic_sampling_asks_those_that_vote(rewards, idle, informative):
    assert is_informative(group(*rewards, idle=idle)) is informative


def test_the_share_of_equal_groups_is_of_those_that_vote():
    record = record_of("dr_grpo", group(1.0, 1.0, idle=[0.0]))
    row = step_metrics(record, steps(algorithm("grpo"), small_world(), 1)[0])
    assert row["group/all_equal_share"] == 1.0
    # What was paid is told as it was paid.
    assert row["reward/mean"] == pytest.approx(2 / 3)


def test_what_wrote_nothing_is_neither_stored_nor_shown():
    config = algorithm("prefix_grpo").config
    groups = [group(1.0, 0.0, idle=[1.0])]
    assert len(stored_rollouts(config, groups)) == 2
    assert passing_completions(groups, 1.0) == [(PROMPT.problem.id, list(TOKENS))]


@pytest.mark.parametrize("rows", [[1], [0, 2], [0, 1, 2]])
def test_a_batch_refuses_a_verified_row_without_a_token(rows):
    batch = collate([group(1.0, 0.0, 0.5)])
    sampled = batch.sampled.clone()
    sampled[rows] = False
    with pytest.raises(ValueError, match=f"sampled token.*got rows \\{rows}"):
        replace(batch, sampled=sampled)
    kept = torch.tensor([row not in rows for row in range(3)])
    assert replace(batch, sampled=sampled, verified=kept).num_rollouts == 3
