"""On-policy distillation: what it descends, by enumeration, and its own step."""

import copy
from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch
from torch import Tensor

from accredit.algorithms.configs import OPDConfig
from accredit.algorithms.opd import (
    PolicyAsTeacher,
    ShownTeacher,
    Teacher,
    distilled_credit,
    opd,
)
from accredit.batches.collate import collate
from accredit.critics.group import ZeroBaseline
from accredit.functional.aggregation import sequence_mean_token_sum
from accredit.functional.policy_losses import clipped_surrogate, policy_gradient
from accredit.learner.teacher import Teacher as FrozenTeacher
from accredit.types import Batch
from accredit.world import rollout_cost, update_cost
from oracle import (
    COMPLETIONS,
    NODE,
    PREFIXES,
    VOCAB,
    Language,
    behind_prompt,
    expected_gradient,
    random_language,
)
from worlds import (
    ScriptedEnvironment,
    algorithm,
    answered,
    mean_reward,
    prompts,
    share_of_a,
    small_policy,
    small_world,
    steps,
)

pytestmark = pytest.mark.whole_run

ONE, TWO = prompts(2)
F64 = torch.float64


def distilled_gradient(student: Language, teacher: Language, loss=policy_gradient):
    """Of the loss, over every completion, weighted by the student's probability."""

    def credit(batch: Batch, rewards: Tensor, values: Tensor):
        told = behind_prompt(teacher.logprobs(batch.token_ids[:, 1:]).detach())
        return distilled_credit(batch, batch.sampling_logprobs, told)

    aggregation = partial(sequence_mean_token_sum, dtype=F64)
    return expected_gradient(student, ZeroBaseline(), credit, loss, aggregation, 1)


def visits(student: Language) -> Tensor:
    """How likely each prefix is to be reached, without gradient."""
    chances = student.logits.detach().softmax(-1)
    reached = torch.ones(len(PREFIXES), dtype=F64)
    for prefix in PREFIXES[1:]:
        parent = NODE[prefix[:-1]]
        reached[NODE[prefix]] = reached[parent] * chances[parent, prefix[-1]]
    return reached


def divergences(student: Language, teacher: Language) -> Tensor:
    """KL(student || teacher) of the next token, of every prefix."""
    ours = student.logits.log_softmax(-1)
    theirs = teacher.logits.detach().log_softmax(-1)
    return (ours.exp() * (ours - theirs)).sum(-1)


def ideal_teacher(student: Language, beta: float) -> Language:
    """q ~ p exp(Q / beta) at every prefix, Q the value after the token."""
    values, logits = student.exact_values(), student.logits.detach().clone()
    for prefix in PREFIXES:
        after = [values[NODE[(*prefix, token)]] for token in range(VOCAB)]
        logits[NODE[prefix]] += torch.stack(after) / beta
    return Language(logits, student.rewards)


@pytest.mark.parametrize("loss", [policy_gradient, clipped_surrogate])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_on_average_it_descends_the_kl_of_every_visited_prefix(loss, seed):
    """d/dp sum_s visits(s) KL(p(.|s) || q(.|s)), visits held fixed, by autograd."""
    student, teacher = random_language(seed), random_language(seed + 10)
    found = distilled_gradient(student, teacher, loss)
    objective = (visits(student) * divergences(student, teacher)).sum()
    (exact,) = torch.autograd.grad(objective, student.logits)
    torch.testing.assert_close(found, exact, rtol=1e-10, atol=1e-10)
    assert exact.abs().max() > 0.01


def test_at_the_last_token_it_is_the_kl_of_the_whole_completion():
    """Where nothing follows, discount 0 leaves nothing out: those rows are exact."""
    student, teacher = random_language(3), random_language(4)
    completions = torch.tensor(COMPLETIONS)
    ours = student.logprobs(completions).sum(1)
    theirs = teacher.logprobs(completions).sum(1).detach()
    (whole,) = torch.autograd.grad((ours.exp() * (ours - theirs)).sum(), student.logits)
    found = distilled_gradient(student, teacher)
    last = [NODE[prefix] for prefix in PREFIXES if len(prefix) == 2]
    torch.testing.assert_close(found[last], whole[last], rtol=1e-10, atol=1e-10)
    assert (found[0] - whole[0]).abs().max() > 0.01


@pytest.mark.parametrize("beta", [0.3, 1.0, 4.0])
def test_the_ideal_teacher_gives_the_policy_gradient_over_beta(beta):
    """Theorem 2: E[Z C] / beta, C the exact credit; so the teacher is a critic."""
    student = random_language(5)
    found = distilled_gradient(student, ideal_teacher(student, beta))
    exact = -student.exact_gradient() / beta
    torch.testing.assert_close(found, exact, rtol=1e-10, atol=1e-10)
    assert exact.abs().max() > 0.01


def test_b054_the_mean_credit_is_minus_the_reverse_divergence():
    """Case B054: student (.6, .4), teacher (.8, .2): KL(s || t) is .10465."""
    chances = torch.tensor([0.6, 0.4], dtype=F64)
    batch = Batch(
        token_ids=torch.tensor([[0, 0], [0, 1]]),
        token_mask=torch.ones(2, 2, dtype=torch.bool),
        sampled=torch.tensor([[False, True]] * 2),
        sampling_logprobs=torch.zeros(2, 2),
        rewards=torch.zeros(2),
        verified=torch.ones(2, dtype=torch.bool),
        truncated=torch.zeros(2, dtype=torch.bool),
        group_index=torch.arange(2),
    )
    told = torch.tensor([0.8, 0.2], dtype=F64).log()
    credit = distilled_credit(
        batch, behind_prompt(chances.log()[:, None]), behind_prompt(told[:, None])
    )
    mean = (chances * credit.advantages[:, 1]).sum().item()
    assert mean == pytest.approx(-0.10465, abs=1e-5)


def test_a_teacher_that_agrees_teaches_nothing():
    student = random_language(6)
    assert distilled_gradient(student, student).abs().max() == 0


@dataclass
class Told:
    """A teacher that says a known number of every token, and notes what it reads."""

    logprob: float
    read: list[Batch]

    def logprobs(self, batch: Batch) -> Tensor:
        self.read.append(batch)
        return torch.where(batch.sampled, self.logprob, 0.0)

    def logprobs_flops(self, batch: Batch) -> float:
        return 1000.0 * batch.token_ids.shape[1]


def built(teacher: Teacher, **keys):
    named = {"teacher": "somewhere", "prompts_per_step": 3, **keys}
    return opd(OPDConfig(**named), teacher)


def test_a_step_by_hand():
    """Credit is -1 minus the policy's own log-prob; nobody's reward is in it."""
    group = answered(ONE, [((1, 2), 0.75), ((3,), None)])
    world = replace(small_world(), environment=ScriptedEnvironment([[group]]))
    teacher = Told(-1.0, [])
    policy = copy.deepcopy(world.learner.model)
    state, (record,) = steps(built(teacher), world, 1)
    with torch.no_grad():
        logits = policy(input_ids=torch.tensor([[0, 1, 2]])).logits[0]
    table = logits.log_softmax(-1)
    expected = [0.0, -1 - float(table[0, 1]), -1 - float(table[1, 2])]
    torch.testing.assert_close(
        record.credit.advantages, torch.tensor([expected, [0.0, 0.0, 0.0]])
    )
    assert record.values.abs().max() == 0
    assert record.shaped_rewards.tolist() == [0.75, 0.0]
    assert record.counts["rewards_invalid"] == 1
    assert record.policy is not None and record.policy.gradient_norms[0] > 0
    assert state.step == world.learner.version == world.engine.version == 1


def test_both_passes_are_paid_for():
    """The teacher's own and one of the policy: rows of 3 and 2 tokens."""
    group = answered(ONE, [((1, 2), 0.75), ((3,), 0.5)])
    world = replace(small_world(), environment=ScriptedEnvironment([[group]]))
    _, (record,) = steps(built(Told(-1.0, [])), world, 1)
    shape = world.shape
    updated = update_cost(record.policy, record.batch, shape)
    policy_pass = PolicyAsTeacher(world.learner, shape).logprobs_flops(record.batch)
    assert policy_pass == updated.train_flops / 3 > 0
    extra = record.cost.train_flops - updated.train_flops - policy_pass
    assert extra == pytest.approx(3000.0)
    assert record.cost.decode_flops == rollout_cost([group], shape).decode_flops


def test_a_shown_teacher_reads_its_own_prompt_and_answers_at_the_policys_tokens():
    group = answered(TWO, [((3, 4), 1.0), ((5,), 0.0)])
    world = replace(small_world(), environment=ScriptedEnvironment([[group]]))
    inner = FrozenTeacher(small_policy(seed=9))
    chosen = built(ShownTeacher(inner, lambda prompt: (6, *prompt.token_ids, 7)))
    _, (record,) = steps(chosen, world, 1)
    own = small_world().learner.logprobs(record.batch)
    with torch.no_grad():
        logits = small_policy(seed=9)(
            input_ids=torch.tensor([[6, 1, 2, 7, 3, 4]])
        ).logits
    told = logits[0].log_softmax(-1)
    expected = torch.stack([told[3, 3], told[4, 4]])
    torch.testing.assert_close(
        (record.credit.advantages + own)[0, 2:], expected, atol=1e-5, rtol=1e-5
    )


def test_a_shown_teacher_is_paid_for_what_it_reads():
    """Two tokens of prompt and two written, behind five: seven columns, not four."""
    batch = collate([answered(TWO, [((3, 4), 1.0)])])
    inner = Told(-1.0, [])
    teacher = ShownTeacher(inner, lambda prompt: (6, 6, 6, *prompt.token_ids))
    assert inner.logprobs_flops(batch) == 4000.0
    assert teacher.logprobs_flops(batch) == 7000.0
    teacher.logprobs(batch)
    assert inner.read[0].token_ids.tolist() == [[6, 6, 6, 1, 2, 3, 4]]


def test_the_policy_shown_nothing_more_teaches_nothing():
    """The same weights behind the same prompt: every advantage is exactly 0."""
    world = small_world(seed=2)
    same = PolicyAsTeacher(world.learner, world.shape)
    chosen = built(ShownTeacher(same, lambda prompt: prompt.token_ids))
    _, (record,) = steps(chosen, world, 1)
    assert record.credit.advantages.abs().max() < 1e-6


def test_the_policy_as_teacher_moves_along():
    """After a step its log-probs are the updated policy's, not those it began with."""
    world = small_world(seed=2)
    itself = PolicyAsTeacher(world.learner, world.shape)
    chosen = built(ShownTeacher(itself, lambda prompt: (*prompt.token_ids, 0)))
    _, (record,) = steps(chosen, world, 1)
    assert record.credit.advantages.abs().max() > 0.01
    before = record.policy.old_logprobs
    after = itself.logprobs(record.batch)
    torch.testing.assert_close(after, world.learner.logprobs(record.batch))
    assert (after - before)[record.batch.sampled].abs().max() > 1e-3


def test_all_of_them_are_teachers():
    world = small_world()
    itself = PolicyAsTeacher(world.learner, world.shape)
    for teacher in (itself, ShownTeacher(itself, lambda p: p.token_ids), Told(0.0, [])):
        assert isinstance(teacher, Teacher)
    assert isinstance(FrozenTeacher(small_policy()), Teacher)


def test_it_learns_what_its_teacher_has_learned_over_three_seeds():
    """The teacher was trained by grpo to write the letter a; no reward is read."""
    school = small_world(seed=1)
    steps(algorithm("grpo"), school, 15)
    teacher = FrozenTeacher(copy.deepcopy(school.learner.model))
    for seed in range(3):
        world = small_world(seed=seed + 20)
        _, records = steps(built(teacher, group_size=4), world, 20)
        assert mean_reward(records[:2]) < 0.45
        assert mean_reward(records[-3:]) > 0.8, seed


def test_a_reward_changes_nothing():
    def credits(reward):
        world = small_world(reward, seed=3)
        teacher = FrozenTeacher(small_policy(seed=9))
        _, records = steps(built(teacher), world, 2)
        return records[-1].credit.advantages

    constant = credits(lambda text: 1.0)
    assert torch.equal(constant, credits(share_of_a))
    assert constant.abs().max() > 0.01
