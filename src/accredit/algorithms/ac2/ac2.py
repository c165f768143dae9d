"""AC2: actor-critic with action chunking.

    1  draw      n_refill fresh problems, one rollout each, stored for the next step;
                 n_batch slots of the store: distinct problems cycled, one rollout each
    2  cut       a slot's prefix ends on a grid, uniform in the first .9 of its rollout
    3  route     slots of ready problems stop after b tokens, but for a quarter: audits
    4  continue  g continuations of each prefix
    5  v_i       = critic(prefix + continuation) where it was stopped, else the reward
    6  A_i       = v_i - mean_j v_j, on all tokens of the continuation
    7  error     = |V(prefix) - z|, V from before the update
    8  z         = mean_i v_i on the grid, ties down; joins the critic's buffer
    9  gate      a problem is ready once errors are small, it was solved before, and the
                 critic has ever said more than 0 of it; then references join the bank
    10 update    actor minibatch 1, critic, actor minibatch 2, on the same weights
    and          clip_high moves towards the target entropy; the critic's learning rate
                 is halved where it moves the weights further than the policy does

Wen et al. 2026, arXiv:2609.39247. A slot of a ready problem has lambda 0, any other
lambda 1. Nobody learns from a prefix's own tokens. Lines 1 to 4 are in `replay/routes`,
5 to 8 in `endpoints`, the gate's rule in `critics/readiness`, all else here.

Differs from the paper:
- a completion that could not be judged teaches nothing by default (it is worth 0
  there: `unverified = "zero"`);
- the gate's window holds the complete steps before this one; a problem is tested when
  it is drawn, by the mean error of this step's slots;
- the question's wording is ours, and the empty think block is part of a template's
  stem;
- what is stored of problems that the data no longer hold is passed over;
- with `grouping = "prefixes"` a ready slot's prefixes are cut independently, so that
  two may be equal;
- `ready_lambda`, `chunk_weight`, `aggregation`, `joint_loss`, other orders, baselines,
  targets and kinds of critics are ours or the paper's ablations.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from accredit.algorithms.ac2.endpoints import (
    Endpoints,
    StepRollouts,
    Values,
    ask_critic,
    endpoints_of,
    known_outcomes,
    prefix_values,
    with_endpoints,
)
from accredit.algorithms.ac2.gate import gate_of, problem_errors, spreads_after
from accredit.algorithms.ac2.memory import AC2Memory
from accredit.algorithms.ac2.recalibration import NoRecalibration
from accredit.algorithms.ac2.record import counters, routing_of, step_cost
from accredit.algorithms.ac2.rules import (
    AuditRule,
    ChunkRule,
    CreditRule,
    EndpointCredit,
    ExampleRule,
    FixedShare,
    PrefixExamples,
    Recalibration,
    one_chunk,
)
from accredit.algorithms.replay.control import critic_rate, entropy_offset
from accredit.algorithms.replay.routes import (
    Route,
    RoutedDraw,
    Source,
    audit_chances,
    audited_slots,
    continue_routes,
    cut_route,
    draw_problems,
    draw_refill,
    passing_completions,
    stored_rollouts,
    within_unit,
)
from accredit.algorithms.replay.update import (
    EntropyControl,
    replay_bounds,
    replay_objective,
    start_entropy,
)
from accredit.algorithms.replay_configs import AC2Config
from accredit.algorithms.step import finished, publish, step_record
from accredit.batches.collate import collate
from accredit.batches.replay import ExampleBuffer, RolloutBuffer, StoredExample
from accredit.critics.prefix_configs import PromptedConfig
from accredit.critics.readiness import Gate
from accredit.protocols import Objective, PolicySteps, PrefixCritic
from accredit.randomness import generator, keyed_seed
from accredit.records import (
    Cost,
    Credit,
    CriticUpdate,
    Drawn,
    PolicyUpdate,
    Record,
    State,
)
from accredit.types import CriticExample, CriticQuery, Prompt
from accredit.world import World


@dataclass(frozen=True)
class Rules:
    """What the paper leaves to one choice each; the defaults of `paper_rules` are its
    own."""

    audits: AuditRule
    chunks: ChunkRule
    credit: CreditRule
    examples: ExampleRule
    recalibration: Recalibration


def paper_rules(config: AC2Config) -> Rules:
    """Those of the paper."""
    return Rules(
        audits=FixedShare(config.audit_share),
        chunks=one_chunk,
        credit=EndpointCredit(config),
        examples=PrefixExamples(),
        recalibration=NoRecalibration(),
    )


@dataclass(frozen=True)
class AC2:
    """The algorithm with its critic, its gate and its numbers."""

    config: AC2Config
    critic: PrefixCritic
    rules: Rules
    chunk: int
    """Tokens of a chunk."""
    grid: int
    """Tokens between possible cuts."""

    @property
    def clip_bounds(self) -> tuple[float, float]:
        """For the report; the entropy control moves the upper one."""
        return self.config.clip_low, self.config.clip_high

    @property
    def gate(self) -> Gate:
        """The rule by which a problem becomes ready."""
        return gate_of(self.config.gate)

    @property
    def initial_memory(self) -> AC2Memory:
        """Empty buffers, nobody ready, the critic's first learning rate."""
        return AC2Memory(
            RolloutBuffer(self.config.store_size),
            ExampleBuffer(self.config.examples_in_store),
            self.critic.learning_rate,
        )

    def draw(self, state: State, world: World) -> RoutedDraw:
        """Lines 1 to 4."""
        config, memory = self.config, state.memory
        with world.clock.measure("step"):
            refill = draw_refill(config, state, world)
            refill = replace(refill, groups=within_unit(refill.groups))
            sources, num_fresh = draw_problems(
                config,
                memory.rollouts,
                state,
                world,
                start=state.num_drawn + refill.num_drawn,
            )
            routes = self.routes(sources, memory, state, world)
            groups = within_unit(continue_routes(routes, state, world))
        return RoutedDraw(
            groups,
            num_drawn=refill.num_drawn + num_fresh,
            version=world.engine.version,
            routes=tuple(routes),
            refill=refill,
        )

    def learn(self, state: State, world: World, drawn: Drawn) -> tuple[State, Record]:
        """Lines 5 to 10, and what is remembered."""
        assert isinstance(drawn, RoutedDraw)
        config, memory, rules = self.config, state.memory, self.rules
        with world.clock.measure("step"):
            judged = collate(drawn.groups)
            step = StepRollouts.of(drawn, judged)
            references = shown_references(config, memory, step)
            said = ask_critic(
                self.critic,
                step,
                world,
                references=references,
                num_boundaries=[rules.credit.num_boundaries(r) for r in step.routes],
            )
            values = rules.recalibration.moved(said, memory)
            ends = endpoints_of(config, step, values, self.target_grid)
            advantages = rules.credit(step, values, ends)
            entropy, entropy_cost = start_entropy(config, drawn, world)
            offset = entropy_offset(
                memory.entropy_offset, entropy, config.entropy_target
            )
            objective = replay_objective(config, offset)
            policy, taught = self.update(
                step, values, ends, advantages, objective, state, world
            )
            publish(world)
        after = self.remember(
            drawn, step, values, ends, offset, policy, taught, state, world
        )
        routing = routing_of(
            drawn,
            step,
            values,
            ends,
            (memory.gate, after.gate),
            references,
            len(world.problems.prompts),
        )
        bounds = replay_bounds(config, offset)
        record = replace(
            step_record(
                drawn,
                with_endpoints(judged, ends),
                ends.values,
                prefix_values(step, values, ends),
                Credit(advantages, targets_at_prefixes(step, ends)),
                policy,
            ),
            critic=taught.update,
            outcome_known=known_outcomes(config, step, values),
            valued_by_critic=True,
            counts=counters(drawn, values, taught.update, memory, after),
            clip_bounds=bounds,
            sections=(routing, EntropyControl(bounds[1], entropy)),
        )
        spent = step_cost(drawn, values, taught.update, world)
        spent = entropy_cost + spent + taught.cost
        return finished(state, world, drawn, record, spent=spent, memory=after)

    @property
    def target_grid(self) -> int | None:
        """Values that a target is rounded to; None does not round."""
        rounds = self.config.target_rounding == "nearest"
        return self.config.grid_size if rounds else None

    def routes(
        self, sources: Sequence[Source], memory: AC2Memory, state: State, world: World
    ) -> list[Route]:
        """Lines 2 and 3: where each group begins, and how far it runs."""
        config, rules = self.config, self.rules
        ids = [source.prompt.problem.id for source in sources]
        is_ready = [memory.gate.ready(id) for id in ids]
        audits = config.grouping == "siblings" and config.ready_lambda == 0.0
        shares = {
            number: rules.audits(memory, id)
            for number, id in enumerate(ids)
            if audits and is_ready[number]
        }
        chances = audit_chances(shares)
        audited = audited_slots(
            chances, generator(world.seed, "audits", state.num_draws)
        )
        routes: list[Route] = []
        for number, source in enumerate(sources):
            draw = generator(world.seed, "cuts", state.num_draws, number)
            num_chunks = rules.chunks(memory, ids[number])
            is_single = config.grouping == "prefixes" and is_ready[number]
            may_stop = is_ready[number] and config.ready_lambda == 0.0
            for _ in range(config.group_size if is_single else 1):
                route = replace(
                    cut_route(config, source, self.grid, draw),
                    boundary=self.chunk * num_chunks,
                    num_chunks=num_chunks,
                    is_ready=is_ready[number],
                    is_audited=number in audited,
                    is_stopped=may_stop and number not in audited,
                    is_single=is_single,
                    inclusion=chances.get(number, 1.0),
                )
                routes.append(replace(route, group_size=1) if is_single else route)
        return routes

    def update(
        self,
        step: StepRollouts,
        values: Values,
        ends: Endpoints,
        advantages: Float[Tensor, "rollout token"],
        objective: Objective,
        state: State,
        world: World,
    ) -> tuple[PolicyUpdate | None, "CriticStep"]:
        """Line 10: policy and critic on the same weights, in the configured order.

        Each has an optimizer of its own. A joint loss is one step of the policy's
        optimizer on the sum of both gradients, in its first minibatch. A step in which
        nobody can be learned from is the critic's alone.
        """
        config = self.config
        batch = with_endpoints(step.batch, ends)
        before = self.rules.examples.before(step, world)
        teach = partial(self.teach, step, values, ends, before, state, world)
        if not bool(batch.trainable.any()):
            return None, teach()
        begin = partial(
            world.learner.begin,
            batch,
            advantages,
            objective,
            keyed_seed(world.seed, "minibatches", state.step),
            measures_displacement=True,
        )
        with world.clock.measure("update"):
            if config.joint_loss:
                update = begin()
                taught = joint_steps(update, teach)
            elif config.order == "actor_critic_actor":
                update = begin()
                update.step(0)
                taught = teach()
                take_steps(update, first=1)
            elif config.order == "actor_critic":
                update = begin()
                take_steps(update)
                taught = teach()
            else:
                taught = teach()
                update = begin()
                take_steps(update)
            return update.result(), taught

    def teach(
        self,
        step: StepRollouts,
        values: Values,
        ends: Endpoints,
        before: Tensor | None,
        state: State,
        world: World,
        *,
        joint: bool = False,
    ) -> "CriticStep":
        """The critic's step: adds this step's examples to its buffer, and learns.

        What is learned is drawn from the buffer without order, so that consecutive
        parts of it are random too. `joint` leaves the gradient to the policy's step.
        """
        config, memory = self.config, state.memory
        added, cost = self.rules.examples(step, values, ends, before, state, world)
        buffer = memory.examples.added(added)
        draw = generator(world.seed, "critic lessons", state.step)
        prompts = {p.problem.id: p for p in world.problems.prompts}
        examples = [
            taught_example(config, memory, prompts[item.problem_id], item)
            for item in buffer.drawn(config.examples_per_step, draw)
            if item.problem_id in prompts
        ]
        with world.clock.measure("critic"):
            if joint:
                update = self.critic.add_gradient(examples) if examples else None
            else:
                size = max(1, -(-len(examples) // config.critic_steps))
                parts = range(0, len(examples), size)
                rate = memory.learning_rate
                updates = [
                    self.critic.update(examples[n : n + size], rate) for n in parts
                ]
                update = total_update(updates)
        if update is not None:
            world.learner.moved_by_others(update.num_policy_steps)
        return CriticStep(buffer, update, cost)

    def remember(
        self,
        drawn: RoutedDraw,
        step: StepRollouts,
        values: Values,
        ends: Endpoints,
        offset: float,
        policy: PolicyUpdate | None,
        taught: "CriticStep",
        state: State,
        world: World,
    ) -> AC2Memory:
        """Line 9, by the bank as it was; then bank, buffers and controls."""
        config, memory, update = self.config, state.memory, taught.update
        errors = problem_errors(config, step, values, ends, memory)
        gate, _, _ = self.gate.after(memory.gate, errors)
        rate, breaches = critic_rate(
            memory.learning_rate,
            memory.breaches,
            first=self.critic.learning_rate,
            floor=config.rate_floor,
            limit=config.displacement_limit,
            critic_displacement=update.displacement if update else None,
            actor_displacements=policy.displacements if policy else (),
            finite=update is None or update.num_nonfinite == 0,
            updated=bool(update and update.losses) and not config.joint_loss,
        )
        passing = passing_completions(
            [*drawn.refill.groups, *drawn.groups], config.pass_mark
        )
        draw = generator(world.seed, "references", state.step)
        return AC2Memory(
            rollouts=memory.rollouts.added(
                stored_rollouts(config, drawn.refill.groups)
            ),
            examples=taught.examples,
            learning_rate=rate,
            entropy_offset=offset,
            bank=memory.bank.added(passing, draw),
            gate=gate,
            breaches=breaches,
            spreads=spreads_after(memory, step, values),
            outcomes=self.rules.recalibration.outcomes(memory, step, values),
        )


@dataclass(frozen=True)
class CriticStep:
    """The critic's part of an update."""

    examples: ExampleBuffer
    """Its buffer, with what this step has added."""
    update: CriticUpdate | None
    """None where there was nothing to learn from."""
    cost: Cost
    """Of finding the examples."""


def take_steps(update: PolicySteps, first: int = 0) -> None:
    """All of the policy's optimizer steps from `first` on."""
    for index in range(first, update.num_steps):
        update.step(index)


def joint_steps(update: PolicySteps, teach: Callable[..., CriticStep]) -> CriticStep:
    """The policy's steps, the first that is taken with the critic's gradient."""
    taught: CriticStep | None = None
    for index in range(update.num_steps):
        if update.backward(index) and taught is None:
            taught = teach(joint=True)
        update.descend()
    assert taught is not None, "an update has a step with something to learn"
    return taught


def total_update(updates: Sequence[CriticUpdate | None]) -> CriticUpdate | None:
    """Several steps as one update; their displacements add up to a bound of its own."""
    taken = [update for update in updates if update is not None]
    if not taken:
        return None
    moves = [u.displacement for u in taken if u.displacement is not None]
    return CriticUpdate(
        losses=tuple(loss for u in taken for loss in u.losses),
        gradient_norms=tuple(norm for u in taken for norm in u.gradient_norms),
        learning_rate=taken[-1].learning_rate,
        num_skipped=sum(u.num_skipped for u in taken),
        train_flops=math.fsum(u.train_flops for u in taken),
        displacement=math.fsum(moves) if moves else None,
        num_left_out=sum(u.num_left_out for u in taken),
        num_nonfinite=sum(u.num_nonfinite for u in taken),
        num_policy_steps=sum(u.num_policy_steps for u in taken),
    )


def taught_example(
    config: AC2Config, memory: AC2Memory, prompt: Prompt, item: StoredExample
) -> CriticExample:
    """An example of the buffer, with the reference that it has by now."""
    reference = reference_of(config, memory, item.problem_id, item.reference_ids)
    return CriticExample(CriticQuery(prompt, item.token_ids, reference), item.target)


def reference_of(
    config: AC2Config,
    memory: AC2Memory,
    problem_id: str,
    source: tuple[int, ...] | None,
) -> tuple[int, ...] | None:
    """The passing completion that the critic is shown: the source's own, the bank's.

    None of a failed rollout is ever shown.
    """
    options = config.critic
    if not isinstance(options, PromptedConfig) or options.reference == "none":
        return None
    if options.reference == "source" and source is not None:
        return source
    return memory.bank.reference(problem_id)


def shown_references(
    config: AC2Config, memory: AC2Memory, step: StepRollouts
) -> list[tuple[int, ...] | None]:
    """What the critic is shown of each group."""
    return [
        reference_of(config, memory, route.problem_id, route.source)
        for route in step.routes
    ]


def targets_at_prefixes(
    step: StepRollouts, ends: Endpoints
) -> Float[Tensor, "rollout prefix"]:
    """z where each rollout's replayed prefix ends, 0 elsewhere; for the record."""
    batch = step.batch
    targets = torch.zeros(len(batch.token_ids), batch.token_ids.shape[1] + 1)
    starts = batch.sampled.int().argmax(1, keepdim=True)
    taught = step.over_groups(ends.targets).nan_to_num(0.0)
    taught = torch.where(batch.sampled.any(1), taught, 0.0)
    return targets.scatter(1, starts, taught[:, None])


def ac2(config: AC2Config, critic: PrefixCritic, max_new_tokens: int) -> AC2:
    """A critic on the policy's own weights, trusted problem by problem."""
    return AC2(
        config,
        critic,
        paper_rules(config),
        chunk=config.chunk(max_new_tokens),
        grid=config.grid(max_new_tokens),
    )
