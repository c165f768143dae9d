"""Ground truth for credit: a language small enough to enumerate.

Vocabulary 2, length 3, one logit table per prefix, one random reward per completion.
Every expectation is a finite sum, so `exact_gradient` and `exact_values` are exact, and
`expected_gradient` is what a whole pipeline (critic, credit rule, loss, aggregation)
does on average, over every possible group of rollouts. `learned_rewards` trains the
same table by sampling, in a second.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from accredit.protocols import Aggregation, Critic, PolicyLoss
from accredit.records import Credit
from accredit.types import Batch

HORIZON = 3
VOCAB = 2
COMPLETIONS = tuple(itertools.product(range(VOCAB), repeat=HORIZON))
PREFIXES = tuple(
    prefix
    for length in range(HORIZON)
    for prefix in itertools.product(range(VOCAB), repeat=length)
)
NODE = {prefix: node for node, prefix in enumerate(PREFIXES + COMPLETIONS)}
NUM_NODES = len(NODE)

CreditRule = Callable[[Batch, Tensor, Tensor], Credit]


@dataclass(frozen=True)
class Language:
    """A tabular policy over every prefix, and what each completion is worth."""

    logits: Tensor
    rewards: Tensor
    """One per completion, in the order of `COMPLETIONS`."""

    def logprobs(self, completions: Tensor) -> Tensor:
        """Log-prob of each token of the completions, with gradient."""
        table = self.logits.log_softmax(-1)
        return table[prefix_rows(completions)].gather(2, completions[..., None])[..., 0]

    def rewards_of(self, completions: Tensor) -> Tensor:
        """Reward of each completion."""
        return self.rewards[nodes(completions)[:, -1] - len(PREFIXES)]

    def exact_gradient(self) -> Tensor:
        """Gradient of the expected reward, by autograd of the finite sum."""
        probabilities = self.logprobs(torch.tensor(COMPLETIONS)).sum(1).exp()
        return torch.autograd.grad((probabilities * self.rewards).sum(), self.logits)[0]

    def exact_values(self) -> Tensor:
        """V of every node, prefixes first, by dynamic programming."""
        values = torch.zeros(NUM_NODES, dtype=self.logits.dtype)
        values[len(PREFIXES) :] = self.rewards
        for prefix in reversed(PREFIXES):
            policy = self.logits[NODE[prefix]].detach().softmax(-1)
            children = [NODE[(*prefix, token)] for token in range(VOCAB)]
            values[NODE[prefix]] = (policy * values[children]).sum()
        return values


def random_language(seed: int) -> Language:
    """Normal logits and rewards, float64."""
    generator = torch.Generator().manual_seed(seed)
    shape = (len(PREFIXES), VOCAB)
    logits = torch.randn(shape, generator=generator, dtype=torch.float64)
    rewards = torch.randn(len(COMPLETIONS), generator=generator, dtype=torch.float64)
    return Language(logits.requires_grad_(), rewards)


def nodes(completions: Tensor) -> Tensor:
    """Node of every prefix of each completion, the whole one last."""
    reached = [torch.zeros(len(completions), dtype=torch.int64)]
    for tokens in completions.T:
        reached.append(child(reached[-1], tokens))
    return torch.stack(reached, 1)


def child(node: Tensor, token: Tensor) -> Tensor:
    """Node after one more token: the tree is complete and numbered level by level."""
    return VOCAB * node + 1 + token


def prefix_rows(completions: Tensor) -> Tensor:
    """Row of the logit table that each token was drawn from."""
    return nodes(completions)[:, :-1]


def batch_of(
    completions: Tensor, rewards: Tensor, group_size: int, logprobs: Tensor
) -> Batch:
    """Completions as rollouts behind a prompt of one token."""
    num_rollouts = len(completions)
    prompt = torch.zeros(num_rollouts, 1, dtype=torch.int64)
    sampled = torch.ones(num_rollouts, HORIZON + 1, dtype=torch.bool)
    sampled[:, 0] = False
    return Batch(
        token_ids=torch.cat([prompt, completions], 1),
        token_mask=torch.ones_like(sampled),
        sampled=sampled,
        sampling_logprobs=behind_prompt(logprobs.detach()),
        rewards=rewards,
        verified=torch.ones(num_rollouts, dtype=torch.bool),
        truncated=torch.zeros(num_rollouts, dtype=torch.bool),
        group_index=torch.arange(num_rollouts) // group_size,
    )


def behind_prompt(x: Tensor) -> Tensor:
    """A per-token tensor of the completions as one of the rollouts."""
    return torch.cat([x.new_zeros(len(x), 1), x], 1)


@dataclass(frozen=True)
class ExactCritic:
    """The true value of every prefix."""

    language: Language

    def values(self, batch: Batch, rewards: Tensor) -> Tensor:
        """V before each token; the prompt's prefix has the value of the empty one."""
        known = self.language.exact_values()[nodes(batch.token_ids[:, 1:])]
        return torch.cat([known[:, :1], known], 1)


def expected_gradient(
    language: Language,
    critic: Critic,
    credit: CreditRule,
    loss: PolicyLoss,
    aggregation: Aggregation,
    group_size: int,
) -> Tensor:
    """Gradient of the loss, averaged over every group that can be drawn."""
    total = torch.zeros((), dtype=language.logits.dtype)
    for members in itertools.product(COMPLETIONS, repeat=group_size):
        completions = torch.tensor(members)
        logprobs = language.logprobs(completions)
        rewards = language.rewards_of(completions)
        batch = batch_of(completions, rewards, group_size, logprobs)
        dealt = credit(batch, rewards, critic.values(batch, rewards))
        losses = loss(
            behind_prompt(logprobs),
            batch.sampling_logprobs,
            dealt.advantages,
            batch.trainable,
        )
        weights = aggregation(batch.trainable, batch.group_index)
        total = total + logprobs.detach().sum().exp() * (losses * weights).sum()
    return torch.autograd.grad(total, language.logits)[0]


@dataclass
class TabularCritic:
    """One learned value per node: a critic with parameters, for the learning tests."""

    table: Tensor
    learning_rate: float = 0.5

    def values(self, batch: Batch, rewards: Tensor) -> Tensor:
        """The table's entry of each prefix."""
        known = self.table[nodes(batch.token_ids[:, 1:])]
        return torch.cat([known[:, :1], known], 1)

    def update(self, batch: Batch, value_targets: Tensor) -> None:
        """A step towards the mean target of every visited prefix."""
        visited = nodes(batch.token_ids[:, 1:])[:, :-1].flatten()
        targets = value_targets[:, 1:-1].flatten()
        sums = torch.zeros_like(self.table).index_add(0, visited, targets)
        counts = torch.bincount(visited, minlength=NUM_NODES)
        means = sums / counts.clamp(min=1)
        step = self.learning_rate * (means - self.table)
        self.table += torch.where(counts > 0, step, 0.0)


def learned_rewards(
    critic: Critic,
    credit: CreditRule,
    loss: PolicyLoss,
    aggregation: Aggregation,
    *,
    seed: int,
    num_steps: int = 60,
    num_groups: int = 4,
    group_size: int = 8,
    num_epochs: int = 2,
    learning_rate: float = 0.1,
) -> list[float]:
    """Mean reward of each step while a uniform policy learns one of 8 completions.

    Only the completion 1, 0, 1 is worth 1. A `TabularCritic` is trained along.
    """
    generator = torch.Generator().manual_seed(seed)
    logits = torch.zeros(len(PREFIXES), VOCAB, requires_grad=True)
    wanted = torch.tensor([float(c == (1, 0, 1)) for c in COMPLETIONS])
    language = Language(logits, wanted)
    optimizer = torch.optim.Adam([logits], lr=learning_rate)
    curve: list[float] = []
    for _ in range(num_steps):
        completions = _sampled(language, num_groups * group_size, generator)
        old_logprobs = language.logprobs(completions).detach()
        rewards = language.rewards_of(completions)
        batch = batch_of(completions, rewards, group_size, old_logprobs)
        dealt = credit(batch, rewards, critic.values(batch, rewards))
        weights = aggregation(batch.trainable, batch.group_index)
        for _ in range(num_epochs):
            losses = loss(
                behind_prompt(language.logprobs(completions)),
                behind_prompt(old_logprobs),
                dealt.advantages,
                batch.trainable,
            )
            optimizer.zero_grad()
            (losses * weights).sum().backward()
            optimizer.step()
        if isinstance(critic, TabularCritic) and dealt.value_targets is not None:
            critic.update(batch, dealt.value_targets)
        curve.append(float(rewards.mean()))
    return curve


def _sampled(language: Language, count: int, generator: torch.Generator) -> Tensor:
    """Completions drawn from the policy, token by token."""
    policy = language.logits.detach().softmax(-1)
    node = torch.zeros(count, dtype=torch.int64)
    drawn: list[Tensor] = []
    for _ in range(HORIZON):
        drawn.append(torch.multinomial(policy[node], 1, generator=generator)[:, 0])
        node = child(node, drawn[-1])
    return torch.stack(drawn, 1)
