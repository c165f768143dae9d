"""AC2+: AC2 with what the paper leaves open, each idea a key of its own.

    gate             errors pooled over a problem's visits, with a standard error,
                     against rewards only; an audit that fails takes trust back
    critic.readout   the mean over the grid in place of its likeliest value
    critic.weights   a copy of the policy that learns apart, and is not moved by it
    target_rounding  targets between two grid values, each taught by its share
    recalibration    all values moved by the one log-odds ratio between what came in the
                     last steps and what was said: v' / (1 - v') = rho v / (1 - v)
    border_lessons   a rollout that ran to its end teaches at a border of its own
    border_credit    an audited rollout is paid chunk by chunk, by the changes
                     V(b_1) - mean_j V(b_1)_j,  V(b_2) - V(b_1),  ...,  R - V(b_n)
    border_lambda    each with this share of what the next one is paid: what the critic
                     does not see is blamed on more than the last chunk
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
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from accredit.algorithms.ac2 import AC2
from accredit.algorithms.ac2_outcomes import outcomes_of, put_right
from accredit.algorithms.ac2_update import CriticTurn, Teach, lessons_of
from accredit.algorithms.ac2_visit import Values, Visit
from accredit.algorithms.ac2_worth import Worth, targets_of
from accredit.algorithms.replay_configs import AC2PlusConfig
from accredit.algorithms.replay_memory import CriticMemory
from accredit.algorithms.replayed import num_replayed
from accredit.functional.endpoints import group_targets
from accredit.functional.grids import on_grid
from accredit.functional.scans import reverse_scan
from accredit.functional.value_targets import doubly_robust_targets
from accredit.protocols import PrefixCritic
from accredit.randomness import generator
from accredit.records import Cost, Credit, PolicyUpdate, State
from accredit.replay import StoredLesson
from accredit.world import World, forward_cost

EVERY_BORDER = 1_000_000


@dataclass(frozen=True)
class AC2Plus(AC2):
    """AC2 with its options."""

    config: AC2PlusConfig

    def num_chunks_of(self, known: CriticMemory, problem_id: str) -> int:
        """Chunks as long as the critic's error on the problem asks for.

        n chunks deal a credit of about s sqrt(n),    s^2 = mean variance of v_i
        n = (chunk_signal error / s)^2, between 1 and max_chunks
        """
        signal = self.config.chunk_signal
        track = known.gate.tracks.get(problem_id)
        count, total = known.spreads.get(problem_id, (0, 0.0))
        if signal is None or track is None or not track.num_errors or not count:
            return 1
        error, variance = track.total / track.num_errors, total / count
        if variance == 0.0:
            return 1
        wanted = (signal * error) ** 2 / variance
        return min(self.config.max_chunks, max(1, math.ceil(wanted - 1e-9)))

    def audit_share_of(self, known: CriticMemory, problem_id: str) -> float:
        """The share, halved with every `audit_half_life` audits of the problem."""
        share, half_life = self.config.audit_share, self.config.audit_half_life
        track = known.gate.tracks.get(problem_id)
        if half_life is None or track is None:
            return share
        least = min(share, self.config.smallest_audit_share)
        return max(least, share * 0.5 ** (track.num_audits / half_life))

    def valued(
        self,
        visit: Visit,
        references: Sequence[tuple[int, ...] | None],
        known: CriticMemory,
        world: World,
    ) -> Values:
        """What the critic says, put right by what came of what it said before."""
        said = super().valued(visit, references, known, world)
        if not self.config.recalibrates:
            return said
        return put_right(said, known.outcomes[-self.config.recalibration_steps :])

    def learned(
        self,
        visit: Visit,
        values: Values,
        worth: Worth,
        turn: CriticTurn,
        policy: PolicyUpdate | None,
        state: State,
        world: World,
    ) -> CriticMemory:
        """What AC2 learns, and what came of what the critic said in this step."""
        after = super().learned(visit, values, worth, turn, policy, state, world)
        if not self.config.recalibrates:
            return replace(after, outcomes=())
        outcomes = (*turn.memory.outcomes, outcomes_of(visit, values))
        return replace(after, outcomes=outcomes[-self.config.recalibration_steps :])

    def num_borders(self, visit: Visit) -> list[int]:
        """All borders of audited groups, where they are paid by them."""
        wants_all = self.config.border_credit
        least = super().num_borders(visit)
        return [
            EVERY_BORDER if route.is_audited and wants_all else few
            for route, few in zip(visit.routes, least, strict=True)
        ]

    def credit(self, visit: Visit, values: Values, worth: Worth) -> Credit:
        """A_i, and of audited rollouts what each chunk and the later ones changed.

        delta_k = V(b_k) - V(b_{k-1}),    A_k = sum_l border_lambda^l delta_{k+l}

        V(b_0) is the siblings' mean V(b_1), and V behind the last border the reward. V
        at a border that the critic did not value is passed over: its chunk and the
        next are paid as one.
        """
        credit = super().credit(visit, values, worth)
        if not self.config.border_credit:
            return credit
        advantages = credit.advantages.clone()
        group_index = visit.batch.group_index
        for group, route in enumerate(visit.routes):
            rows = (group_index == group).nonzero()[:, 0].tolist()
            if not route.is_audited:
                continue
            marks = {row: known_marks(visit, values, worth, row) for row in rows}
            firsts = [marks[row][0][1] for row in rows if worth.valid[row]]
            if not firsts:
                continue
            start_value = math.fsum(firsts) / len(firsts)
            for row in rows:
                if not worth.valid[row]:
                    continue
                ends, values_there = zip(*marks[row], strict=True)
                begin = int(visit.batch.sampled[row].int().argmax())
                known = torch.tensor([start_value, *values_there], dtype=torch.float64)
                changes = known.diff()[None]
                decays = torch.full_like(changes, self.config.border_lambda)
                paid = reverse_scan(changes, decays)[0].tolist()
                for first, end, pay in zip((begin, *ends), ends, paid, strict=False):
                    advantages[row, first:end] = pay
        trains = visit.batch.sampled & worth.valid[:, None]
        return replace(credit, advantages=torch.where(trains, advantages, 0.0))

    def teaching(
        self, visit: Visit, values: Values, worth: Worth, state: State, world: World
    ) -> Teach:
        """The lessons of AC2, by corrected targets, and those at borders."""
        config = self.config
        corrects = config.correction != "none" and config.order != "critic_actor"
        old = world.learner.logprobs(visit.batch) if corrects else None

        def teach() -> tuple[list[StoredLesson], Cost]:
            targets, cost = worth.targets, Cost()
            if old is not None:
                moves = world.learner.logprobs(visit.batch) - old
                targets = self._corrected(visit, values, worth, moves)
                cost = forward_cost(visit.batch, world.shape, num_passes=2)
            found = lessons_of(visit, targets)
            if config.border_lessons:
                # The oldest go first: a group's lesson outlives a rollout's.
                found = [*self._border_lessons(visit, state, world), *found]
            return found, cost

        return teach

    def _border_lessons(
        self, visit: Visit, state: State, world: World
    ) -> list[StoredLesson]:
        """One drawn border of one judged rollout of each group that ran on.

        One a group, or they would push the groups' own lessons out of the buffer.
        """
        found: list[StoredLesson] = []
        taught: set[int] = set()
        order = generator(world.seed, "border lessons", state.step)
        for row in order.permutation(len(visit.rollouts)).tolist():
            rollout, group = visit.rollouts[row], int(visit.batch.group_index[row])
            route = visit.routes[group]
            written, start = rollout.completion_ids, num_replayed(rollout)
            ends = range(start + route.border, len(written), route.border)
            if route.is_stopped or not bool(visit.batch.verified[row]) or not ends:
                continue
            if group in taught:
                continue
            taught.add(group)
            target = visit.batch.rewards[row : row + 1]
            if self.target_grid is not None:
                target = on_grid(target, self.target_grid)
            draw = generator(world.seed, "border lessons", state.step, row)
            end = ends[int(draw.integers(len(ends)))]
            problem, source = rollout.prompt.problem.id, route.slot.source
            found.append(StoredLesson.of(problem, written[:end], float(target), source))
        return found

    def _corrected(
        self,
        visit: Visit,
        values: Values,
        worth: Worth,
        moves: Float[Tensor, "rollout token"],
    ) -> Float[Tensor, " group"]:
        """z of each group under the policy as its first minibatch has left it.

        `moves` are the log-ratios of its tokens, new to old.
        """
        known, group_index = values.prefixes, visit.batch.group_index
        means = group_targets(
            worth.teaching,
            worth.teaches,
            group_index,
            min_valid=torch.ones(len(known), dtype=torch.int64),
            grid_size=None,
        )
        frozen = visit.over_groups(torch.where(known.isnan(), means, known))
        log_ratios = torch.where(visit.batch.sampled, moves, 0.0).sum(1)
        ratios = (
            log_ratios.clamp(-60.0, 60.0).exp().clamp(max=self.config.correction_cap)
        )
        one_step = torch.ones(len(ratios), 1, dtype=torch.bool)
        aligned = doubly_robust_targets(
            ratios[:, None],
            worth.teaching.nan_to_num(0.0),
            torch.stack([frozen.nan_to_num(0.0)] * 2, dim=1),
            one_step,
        )
        teaching = torch.where(worth.teaches, aligned.targets[:, 0], torch.nan)
        return targets_of(
            self.config, visit, values, teaching, worth.teaches, self.target_grid
        ).targets


def known_marks(
    visit: Visit, values: Values, worth: Worth, row: int
) -> list[tuple[int, float]]:
    """Index behind each chunk of a rollout that ran on, with V there, and the end's."""
    batch = visit.batch
    route = visit.routes[int(batch.group_index[row])]
    begin = int(batch.sampled[row].int().argmax())
    marks = [
        (begin + (number + 1) * route.border, value)
        for number, value in enumerate(values.borders[row].tolist())
        if value == value
    ]
    return [*marks, (int(batch.token_mask[row].sum()), float(worth.endpoints[row]))]


def ac2_plus(config: AC2PlusConfig, critic: PrefixCritic, max_new_tokens: int) -> AC2:
    """AC2 with the options that its section asks for."""
    return AC2Plus.of(config, critic, max_new_tokens)
