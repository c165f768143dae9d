"""Random finite trees: every history, every trajectory, every expectation exact.

A node is a history F_i. On the edge into it lie the policy's token T_i and, where the
environment answers, an observation O_i drawn from its own distribution. A leaf is a
finished trajectory with its outcome. Expectations are finite sums in float64.

Three alignments meet here: per node; per step of a leaf's trajectory, packed, step j
leading from `paths[:, j]` to `paths[:, j + 1]`; per token of `batch`, where
`columns[:, j]` is the place of step j. A value that no rule may read is NaN, so that
reading it is seen.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from accredit.types import Batch

NUM_TOKENS = (2, 3)
NUM_OBSERVATIONS = 2
STOP_SHARE = 0.2
"""Of the nodes past the second token that end before the greatest depth."""


@dataclass(frozen=True, eq=False)
class Tree:
    """A policy in a world: who can follow whom, how likely, and what it is worth."""

    parent: Int[Tensor, " node"]
    """Parents come before their children; the root, F_0, is node 0 and its own."""
    token: Int[Tensor, " node"]
    """The policy's token on the edge into the node; 0 at the root."""
    chance: Float[Tensor, " node"]
    """Of the observation after that token; 1 where nothing is observed."""
    logits: Float[Tensor, "node branch"]
    """The policy's; -inf at tokens there are not, unread at leaves."""
    outcomes: Float[Tensor, " leaf"]
    """Rewards in [0, 1], of the leaves in the order of `paths`."""
    paths: Int[Tensor, "leaf step_prefix"]
    """Nodes of each trajectory from the root on; the leaf again at padding."""
    step_mask: Bool[Tensor, "leaf step"]
    columns: Int[Tensor, "leaf step"]
    """Where the token of each step stands in `batch`; 0 at padding."""
    batch: Batch
    """Every trajectory once, behind a prompt of one token."""

    @property
    def leaves(self) -> Int[Tensor, " leaf"]:
        """Nodes where trajectories end."""
        return self.paths[:, -1]

    @property
    def inner(self) -> Bool[Tensor, " node"]:
        """True where the policy chooses a token."""
        inner = torch.ones_like(self.parent, dtype=torch.bool)
        inner[self.leaves] = False
        return inner

    @property
    def depths(self) -> Int[Tensor, " node"]:
        """Number of the policy's tokens so far."""
        depths = torch.zeros_like(self.parent)
        steps = torch.arange(self.step_mask.shape[1])
        depths[self.paths[:, 1:][self.step_mask]] = (
            1 + steps.expand_as(self.columns)[self.step_mask]
        )
        return depths

    def under(self, logits: Float[Tensor, "node branch"]) -> "Tree":
        """The same world under another policy."""
        return replace(self, logits=logits)

    def paying(self, outcomes: Float[Tensor, " leaf"]) -> "Tree":
        """The same policy in a world with other rewards."""
        return replace(self, outcomes=outcomes)

    def token_probabilities(self) -> Float[Tensor, " node"]:
        """pi(T_i | F_{i-1}) of the token on the edge into each node; 1 at the root."""
        policy = self.logits.softmax(-1)[self.parent, self.token]
        return torch.where(torch.arange(len(policy)) == 0, 1.0, policy)

    def edges(self) -> Float[Tensor, " node"]:
        """P(F_i | F_{i-1}): the token's probability times the observation's."""
        return self.token_probabilities() * self.chance

    def reach(self) -> Float[Tensor, " node"]:
        """P(F_i)."""
        return self._along_paths(self.edges())[1]

    def probabilities(self) -> Float[Tensor, " leaf"]:
        """Of each trajectory."""
        return self._along_paths(self.edges())[0]

    def _along_paths(self, edges: Tensor) -> tuple[Tensor, Tensor]:
        steps = torch.where(self.step_mask, edges[self.paths[:, 1:]], 1.0).cumprod(1)
        so_far = torch.cat([torch.ones_like(steps[:, :1]), steps], 1)
        return so_far[:, -1], torch.zeros_like(edges).index_put((self.paths,), so_far)

    def values(
        self, edges: Float[Tensor, " node"] | None = None
    ) -> Float[Tensor, " node"]:
        """V_i = E[R | F_i], backwards from the leaves; differentiable in `edges`."""
        edges = self.edges() if edges is None else edges
        values = torch.zeros_like(edges).index_put((self.leaves,), self.outcomes)
        depths = self.depths
        for depth in range(int(depths.max()), 0, -1):
            here = (depths == depth).nonzero()[:, 0]
            values = values.index_add(0, self.parent[here], edges[here] * values[here])
        return values

    def action_values(self, values: Tensor) -> Float[Tensor, "node branch"]:
        """E[V_i | F_{i-1}, T_i] of each token; 0 where there is none."""
        expected = torch.where(self.depths > 0, self.chance * values, 0.0)
        return torch.zeros_like(self.logits).index_put(
            (self.parent, self.token), expected, accumulate=True
        )

    def given_prefix(self, x: Float[Tensor, "leaf step"]) -> Float[Tensor, " node"]:
        """E[x_i | F_{i-1}] at each inner node; 0 at leaves."""
        weighted = torch.where(self.step_mask, x, 0.0) * self.probabilities()[:, None]
        sums = torch.zeros_like(self.chance).index_put(
            (self.paths[:, :-1],), weighted, accumulate=True
        )
        return sums / self.reach()

    def mean(self, x: Float[Tensor, " leaf"]) -> Float[Tensor, ""]:
        """E[x] over trajectories."""
        return (self.probabilities() * x).sum()

    def before(self, x: Float[Tensor, " node"]) -> Float[Tensor, "leaf step"]:
        """What a node says, at the step that starts there; 0 at padding."""
        return torch.where(self.step_mask, x[self.paths[:, :-1]], 0.0)

    def after(self, x: Float[Tensor, " node"]) -> Float[Tensor, "leaf step"]:
        """What a node says, at the step that leads there; 0 at padding."""
        return torch.where(self.step_mask, x[self.paths[:, 1:]], 0.0)

    def at_tokens(
        self, x: Float[Tensor, "leaf step"], filler: float = 0.0
    ) -> Float[Tensor, "leaf token"]:
        """A per-step quantity on the sampled tokens, `filler` elsewhere."""
        rows, steps = self.step_mask.nonzero(as_tuple=True)
        filled = torch.full_like(self.batch.sampling_logprobs, filler)
        return filled.index_put((rows, self.columns[rows, steps]), x[rows, steps])

    def at_steps(self, x: Float[Tensor, "leaf token"]) -> Float[Tensor, "leaf step"]:
        """A per-token quantity of the sampled tokens, packed; 0 at padding."""
        return torch.where(self.step_mask, x.gather(1, self.columns), 0.0)

    def at_prefixes(self, x: Float[Tensor, " node"]) -> Float[Tensor, "leaf prefix"]:
        """Values as a critic gives them: NaN wherever no step starts."""
        before = self.at_tokens(self.before(x), torch.nan)
        return torch.cat([before, torch.full_like(before[:, :1], torch.nan)], 1)


def random_tree(
    draw: torch.Generator, *, depth: int = 4, observed: float = 0.3, stop: bool = True
) -> Tree:
    """A tree with two or three tokens a node, rewards uniform in [0, 1] or binary.

    The first leaf is worth 0 and the last one 1, so that something is at stake.

    Args:
        draw: Where all randomness is from.
        depth: Of the longest trajectories, in tokens of the policy.
        observed: Share of the tokens that the environment answers.
        stop: Whether trajectories may end before that depth, after two tokens.
    """
    parent, token, chance, spoken, depths = [0], [0], [1.0], [0], [0]
    ends: list[int] = []
    for node, node_depth in _growing(depths):
        early = stop and node_depth >= 2 and _uniform(draw) < STOP_SHARE
        if node_depth == depth or early:
            ends.append(node)
            continue
        for choice in range(_integer(draw, *NUM_TOKENS)):
            for share, length in _answers(draw, observed):
                parent.append(node)
                token.append(choice)
                chance.append(share)
                spoken.append(length)
                depths.append(node_depth + 1)
    worth = torch.rand(len(ends), generator=draw, dtype=torch.float64)
    worth = worth.round() if _uniform(draw) < 0.5 else worth
    worth[0], worth[-1] = 0.0, 1.0
    shape = (len(parent), NUM_TOKENS[1])
    logits = torch.randn(shape, generator=draw, dtype=torch.float64)
    return planted(parent, token, chance, spoken, logits, ends, worth)


def planted(
    parent: list[int],
    token: list[int],
    chance: list[float],
    spoken: list[int],
    logits: Tensor,
    ends: list[int],
    outcomes: Tensor,
) -> Tree:
    """The tree of these lists, one entry a node.

    Args:
        spoken: Number of tokens of the observation before each node.
        ends: The leaves, in the order of `outcomes`.
    """
    routes = [_route(end, parent) for end in ends]
    most = max(len(route) for route in routes) - 1
    paths = torch.tensor([r + [r[-1]] * (most + 1 - len(r)) for r in routes])
    step_mask = torch.tensor([[j < len(r) - 1 for j in range(most)] for r in routes])
    words = torch.tensor(spoken)[paths[:, 1:]]
    columns = 1 + torch.arange(most) + words.cumsum(1) - words
    length = 1 + (torch.where(step_mask, 1 + words, 0)).sum(1)
    tokens = torch.tensor(token)
    exists = torch.zeros(logits.shape, dtype=torch.bool)
    exists[torch.tensor(parent)[1:], tokens[1:]] = True
    exists[torch.tensor(ends)] = True
    columns = torch.where(step_mask, columns, 0)
    return Tree(
        torch.tensor(parent),
        tokens,
        torch.tensor(chance, dtype=torch.float64),
        torch.where(exists, logits, -torch.inf),
        outcomes,
        paths,
        step_mask,
        columns,
        _batch(columns, step_mask, tokens[paths[:, 1:]], length, outcomes),
    )


def _growing(depths: list[int]):
    """(node, depth) of nodes in order, of those too that are added meanwhile."""
    node = 0
    while node < len(depths):
        yield node, depths[node]
        node += 1


def _answers(draw: torch.Generator, observed: float) -> list[tuple[float, int]]:
    """(chance, length) of what the environment may say after a token."""
    if _uniform(draw) >= observed:
        return [(1.0, 0)]
    weights = 0.2 + torch.rand(NUM_OBSERVATIONS, generator=draw, dtype=torch.float64)
    shares = weights / weights.sum()
    return [(float(share), _integer(draw, 1, 2)) for share in shares]


def _route(node: int, parent: list[int]) -> list[int]:
    """Nodes from the root to `node`."""
    route = [node]
    while route[-1] != 0:
        route.append(parent[route[-1]])
    return route[::-1]


def _batch(
    columns: Tensor, step_mask: Tensor, tokens: Tensor, length: Tensor, rewards: Tensor
) -> Batch:
    """Prompt, tokens and observations of each trajectory as rows of ids."""
    places = torch.arange(int(length.max())).expand(len(length), -1)
    token_mask = places < length[:, None]
    rows, steps = step_mask.nonzero(as_tuple=True)
    sampled = torch.zeros_like(token_mask)
    sampled[rows, columns[rows, steps]] = True
    token_ids = torch.zeros_like(places)
    token_ids[rows, columns[rows, steps]] = tokens[rows, steps]
    return Batch(
        token_ids=token_ids,
        token_mask=token_mask,
        sampled=sampled,
        sampling_logprobs=torch.zeros(token_mask.shape, dtype=rewards.dtype),
        rewards=rewards,
        verified=torch.ones(len(length), dtype=torch.bool),
        truncated=torch.zeros(len(length), dtype=torch.bool),
        group_index=torch.arange(len(length)),
    )


def _uniform(draw: torch.Generator) -> float:
    return float(torch.rand((), generator=draw, dtype=torch.float64))


def _integer(draw: torch.Generator, low: int, high: int) -> int:
    return int(torch.randint(low, high + 1, (), generator=draw))
