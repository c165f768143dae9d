"""AC2: actor-critic with action chunking.

    1  draw    n_refill fresh problems, one rollout each, stored for the next step;
               n_batch slots from the store: distinct problems cycled, one rollout each
    2  cut     a slot's prefix ends on a grid, uniform in the first .9 of its rollout
    3  route   slots of ready problems stop after b tokens, but for a quarter: audits
    4  go on   g continuations of each prefix
    5  v_i     = critic(prefix + continuation) where it was stopped, else the reward
    6  A_i     = v_i - mean_j v_j, on all tokens of the continuation
    7  error   = |V(prefix) - z|, V from before the update
    8  z       = mean_i v_i on the grid, ties down; joins the critic's buffer
    9  gate    a problem is ready once errors are small, it was solved before, and the
               critic has ever said more than 0 of it; then references join the bank
    10 update  actor minibatch 1, critic, actor minibatch 2, on the same weights
    and        clip_high moves towards the target entropy; the critic's learning rate is
               halved where it moves the weights further than the policy does

Wen et al. 2026, arXiv:2609.39247. A slot of a ready problem has lambda 0, any other
lambda 1. Nobody learns from a prefix's own tokens.

Differs from the paper:
- a completion that could not be judged teaches nothing by default (it is worth 0
  there: `unverified = "zero"`);
- the gate's window holds the complete steps before this one; a problem is tested when
  it is visited, by the mean error of this visit's slots;
- the question's wording is ours, and the empty think block is part of a template's
  stem;
- what is stored of problems that the data no longer hold is passed over;
- with `grouping = "prefixes"` a ready slot's prefixes are cut independently, so that
  two may be equal;
- `ready_lambda`, `chunk_weight`, `aggregation`, `joint_loss`, other orders, baselines,
  targets and kinds of critics are ours or the paper's ablations.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from accredit.algorithms.ac2_gate import gate_of, gate_visits, spreads_after
from accredit.algorithms.ac2_report import routing_of, step_cost, step_tally
from accredit.algorithms.ac2_update import (
    CriticTurn,
    Teach,
    lessons_of,
    reference_of,
    updated,
)
from accredit.algorithms.ac2_visit import (
    Values,
    Visit,
    asked_values,
    rolled_out,
)
from accredit.algorithms.ac2_worth import (
    Worth,
    carried_values,
    known_outcomes,
    settled,
    settled_batch,
)
from accredit.algorithms.control import critic_rate
from accredit.algorithms.outcome_step import Drawn, Shaped, recorded
from accredit.algorithms.replay_configs import AC2Config
from accredit.algorithms.replay_memory import CriticMemory, ReplayMemory
from accredit.algorithms.replay_parts import (
    remembered,
    replay_bounds,
    replay_objective,
    start_entropy,
)
from accredit.algorithms.replayed import passing_completions
from accredit.critics.readiness import Gate
from accredit.protocols import PrefixCritic
from accredit.randomness import generator
from accredit.records import Cost, Credit, PolicyUpdate, Record, State
from accredit.world import World


@dataclass(frozen=True)
class AC2:
    """The algorithm with its critic, its gate and its numbers."""

    config: AC2Config
    critic: PrefixCritic
    gate: Gate
    chunk: int
    """Tokens of a chunk."""
    grid: int
    """Tokens between possible cuts."""

    @classmethod
    def of(cls, config: AC2Config, critic: PrefixCritic, max_new_tokens: int) -> "AC2":
        """With the numbers that a section gives under that budget."""
        return cls(
            config,
            critic,
            gate_of(config.gate),
            chunk=config.chunk(max_new_tokens),
            grid=config.grid(max_new_tokens),
        )

    @property
    def clip_bounds(self) -> tuple[float, float]:
        """For the report; the entropy control moves the upper one."""
        return self.config.clip_low, self.config.clip_high

    @property
    def target_grid(self) -> int | None:
        """Values that a target is rounded to; None does not round."""
        return (
            self.config.grid_size if self.config.target_rounding == "nearest" else None
        )

    def advance(self, state: State, world: World) -> tuple[State, Record]:
        """One step, in the order of the box above."""
        config = self.config
        replay = ReplayMemory.of(state.memory, config)
        known = CriticMemory.of(state.memory, config, self.critic.learning_rate)
        with world.clock.measure("step"):
            visit = rolled_out(
                config,
                replay,
                known,
                state,
                world,
                grid=self.grid,
                chunk=self.chunk,
                num_chunks_of=partial(self.num_chunks_of, known),
                audit_share_of=partial(self.audit_share_of, known),
            )
            references = self.shown(visit, known)
            values = self.valued(visit, references, known, world)
            worth = settled(config, visit, values, grid_size=self.target_grid)
            entropy, entropy_cost = start_entropy(
                config, visit.groups, visit.refill, world
            )
            teach = self.teaching(visit, values, worth, state, world)
            turn = CriticTurn(config, self.critic, known, teach, state, world)
            batch = settled_batch(visit, worth)
            credit = self.credit(visit, values, worth)
            objective = replay_objective(config, replay.entropy_offset)
            policy = updated(config, turn, batch, credit.advantages, objective)
            after = self.learned(visit, values, worth, turn, policy, state, world)
            world.engine.load(world.learner.model, world.learner.version)
        memory = remembered(config, replay, visit.refill, entropy).to_json()
        spent = entropy_cost + step_cost(visit, values, turn, world)
        return recorded(
            state,
            world,
            Drawn(visit.groups, num_drawn=visit.num_drawn),
            batch,
            Shaped(worth.endpoints, spent),
            carried_values(visit, values, worth),
            credit,
            policy,
            critic=turn.update,
            outcome_known=known_outcomes(config, visit, values),
            valued_by_critic=True,
            counts=step_tally(visit, values, turn, policy, known, after),
            routing=routing_of(
                visit,
                values,
                worth,
                known,
                after,
                references,
                len(world.problems.prompts),
            ),
            clip_bounds=replay_bounds(config, replay.entropy_offset),
            start_entropy=entropy,
            memory={**memory, "critic": after.to_json()},
        )

    def num_chunks_of(self, known: CriticMemory, problem_id: str) -> int:
        """Chunks after which a ready problem is stopped."""
        return 1

    def audit_share_of(self, known: CriticMemory, problem_id: str) -> float:
        """Share of a ready problem's slots that are audited."""
        return self.config.audit_share

    def num_borders(self, visit: Visit) -> list[int]:
        """How many borders of each group's rollouts that ran on are asked about.

        The first one of audited groups tells whether the critic was fooled there; that
        of all groups is needed where the critic learns from values one chunk on.
        """
        all_of_them = self.config.critic_targets == "bootstrap"
        return [int(route.is_ready or all_of_them) for route in visit.routes]

    def shown(self, visit: Visit, known: CriticMemory) -> list[tuple[int, ...] | None]:
        """The reference of each group."""
        return [
            reference_of(
                route.slot.prompt.problem.id, route.slot.source, known, self.config
            )
            for route in visit.routes
        ]

    def valued(
        self,
        visit: Visit,
        references: Sequence[tuple[int, ...] | None],
        known: CriticMemory,
        world: World,
    ) -> Values:
        """Everything that the critic is asked in a step, before any update."""
        return asked_values(
            visit,
            self.critic,
            world,
            references=references,
            num_borders=self.num_borders(visit),
        )

    def credit(self, visit: Visit, values: Values, worth: Worth) -> Credit:
        """A_i on every token of the continuation, and z where its prefix ends."""
        batch = visit.batch
        trains = batch.sampled & worth.valid[:, None]
        advantages = torch.where(trains, worth.advantages[:, None], 0.0)
        targets = torch.zeros(len(batch.token_ids), batch.token_ids.shape[1] + 1)
        starts = batch.sampled.int().argmax(1, keepdim=True)
        taught = visit.over_groups(worth.targets).nan_to_num(0.0)
        taught = torch.where(batch.sampled.any(1), taught, 0.0)
        return Credit(advantages, targets.scatter(1, starts, taught[:, None]))

    def teaching(
        self, visit: Visit, values: Values, worth: Worth, state: State, world: World
    ) -> Teach:
        """(problem, prefix, z) of every group with a target; asked before the update,
        called when the critic has its turn.
        """
        return lambda: (lessons_of(visit, worth.targets), Cost())

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
        """Step 9, by the bank as it was; then the bank, the buffer and the rate."""
        config, known, update = self.config, turn.memory, turn.update
        found = gate_visits(config, visit, values, worth, known)
        gate, _, _ = self.gate.after(known.gate, found)
        stepped = bool(update and update.losses) and not config.joint_loss
        finite = update is None or update.num_nonfinite == 0
        rate, breaches = critic_rate(
            known.learning_rate,
            known.breaches,
            first=self.critic.learning_rate,
            floor=config.rate_floor,
            limit=config.displacement_limit,
            critic_displacement=update.displacement if update else None,
            actor_displacements=policy.displacements if policy else (),
            finite=finite,
            updated=stepped,
        )
        passing = passing_completions(
            [*visit.refill.groups, *visit.groups], config.pass_mark
        )
        draw = generator(world.seed, "references", state.step)
        return replace(
            known,
            lessons=turn.lessons,
            bank=known.bank.added(passing, draw),
            gate=gate,
            learning_rate=rate,
            breaches=breaches,
            spreads=spreads_after(known.spreads, visit, values),
        )


def ac2(config: AC2Config, critic: PrefixCritic, max_new_tokens: int) -> AC2:
    """A critic on the policy's own weights, trusted problem by problem."""
    return AC2.of(config, critic, max_new_tokens)
