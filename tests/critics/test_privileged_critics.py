"""A critic with a prompt of its own: shown more, it speaks about the same tokens."""

from collections.abc import Callable, Sequence

import pytest
import torch
from critic_cases import critic_of, noisy, opinionated, outcomes, rollouts
from transformers import PreTrainedModel

from accredit.critics.loading import load_critic
from accredit.types import Prompt

Policy = Callable[..., PreTrainedModel]
TEMPLATE = "{prompt} Answer: {answer}"


def three_more(template: str, prompt: Prompt) -> Sequence[int]:
    """Three tokens that depend on the problem, then the policy's prompt."""
    assert template == TEMPLATE
    number = int(prompt.problem.id[1:])
    return (20, 10 + number, 21, *prompt.token_ids)


@pytest.mark.parametrize("trunk", ["own", "shared", "lora"])
def test_values_are_those_behind_the_critics_own_prompt(policy: Policy, trunk: str):
    """By an unpadded loop over the rows as the critic is shown them."""
    batch = rollouts(1)
    critic = opinionated(
        critic_of(policy(), show=three_more, template=TEMPLATE, trunk=trunk)
    )
    values = critic.values(batch, batch.rewards)
    plain, head = policy().eval().base_model, critic.model.head
    for row, prompt in enumerate(batch.prompts):
        first = len(prompt.token_ids)
        length = int(batch.token_mask[row].sum())
        completion = batch.token_ids[row, first:length].tolist()
        ids = torch.tensor([[*three_more(TEMPLATE, prompt), *completion]])
        with torch.no_grad():
            outputs = head(plain(input_ids=ids).last_hidden_state[0])[:, 0].sigmoid()
        expected = outputs[first + 2 :]
        found = values[row, first : length + 1]
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    policys = opinionated(critic_of(policy())).values(batch, batch.rewards)
    assert (values - policys).abs()[:, 4:][batch.token_mask[:, 3:]].mean() > 1e-2


def test_what_is_taught_goes_to_the_same_tokens(policy: Policy):
    """The gradient is that of a critic whose batch holds the longer prompts."""
    batch = rollouts(2)
    wanted = noisy(batch)
    shown = opinionated(
        critic_of(policy(), show=three_more, template=TEMPLATE, deviation_floor=0.3)
    )
    plain = opinionated(critic_of(policy(), deviation_floor=0.3))
    rows, added = batch.num_rollouts, 3
    heads = torch.tensor([three_more(TEMPLATE, p)[:added] for p in batch.prompts])

    def behind(x: torch.Tensor, what: torch.Tensor) -> torch.Tensor:
        return torch.cat([what.to(x.dtype), x], dim=1)

    nothing = torch.zeros(rows, added)
    longer = type(batch)(
        token_ids=behind(batch.token_ids, heads),
        token_mask=behind(batch.token_mask, nothing + 1),
        sampled=behind(batch.sampled, nothing),
        sampling_logprobs=behind(batch.sampling_logprobs, nothing),
        rewards=batch.rewards,
        verified=batch.verified,
        truncated=batch.truncated,
        group_index=batch.group_index,
    )
    moved = type(wanted)(
        behind(wanted.targets, nothing),
        behind(wanted.weights, nothing),
        behind(wanted.where, nothing),
    )
    first = shown.update(batch, wanted, 0, warming_up=False)
    second = plain.update(longer, moved, 0, warming_up=False)
    assert first.losses == pytest.approx(second.losses, rel=1e-6)
    assert first.gradient_norms == pytest.approx(second.gradient_norms, rel=1e-5)
    assert shown.values_flops(batch) == plain.values_flops(longer)


def test_a_critic_that_sees_the_answer_learns_what_the_prompt_does_not_tell(
    policy: Policy,
):
    """Success depends on the problem alone, which the policy's prompt does not name."""
    batch = rollouts(3, num_groups=8)
    token_ids = batch.token_ids.clone()
    token_ids[batch.token_mask] = 5
    rewards = (batch.group_index % 2).float()
    batch = type(batch)(
        **vars(batch)
        | {"token_ids": token_ids, "rewards": rewards}
        | {"verified": torch.ones_like(batch.verified)}
    )
    gaps = []
    for keys in ({"show": three_more, "template": TEMPLATE}, {}):
        critic = critic_of(policy(), num_epochs=10, **keys)
        for step in range(4):
            critic.update(batch, outcomes(batch), step, warming_up=False)
        values = critic.values(batch, rewards)[:, :-1]
        of_each = [values[batch.sampled & (rewards == r)[:, None]] for r in (1.0, 0.0)]
        gaps.append(float(of_each[0].mean() - of_each[1].mean()))
    assert gaps[0] > 0.5
    assert gaps[1] < 0.2


def test_a_template_needs_someone_who_renders_it(policy: Policy, tmp_path):
    with pytest.raises(ValueError, match=r"a critic with a template needs `show`"):
        critic_of(policy(), template=TEMPLATE)
    with pytest.raises(ValueError, match=r"template must hold \{prompt\}"):
        critic_of(policy(), show=three_more, template="Answer: {answer}")
    critic = opinionated(critic_of(policy(), show=three_more, template=TEMPLATE))
    critic.save(tmp_path)
    with pytest.raises(ValueError, match=r"has a prompt of its own, got no `show`"):
        load_critic(tmp_path)
    batch = rollouts()
    assert torch.equal(
        load_critic(tmp_path, show=three_more).values(batch, batch.rewards),
        critic.values(batch, batch.rewards),
    )
