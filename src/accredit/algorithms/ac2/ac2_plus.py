"""AC2+: AC2 with what the paper leaves open, each idea a key of its own.

    gate             errors pooled over a problem's visits, with a standard error,
                     against rewards only; an audit that fails takes trust back
    critic.readout   the mean over the grid in place of its likeliest value
    critic.weights   a copy of the policy that learns apart, and is not moved by it
    target_rounding  targets between two grid values, each taught by its share
    recalibration    all values moved by the one log-odds ratio between what came in the
                     last steps and what was said: v' / (1 - v') = rho v / (1 - v)
    boundary_examples  a rollout that ran to its end teaches at a boundary of its own
    boundary_credit  an audited rollout is paid chunk by chunk, by the changes
                     V(b_1) - mean_j V(b_1)_j,  V(b_2) - V(b_1),  ...,  R - V(b_n)
    boundary_lambda  each with this share of what the next one is paid: what the
                     critic does not see is blamed on more than the last chunk
    correction       the critic's targets follow the policy's first minibatch
    audit_half_life  a problem's share of audits halves with every so many of them
    chunk_signal     chunks grow until the credit they deal is larger than the critic's
                     error: credit adds up, the error enters at two ends only

Gate, read-out, weights and rounding are AC2's own keys with other defaults. The
correction is PACT's doubly robust one (Fu et al. 2026, arXiv:2609.26355) with a
continuation as one step. None of this is in Wen et al. 2026, arXiv:2609.39247.

Differs from the paper: in all of the above, and as AC2 does.
"""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from accredit.algorithms.ac2.ac2 import AC2, ac2, paper_rules
from accredit.algorithms.ac2.endpoints import (
    Endpoints,
    StepRollouts,
    Values,
    targets_of,
)
from accredit.algorithms.ac2.memory import AC2Memory
from accredit.algorithms.ac2.recalibration import NoRecalibration, OddsRecalibration
from accredit.algorithms.ac2.rules import EndpointCredit, prefix_examples
from accredit.algorithms.replay.routes import Route, num_replayed
from accredit.algorithms.replay_configs import AC2PlusConfig
from accredit.batches.replay import StoredExample
from accredit.functional.endpoints import group_targets
from accredit.functional.grids import on_grid
from accredit.functional.scans import reverse_scan
from accredit.functional.value_targets import doubly_robust_targets
from accredit.protocols import PrefixCritic
from accredit.randomness import generator
from accredit.records import Cost, State
from accredit.world import World, forward_cost

EVERY_BOUNDARY = 1_000_000


@dataclass(frozen=True)
class FadingAudits:
    """The share, halved with every `audit_half_life` audits of the problem."""

    config: AC2PlusConfig

    def __call__(self, memory: AC2Memory, problem_id: str) -> float:
        """Not below the smallest share."""
        share, half_life = self.config.audit_share, self.config.audit_half_life
        track = memory.gate.tracks.get(problem_id)
        if half_life is None or track is None:
            return share
        least = min(share, self.config.smallest_audit_share)
        return max(least, share * 0.5 ** (track.num_audits / half_life))


@dataclass(frozen=True)
class SignalChunks:
    """Chunks as long as the critic's error on the problem asks for.

    n chunks deal a credit of about s sqrt(n),    s^2 = mean variance of v_i
    n = (chunk_signal error / s)^2, between 1 and max_chunks
    """

    config: AC2PlusConfig

    def __call__(self, memory: AC2Memory, problem_id: str) -> int:
        """1 where nothing is known of the problem."""
        signal = self.config.chunk_signal
        track = memory.gate.tracks.get(problem_id)
        count, total = memory.spreads.get(problem_id, (0, 0.0))
        if signal is None or track is None or not track.num_errors or not count:
            return 1
        error, variance = track.total / track.num_errors, total / count
        if variance == 0.0:
            return 1
        wanted = (signal * error) ** 2 / variance
        return min(self.config.max_chunks, max(1, math.ceil(wanted - 1e-9)))


@dataclass(frozen=True)
class BoundaryCredit:
    """A_i, and of audited rollouts what each chunk and the later ones changed.

    delta_k = V(b_k) - V(b_{k-1}),    A_k = sum_l boundary_lambda^l delta_{k+l}

    V(b_0) is the siblings' mean V(b_1), and V behind the last boundary the reward. V at
    a boundary that the critic did not value is passed over: its chunk and the next are
    paid as one.
    """

    config: AC2PlusConfig

    def num_boundaries(self, route: Route) -> int:
        """All of audited groups; else what endpoints need."""
        if route.is_audited:
            return EVERY_BOUNDARY
        return EndpointCredit(self.config).num_boundaries(route)

    def __call__(
        self, step: StepRollouts, values: Values, ends: Endpoints
    ) -> Float[Tensor, "rollout token"]:
        """0 where nobody learns."""
        advantages = EndpointCredit(self.config)(step, values, ends).clone()
        group_index = step.batch.group_index
        for group, route in enumerate(step.routes):
            if not route.is_audited:
                continue
            rows = ((group_index == group) & ends.valid).nonzero()[:, 0].tolist()
            marks = {row: boundary_values(step, values, ends, row) for row in rows}
            if not rows:
                continue
            firsts = [marks[row][0][1] for row in rows]
            start_value = math.fsum(firsts) / len(firsts)
            for row in rows:
                self._pay(advantages[row], step, row, marks[row], start_value)
        trains = step.batch.sampled & ends.valid[:, None]
        return torch.where(trains, advantages, 0.0)

    def _pay(
        self,
        advantages: Float[Tensor, " token"],
        step: StepRollouts,
        row: int,
        marks: list[tuple[int, float]],
        start_value: float,
    ) -> None:
        """Writes each chunk's pay over the chunk's tokens, in place."""
        ends, values_there = zip(*marks, strict=True)
        begin = int(step.batch.sampled[row].int().argmax())
        path = torch.tensor([start_value, *values_there], dtype=torch.float64)
        changes = path.diff()[None]
        decays = torch.full_like(changes, self.config.boundary_lambda)
        paid = reverse_scan(changes, decays)[0].tolist()
        for first, end, pay in zip((begin, *ends), ends, paid, strict=False):
            advantages[first:end] = pay


@dataclass(frozen=True)
class CorrectedExamples:
    """The examples of AC2, by corrected targets, and those at boundaries."""

    config: AC2PlusConfig
    target_grid: int | None

    def before(self, step: StepRollouts, world: World) -> Tensor | None:
        """The policy's log-probs before its update, where targets follow its move."""
        corrects = self.config.correction != "none"
        if not corrects or self.config.order == "critic_actor":
            return None
        return world.learner.logprobs(step.batch)

    def __call__(
        self,
        step: StepRollouts,
        values: Values,
        ends: Endpoints,
        before: Tensor | None,
        state: State,
        world: World,
    ) -> tuple[list[StoredExample], Cost]:
        """One a group, and one at a boundary of each group that ran on."""
        targets, cost = ends.targets, Cost()
        if before is not None:
            moves = world.learner.logprobs(step.batch) - before
            targets = self._corrected(step, values, ends, moves)
            cost = forward_cost(step.batch, world.shape, num_passes=2)
        found = prefix_examples(step.routes, targets)
        if self.config.boundary_examples:
            # The oldest go first: a group's example outlives a rollout's.
            found = [*self._at_boundaries(step, state, world), *found]
        return found, cost

    def _at_boundaries(
        self, step: StepRollouts, state: State, world: World
    ) -> list[StoredExample]:
        """One drawn boundary of one judged rollout of each group that ran on.

        One a group, or they would push the groups' own examples out of the buffer.
        """
        found: list[StoredExample] = []
        taught: set[int] = set()
        order = generator(world.seed, "border lessons", state.step)
        for row in order.permutation(len(step.rollouts)).tolist():
            rollout, group = step.rollouts[row], int(step.batch.group_index[row])
            route = step.routes[group]
            written, start = rollout.completion_ids, num_replayed(rollout)
            ends = range(start + route.boundary, len(written), route.boundary)
            if route.is_stopped or not bool(step.batch.verified[row]) or not ends:
                continue
            if group in taught:
                continue
            taught.add(group)
            target = step.batch.rewards[row : row + 1]
            if self.target_grid is not None:
                target = on_grid(target, self.target_grid)
            draw = generator(world.seed, "border lessons", state.step, row)
            end = ends[int(draw.integers(len(ends)))]
            found.append(
                StoredExample.of(
                    route.problem_id, written[:end], float(target), route.source
                )
            )
        return found

    def _corrected(
        self,
        step: StepRollouts,
        values: Values,
        ends: Endpoints,
        moves: Float[Tensor, "rollout token"],
    ) -> Float[Tensor, " group"]:
        """z of each group under the policy as its first minibatch has left it.

        `moves` are the log-ratios of its tokens, new to old.
        """
        prefixes, group_index = values.prefixes, step.batch.group_index
        means = group_targets(
            ends.taught,
            ends.teaches,
            group_index,
            min_valid=torch.ones(len(prefixes), dtype=torch.int64),
            grid_size=None,
        )
        frozen = step.over_groups(torch.where(prefixes.isnan(), means, prefixes))
        log_ratios = torch.where(step.batch.sampled, moves, 0.0).sum(1)
        ratios = (
            log_ratios.clamp(-60.0, 60.0).exp().clamp(max=self.config.correction_cap)
        )
        one_step = torch.ones(len(ratios), 1, dtype=torch.bool)
        aligned = doubly_robust_targets(
            ratios[:, None],
            ends.taught.nan_to_num(0.0),
            torch.stack([frozen.nan_to_num(0.0)] * 2, dim=1),
            one_step,
        )
        taught = torch.where(ends.teaches, aligned.targets[:, 0], torch.nan)
        return targets_of(
            self.config, step, values, taught, ends.teaches, self.target_grid
        ).targets


def boundary_values(
    step: StepRollouts, values: Values, ends: Endpoints, row: int
) -> list[tuple[int, float]]:
    """Index behind each chunk of a rollout that ran on, with V there, and the end's."""
    batch = step.batch
    boundary = step.route_of(row).boundary
    begin = int(batch.sampled[row].int().argmax())
    marks = [
        (begin + (number + 1) * boundary, value)
        for number, value in enumerate(values.boundaries[row].tolist())
        if value == value
    ]
    return [*marks, (int(batch.token_mask[row].sum()), float(ends.values[row]))]


def ac2_plus(config: AC2PlusConfig, critic: PrefixCritic, max_new_tokens: int) -> AC2:
    """AC2 with the rules that its section asks for."""
    plain = ac2(config, critic, max_new_tokens)
    paper = paper_rules(config)
    rules = replace(
        paper,
        audits=FadingAudits(config),
        chunks=SignalChunks(config),
        credit=BoundaryCredit(config) if config.boundary_credit else paper.credit,
        examples=CorrectedExamples(config, plain.target_grid),
        recalibration=(
            OddsRecalibration(config.recalibration_steps)
            if config.recalibrates
            else NoRecalibration()
        ),
    )
    return replace(plain, rules=rules)
