"""Worlds in which a step of AC2 can be followed by hand.

Who says what is a function of problem, text so far and sibling; the critic is a table.
Everything between them is what a run has.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from accredit.algorithms.ac2.memory import AC2Memory
from accredit.batches.replay import (
    ExampleBuffer,
    RolloutBuffer,
    StoredExample,
    StoredRollout,
    packed,
)
from accredit.critics.readiness import GateState, Track
from accredit.critics.references import ReferenceBank
from accredit.environments.single_turn import SingleTurn
from accredit.functional.flops import ModelShape
from accredit.loops.synchronous import advance, first_state
from accredit.records import Record, State
from accredit.tasks.source import ShuffledPrompts
from accredit.types import (
    Batch,
    Completion,
    CriticQuery,
    Problem,
    Request,
    Sampling,
    StopReason,
)
from accredit.world import World
from letter_critics import TableCritic
from worlds import (
    LETTERS,
    KnownLearner,
    LetterVerifier,
    Reward,
    algorithm,
    prompts,
    share_of_a,
)

STOP = LETTERS.index("h")
Lines = Callable[[str, str, int], str]
"""(problem, text so far, number of the sibling) -> all that would follow."""
PROBLEM_OF = {prompt.token_ids[0]: prompt for prompt in prompts(6)}
"""By the first token: no two prompts share it."""
SHAPE = ModelShape(1, 2, 3, 1, 1, 2, 5)
"""Of the smallest model whose FLOPs differ in every term."""
LONG = 10
"""Budget of these worlds; a chunk is its fifth."""


def ids(text: str) -> tuple[int, ...]:
    """Letters as the tokens they are."""
    return tuple(LETTERS.index(letter) for letter in text)


def text_of(token_ids: Sequence[int]) -> str:
    """The other way round."""
    return "".join(LETTERS[i] for i in token_ids)


@dataclass
class SpokenEngine:
    """Says what the lines say, as far as it is asked to; `h` stops."""

    lines: Lines
    version: int = 0
    asked: list[list[Request]] = field(default_factory=list)

    def generate(
        self, requests: Sequence[Request], sampling: Sampling
    ) -> list[Completion]:
        self.asked.append(list(requests))
        seen: dict[tuple[int, ...], int] = {}
        found: list[Completion] = []
        for request in requests:
            prompt = PROBLEM_OF[request.token_ids[0]]
            sibling = seen.get(request.token_ids, 0)
            seen[request.token_ids] = sibling + 1
            so_far = text_of(request.token_ids[len(prompt.token_ids) :])
            said = ids(self.lines(prompt.problem.id, so_far, sibling))
            cut = said[: request.max_new_tokens]
            stops = cut[-1:] == (STOP,)
            reason = StopReason.STOP if stops else StopReason.LENGTH
            found.append(Completion(cut, (-2.0,) * len(cut), reason))
        return found

    def load(self, model: Any, version: int) -> None:
        self.version = version


@dataclass
class IdleLearner(KnownLearner):
    """Learns nothing; what it says of a batch is 0, save for its entropy."""

    def logprobs(self, batch: Batch) -> Tensor:
        return torch.zeros_like(batch.sampling_logprobs)


def spoken_world(
    lines: Lines,
    reward: Reward = share_of_a,
    *,
    max_new_tokens: int = LONG,
    num_prompts: int = 6,
    answered: Callable[[Problem, str], bool] = lambda problem, text: False,
    seed: int = 0,
    entropy: float = 0.0,
    learner: Any = None,
) -> World:
    """A world whose engine speaks the lines, and whose learner does nothing.

    `learner` may be one that learns: `small_world(...).learner`.
    """
    nothing = torch.zeros(0)
    engine = SpokenEngine(lines)
    environment = SingleTurn(
        engine,
        LetterVerifier(reward),
        lambda completions: [text_of(token_ids) for token_ids in completions],
        max_new_tokens,
        seed,
        answered=answered,
    )
    return World(
        problems=ShuffledPrompts(prompts(num_prompts), seed),
        environment=environment,
        engine=engine,
        learner=learner or IdleLearner(nothing, nothing, entropy=entropy),
        sampling=Sampling(),
        shape=SHAPE,
        seed=seed,
    )


def chosen(critic: Any = None, name: str = "ac2", budget: int = LONG, **keys: Any):
    """The algorithm, asking that critic; one slot of two siblings, one refill."""
    small = {"prompts_per_step": 1, "group_size": 2, "num_refill": 1}
    built = algorithm(name, budget, **{**small, **keys})
    return built if critic is None else replace(built, critic=critic)


def reads(table: dict[str, float | None], default: float | None = 0.5) -> TableCritic:
    """A critic that says what the table says of a text."""

    def value_of(query: CriticQuery) -> float | None:
        return table.get(text_of(query.written), default)

    return TableCritic(value_of)


def remembering(
    stored: Sequence[tuple[str, str, float]] = (),
    *,
    ready: Sequence[str] = (),
    bank: dict[str, str] | None = None,
    examples: Sequence[tuple[str, str, float, str | None]] = (),
    window: Sequence[Sequence[float]] = (),
    tracks: dict[str, Track] | None = None,
    spreads: dict[str, tuple[int, float]] | None = None,
    learning_rate: float = 1e-3,
    breaches: int = 0,
    offset: float = 0.06,
    step: int = 0,
    capacity: int = 8,
    critic_capacity: int = 24,
) -> State:
    """A state as if steps before had left it so. Texts are letters."""
    rollouts = [StoredRollout.of(p, ids(text), reward) for p, text, reward in stored]
    taught = [
        StoredExample.of(p, ids(text), target, None if shown is None else ids(shown))
        for p, text, target, shown in examples
    ]
    trusted = {name: Track(ready=True, nonzero_seen=True) for name in ready}
    memory = AC2Memory(
        rollouts=RolloutBuffer(capacity).added(rollouts),
        examples=ExampleBuffer(critic_capacity).added(taught),
        learning_rate=learning_rate,
        entropy_offset=offset,
        bank=ReferenceBank(
            {name: packed(ids(text)) for name, text in (bank or {}).items()}
        ),
        gate=GateState(
            {**trusted, **(tracks or {})}, tuple(tuple(errors) for errors in window)
        ),
        breaches=breaches,
        spreads=spreads or {},
    )
    return State(step=step, num_draws=step, memory=memory)


def one_step(
    chosen: Any, world: World, state: State | None = None
) -> tuple[State, Record, SimpleNamespace]:
    """State, record, and what is remembered after the step as values."""
    after, record = advance(chosen, state or first_state(chosen), world)
    return after, record, memory_in(after)


def memory_in(state: State) -> SimpleNamespace:
    """What a state of AC2 remembers, texts as letters."""
    memory = state.memory
    asks = isinstance(memory, AC2Memory)
    examples = memory.examples.items if asks else ()
    bank = memory.bank if asks else ReferenceBank()
    return SimpleNamespace(
        stored=[
            (item.problem_id, text_of(item.token_ids), item.reward)
            for item in memory.rollouts.items
        ],
        examples=[
            (
                item.problem_id,
                text_of(item.token_ids),
                round(item.target, 6),
                None if item.reference is None else text_of(item.reference_ids or ()),
            )
            for item in examples
        ],
        bank={name: text_of(bank.reference(name) or ()) for name in bank.items},
        gate=memory.gate if asks else None,
        offset=memory.entropy_offset,
        learning_rate=memory.learning_rate if asks else None,
        breaches=memory.breaches if asks else None,
        spreads=memory.spreads if asks else None,
    )


def row_advantages(record: Record) -> list[float]:
    """The one advantage of each rollout, checked to be constant over its tokens."""
    found: list[float] = []
    for row, sampled in zip(
        record.credit.advantages, record.batch.sampled, strict=True
    ):
        inside = row[sampled]
        assert (inside == inside[:1]).all()
        assert not row[~sampled].any()
        found.append(float(inside[0]) if len(inside) else 0.0)
    return found


def texts(record: Record) -> list[str]:
    """What each rollout of the step's groups wrote, the replayed part included."""
    return [
        text_of(rollout.completion_ids)
        for group in record.groups
        for rollout in group.rollouts
    ]
