"""A value head asked about the ends of prefixes: what it says, is taught and keeps."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from critic_cases import critic_of, opinionated, same, weights_of
from transformers import PreTrainedModel

from accredit.critics.asking import prefix_values
from accredit.critics.value_head.asked import AskedHead, batch_of
from accredit.critics.value_head.critic import ValueHeadCritic
from accredit.protocols import PrefixCritic
from accredit.records import ValueTargets
from accredit.types import CriticExample, CriticQuery, Message, Problem, Prompt

Policy = Callable[..., PreTrainedModel]
TRUNKS = ["own", "shared", "lora"]


def attempt(*ids: int, num_prompt: int = 2, reference=None) -> CriticQuery:
    problem = Problem(f"p{ids[0]}", (Message("user", "?"),))
    return CriticQuery(Prompt(problem, ids[:num_prompt]), ids[num_prompt:], reference)


ATTEMPTS = [
    attempt(3, 4, 5, 6, 7, 8, 9),
    attempt(9, 2),
    attempt(5, 5, 1),
    attempt(3, 4, 5, 11),
]
TARGETS = [0.9, 0.2, 0.55, -0.3]
LESSONS = [CriticExample(a, y) for a, y in zip(ATTEMPTS, TARGETS, strict=True)]


def ids_of(one: CriticQuery) -> list[int]:
    return [*one.prompt.token_ids, *one.written]


def asked(policy: PreTrainedModel, **keys) -> AskedHead:
    return AskedHead(opinionated(critic_of(policy, **keys)))


def distance(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    return math.sqrt(sum(float((a[n] - b[n]).double().square().sum()) for n in a))


@pytest.mark.parametrize("trunk", TRUNKS)
def test_its_values_are_those_of_whole_rows_where_they_end(policy: Policy, trunk: str):
    head = asked(policy(), trunk=trunk, reward_low=-1.0)
    assert isinstance(head, PrefixCritic)
    found = head.values(ATTEMPTS)
    rows = prefix_values(head.critic, [ids_of(one) for one in ATTEMPTS])
    assert found.values == pytest.approx([float(row[-1]) for row in rows], abs=1e-6)
    assert len({round(value or 0.0, 4) for value in found.values}) == 4
    # The same prefix as the beginning of a longer rollout.
    longer = prefix_values(head.critic, [[*ids_of(ATTEMPTS[3]), 8, 8, 8]])[0]
    assert found.values[3] == pytest.approx(float(longer[4]), abs=1e-6)
    batch = batch_of(ATTEMPTS, 0)
    assert found.flops == head.critic.values_flops(batch) > 0


def test_a_reference_is_not_read_and_nothing_asked_costs_nothing(policy: Policy):
    head = asked(policy())
    shown = [replace(one, reference=(1, 2, 3)) for one in ATTEMPTS]
    assert head.values(shown) == head.values(ATTEMPTS)
    empty = head.values([])
    assert (empty.values, empty.flops) == ((), 0.0)


@pytest.mark.parametrize("trunk", TRUNKS)
def test_a_lesson_moves_the_weights_as_the_plain_formula_says(
    policy: Policy, trunk: str
):
    """The mean cross-entropy of four ends, by unpadded rows and AdamW itself."""
    head = asked(policy(), trunk=trunk, max_gradient_norm=None)
    plain = asked(policy(), trunk=trunk).critic.model.train()
    parameters = [p for p in plain.parameters() if p.requires_grad]
    before = weights_of(head.critic)
    total = torch.zeros(())
    for example in LESSONS:
        ids = torch.tensor([ids_of(example.query)])
        logit = plain.head(plain.backbone(input_ids=ids).last_hidden_state[0, -1])[0]
        total = total + (1 + logit.exp()).log() - example.target * logit
    (total / 4).backward()
    norm = math.sqrt(
        sum(float(p.grad.square().sum()) for p in parameters if p.grad is not None)
    )
    torch.optim.AdamW(parameters, lr=3e-3, weight_decay=0.0).step()
    update = head.update(LESSONS, 3e-3)
    assert update is not None
    assert update.losses == (pytest.approx(float(total.detach()) / 4, rel=1e-5),)
    assert update.gradient_norms == (pytest.approx(norm, rel=1e-4),)
    after = weights_of(head.critic)
    for name, parameter in plain.named_parameters():
        # AdamW's first step is the gradient's sign: rounding shows where it is 0.
        off = (after[name] - parameter).abs() > 1e-5
        assert off.float().mean() < 0.01
    assert update.displacement == pytest.approx(distance(before, after), rel=1e-3)


def test_the_rate_of_each_lesson_is_the_one_it_comes_with(policy: Policy):
    head = asked(policy(), learning_rate=5e-3)
    assert head.learning_rate == 5e-3
    moved = []
    for rate in (1e-3, 4e-3, 1e-3):
        one = asked(policy(), learning_rate=5e-3)
        before = weights_of(one.critic)
        update = one.update(LESSONS, rate)
        assert update is not None and update.learning_rate == rate
        assert one.learning_rate == 5e-3
        moved.append(distance(before, weights_of(one.critic)))
    assert moved[1] == pytest.approx(4 * moved[0], rel=1e-2)
    assert moved[2] == moved[0] > 0
    # A ladder on one critic, whose optimizer remembers.
    ladder = [head.update(LESSONS, rate) for rate in (1e-3, 2e-3)]
    assert [one and one.learning_rate for one in ladder] == [1e-3, 2e-3]


def test_several_steps_are_bounded_by_the_sum_of_their_displacements(policy: Policy):
    head = asked(policy(), num_epochs=3, num_minibatches=2)
    before = weights_of(head.critic)
    update = head.update(LESSONS, 1e-2)
    assert update is not None and update.displacement is not None
    assert len(update.losses) == 6
    straight = distance(before, weights_of(head.critic))
    assert 0.3 * update.displacement < straight < update.displacement


def test_a_critic_that_nobody_measures_says_so(policy: Policy):
    critic = critic_of(policy())
    head = AskedHead(critic_of(policy()))
    batch = batch_of(ATTEMPTS, 1)
    where = torch.zeros_like(batch.token_mask)
    where[:, 2] = True
    where &= batch.token_mask
    ones = torch.ones(where.shape)
    for one, measured in ((critic, False), (head.critic, True)):
        update = one.update(batch, ValueTargets(ones, ones, where), 0, warming_up=False)
        assert (update.displacement is not None) == measured


def test_a_skipped_step_moves_nothing(policy: Policy):
    head = asked(policy())
    head.update(LESSONS, 1e-2)
    with torch.no_grad():
        head.critic.model.head.bias.fill_(math.nan)
    update = head.update(LESSONS, 1e-2)
    assert update is not None
    assert (update.num_skipped, update.displacement) == (1, 0.0)


@pytest.mark.parametrize("trunk", TRUNKS)
def test_lessons_teach(policy: Policy, trunk: str):
    head = asked(policy(), trunk=trunk)
    for _ in range(30):
        head.update(LESSONS[:3], 1e-2)
    assert head.values(ATTEMPTS[:3]).values == pytest.approx(TARGETS[:3], abs=0.12)


@pytest.mark.parametrize("output", ["sigmoid", "categorical"])
def test_a_memory_knob_changes_neither_values_nor_update(policy: Policy, output: str):
    results = []
    for budget in (10_000, 8):
        head = asked(policy(), micro_batch_tokens=budget, output=output)
        calls: list[int] = []
        head.critic.model.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        said = head.values(ATTEMPTS).values
        update = head.update(LESSONS, 1e-2)
        assert update is not None
        results.append((said, update, len(calls)))
    (said, update, calls), (said_small, update_small, calls_small) = results
    assert calls == 2 < calls_small
    assert said_small == pytest.approx(said, abs=1e-6)
    assert update_small.losses == pytest.approx(update.losses, rel=1e-5)
    assert update_small.gradient_norms == pytest.approx(update.gradient_norms, rel=1e-4)
    assert update_small.displacement == pytest.approx(update.displacement, rel=1e-2)


@pytest.mark.parametrize("trunk", TRUNKS)
def test_a_resumed_head_goes_on_bit_for_bit(policy: Policy, tmp_path: Path, trunk: str):
    keys = {"trunk": trunk, "num_minibatches": 2}
    model = policy()
    head = asked(model, **keys)
    for rate in (1e-2, 5e-3):
        head.update(LESSONS, rate)
    head.save(tmp_path / "critic")
    resumed_policy = policy()
    resumed_policy.load_state_dict(model.state_dict())
    resumed = AskedHead(opinionated(critic_of(resumed_policy, **keys), seed=5))
    assert resumed.values(ATTEMPTS) != head.values(ATTEMPTS)
    resumed.load(tmp_path / "critic")
    assert resumed.values(ATTEMPTS) == head.values(ATTEMPTS)
    for rate in (2e-3, 7e-3):
        assert resumed.update(LESSONS, rate) == head.update(LESSONS, rate)
    assert same(weights_of(resumed.critic), weights_of(head.critic))


def test_each_update_draws_its_own_minibatches(policy: Policy):
    head = asked(policy(), num_minibatches=2, learning_rate=1e-12)
    updates = [head.update(LESSONS, 1e-12) for _ in range(12)]
    pairs = {tuple(sorted(round(x, 4) for x in one.losses)) for one in updates if one}
    assert len(pairs) == 3  # Four examples in two pairs.


def limited(policy: PreTrainedModel, limit: int, **keys) -> AskedHead:
    policy.config.max_position_embeddings = limit
    return asked(policy, **keys)


@pytest.mark.parametrize("keys", [{}, {"output": "linear", "value_clip": 0.2}])
def test_what_is_longer_than_the_context_is_left_out_and_counted(
    policy: Policy, keys: dict
):
    head = limited(policy(), 4, num_epochs=2, **keys)
    values = head.values(ATTEMPTS).values
    assert [value is None for value in values] == [True, False, False, False]
    update = head.update(LESSONS, 1e-2)
    # A clip compares with values that are read over the filler, too.
    assert update is not None and update.num_left_out == (2 if keys else 1)
    fitting = limited(policy(), 4, num_epochs=2, **keys)
    alone = fitting.update(LESSONS[1 : 3 if keys else 4], 1e-2)
    assert alone is not None
    assert alone == replace(update, num_left_out=0)


def test_nothing_to_learn_with_is_no_step(policy: Policy):
    head = limited(policy(), 4)
    before = weights_of(head.critic)
    assert head.update([], 1e-2) is None
    unlearned = head.update(LESSONS[:1], 1e-2)
    assert unlearned is not None
    assert (unlearned.losses, unlearned.num_left_out) == ((), 1)
    assert head.values(ATTEMPTS[:1]).values == (None,)
    assert head.values(ATTEMPTS[:1]).flops == 0.0
    assert same(before, weights_of(head.critic))
    assert head.critic.num_updates == 0


def test_a_joint_update_is_refused(policy: Policy):
    with pytest.raises(ValueError, match=r"joint update needs .* got a value head"):
        asked(policy()).add_gradient(LESSONS)


def test_a_prompt_of_its_own_is_refused(policy: Policy):
    critic: ValueHeadCritic = critic_of(
        policy(), show=lambda template, prompt: [1], template="{prompt}!"
    )
    with pytest.raises(ValueError, match=r"template = '\{prompt\}!'; leave it out"):
        AskedHead(critic)
