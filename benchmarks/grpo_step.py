"""A GRPO step against TRL's, on one model, in alternating turns of one process.

    python benchmarks/grpo_step.py [--rounds 7] [--steps 6]

A step generates, scores and updates. Ours is the step that `accredit train` takes, with
the metrics of its row; TRL's is `GRPOTrainer.train`, which stays inside one run: a
callback hands the turn over between two of its steps. Both get the same weights,
prompts, groups of eight, budget, reward and optimizer, in float32 on the CPU. Where
lengths are fixed, the stop token is one that the model has no row for. The last load is
ragged, as training is: prompts of five lengths, and one token in 24 stops. Rates are
tokens a second of wall time and of this process's CPU time: on a busy machine only the
second means anything. Writes benchmarks/results/grpo_step.json.
"""

import argparse
import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, NamedTuple

import torch
from common import (
    PACKAGED,
    SMALL,
    Seconds,
    Shape,
    digit_share,
    letter_tokenizer,
    letters,
    moment,
    write_result,
)
from datasets import Dataset
from generation import spread
from transformers import PreTrainedTokenizerFast, TrainerCallback
from transformers.trainer_callback import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from accredit.algorithms.build import Parts, build_algorithm
from accredit.engines.local.engine import TransformersEngine
from accredit.environments.single_turn import SingleTurn
from accredit.functional.flops import ModelShape
from accredit.loops.synchronous import advance
from accredit.recipe.config import recipe_from
from accredit.records import State
from accredit.reports.metrics.step import step_metrics
from accredit.runs.assembly import build_learner
from accredit.tasks.rendering import decoder, render_all
from accredit.tasks.source import ShuffledPrompts
from accredit.types import Message, Problem, Rollout, Sampling, Verdict
from accredit.world import Clock, TimedEngine, TimedVerifier, World

GROUP_SIZE = 8
PROMPT_TOKENS = 16
RAGGED_PROMPTS = (8, 12, 16, 20, 24)
NUM_PROMPTS = 64
LEARNING_RATE = 1e-6
"""So small that lengths and rewards stay what they are while it is measured."""


class Load(NamedTuple):
    """What one step has to do."""

    name: str
    shape: Shape
    completions: int
    budget: int
    """Most tokens of a completion, and tokens of each where lengths are fixed."""
    ragged: bool = False
    """Prompts of several lengths, and a stop token that can be sampled."""

    @property
    def stop_token_id(self) -> int:
        """The last one of the vocabulary, or one beyond it."""
        return self.shape.vocabulary - self.ragged

    def checked(self, num_tokens: int) -> int:
        """The tokens that one step generated, if they can be."""
        most = self.completions * self.budget
        if num_tokens > most or (num_tokens < most and not self.ragged):
            raise RuntimeError(f"a step must make {most} tokens, got {num_tokens}")
        return num_tokens

    def prompts(self) -> list[str]:
        """Random letters."""
        source = random.Random(1)
        alphabet = letters(self.stop_token_id)
        lengths = RAGGED_PROMPTS if self.ragged else (PROMPT_TOKENS,)
        return [
            "".join(source.choices(alphabet, k=lengths[n % len(lengths)]))
            for n in range(NUM_PROMPTS)
        ]

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """One token a letter."""
        return letter_tokenizer(self.shape.vocabulary, self.stop_token_id)


LOADS = (
    Load("133k parameters, 32 completions of 16 tokens", SMALL, 32, 16),
    Load("133k parameters, 64 completions of 32 tokens", SMALL, 64, 32),
    Load("0.62M parameters, 32 completions of 16 tokens", PACKAGED, 32, 16),
    Load("0.62M parameters, 64 completions of 32 tokens", PACKAGED, 64, 32),
    Load(
        "0.59M parameters, 64 completions of 1 to 64 tokens, prompts of 8 to 24",
        replace(PACKAGED, vocabulary=24),
        64,
        64,
        ragged=True,
    ),
)


class DigitVerifier:
    """The trivial reward, in this process."""

    def verify(self, items: Sequence[tuple[Problem, str, Rollout]]) -> list[Verdict]:
        return [Verdict(digit_share(text)) for _, text, _ in items]

    def close(self) -> None:
        pass


@dataclass
class Ours:
    """A run of accredit that goes on for some steps at each call."""

    load: Load
    texts: Sequence[str]
    state: State = field(default_factory=State)

    def __post_init__(self) -> None:
        load = self.load
        recipe: dict[str, Any] = {
            "algorithm": {
                "prompts_per_step": load.completions // GROUP_SIZE,
                "group_size": GROUP_SIZE,
            },
            "sampling": {"max_new_tokens": load.budget},
            "learner": {"learning_rate": LEARNING_RATE},
        }
        config = recipe_from(recipe, "benchmark")
        self.algorithm = build_algorithm(config.algorithm, Parts(load.budget))
        tokenizer = load.tokenizer()
        stops = (load.stop_token_id,) if load.ragged else ()
        problems = [
            Problem(f"p{n}", (Message("user", text),))
            for n, text in enumerate(self.texts)
        ]
        clock = Clock()
        learner = build_learner(config, load.shape.random_model(), lambda: None)
        engine = TimedEngine(TransformersEngine(learner.model, stops), clock)
        self.world = World(
            problems=ShuffledPrompts(render_all(problems, tokenizer, 64).prompts, 0),
            environment=SingleTurn(
                engine,
                TimedVerifier(DigitVerifier(), clock),
                decoder(tokenizer, stops),
                load.budget,
                seed=0,
            ),
            engine=engine,
            learner=learner,
            sampling=Sampling(),
            shape=ModelShape.from_config(learner.model.config),
            seed=0,
            clock=clock,
        )

    def steps(self, count: int) -> int:
        """Takes so many steps; returns the number of tokens."""
        num_tokens = 0
        for _ in range(count):
            self.state, record = advance(self.algorithm, self.state, self.world)
            step_metrics(record, self.state, self.algorithm.clip_bounds)
            num_tokens += self.load.checked(record.cost.tokens_generated)
        return num_tokens


class Turn(NamedTuple):
    """What a few steps brought, and how long they took."""

    num_tokens: int
    seconds: Seconds

    def rate(self, clock: str) -> float:
        """Tokens a second."""
        return round(self.num_tokens / getattr(self.seconds, clock), 1)


class Turns(TrainerCallback):
    """Times TRL's steps, and after every turn of them lets accredit take one."""

    def __init__(self, ours: Callable[[int], int], steps: int) -> None:
        self.ours, self.steps = ours, steps
        self.taken: dict[str, list[Turn]] = {"accredit": [], "trl": []}
        self.num_tokens = 0
        """Of TRL's turn; its reward function counts them."""
        self.started = moment()

    def on_train_begin(self, *arguments: Any, **names: Any) -> None:
        self.started = moment()

    def on_step_end(self, args: Any, state: Any, control: Any, **names: Any) -> None:
        if state.global_step % self.steps:
            return
        began = moment()
        self.taken["trl"].append(Turn(self.num_tokens, began.since(self.started)))
        num_tokens = self.ours(self.steps)
        self.taken["accredit"].append(Turn(num_tokens, moment().since(began)))
        self.num_tokens, self.started = 0, moment()


def main() -> None:
    """Runs every load and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=6, help="of a turn")
    options = parser.parse_args()
    torch.set_num_threads(1)
    loads = {load.name: measured(load, options) for load in LOADS}
    content = {
        "rounds": options.rounds,
        "steps_per_turn": options.steps,
        "group_size": GROUP_SIZE,
        "prompt_tokens": {"fixed": PROMPT_TOKENS, "ragged": RAGGED_PROMPTS},
        "loads": loads,
    }
    write_result("grpo_step", content, "trl", "accelerate")


def measured(load: Load, options: argparse.Namespace) -> dict[str, Any]:
    """Rates of both and their ratio, round by round; the first round warms up."""
    texts = load.prompts()
    turns = Turns(Ours(load, texts).steps, options.steps)
    with tempfile.TemporaryDirectory() as folder:
        num_steps = (options.rounds + 1) * options.steps
        trainer = trl_trainer(load, texts, num_steps, folder, turns)
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(turns)
        trainer.train()
    # The first turns warm up.
    turns_of = {name: taken[1:] for name, taken in turns.taken.items()}
    rates = {
        name: {clock: [t.rate(clock) for t in taken] for clock in Seconds._fields}
        for name, taken in turns_of.items()
    }
    ratios = {
        clock: spread(rates["accredit"][clock], rates["trl"][clock])
        for clock in Seconds._fields
    }
    step_ms = {
        name: {
            clock: round(1e3 * median(getattr(t.seconds, clock) for t in taken), 1)
            for clock in Seconds._fields
        }
        for name, taken in turns_of.items()
    }
    print(f"{load.name}: times TRL {ratios}; milliseconds a turn {step_ms}", flush=True)
    return {"turn_ms": step_ms, "tokens_per_s": rates, "times_trl": ratios}


def trl_trainer(
    load: Load, texts: Sequence[str], num_steps: int, folder: str, turns: Turns
) -> GRPOTrainer:
    """TRL with what costs time and is not the step turned off."""

    def reward(
        completions: list[str], completion_ids: list[list[int]], **columns: Any
    ) -> list[float]:
        turns.num_tokens += load.checked(sum(map(len, completion_ids)))
        return [digit_share(text) for text in completions]

    config = GRPOConfig(
        output_dir=folder,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        max_steps=num_steps,
        per_device_train_batch_size=load.completions,
        gradient_accumulation_steps=1,
        num_generations=GROUP_SIZE,
        max_completion_length=load.budget,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        beta=0.0,
        loss_type="grpo",
        scale_rewards="group",
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        max_grad_norm=1.0,
        use_vllm=False,
        save_strategy="no",
        eval_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=0,
    )
    return GRPOTrainer(
        model=load.shape.random_model(),
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": list(texts)}),
        processing_class=load.tokenizer(),
    )


if __name__ == "__main__":
    main()
