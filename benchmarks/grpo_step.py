"""A GRPO step against TRL's, on one model, in alternating turns of one process.

    python benchmarks/grpo_step.py [--rounds 7] [--steps 8]

A step generates, scores and updates. Ours is the step that `accredit train` takes, with
the metrics of its row; TRL's is `GRPOTrainer.train`, which stays inside one run: a
callback hands the turn over between two of its steps. Both get the same weights,
prompts, groups of eight, budget, reward and optimizer, in float32 on the CPU. No
completion can stop early: the stop token is one that the model has no row for. Writes
benchmarks/results/grpo_step.json.
"""

import argparse
import random
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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

from accredit.algorithms.build import build_algorithm
from accredit.assembly import build_learner
from accredit.config import recipe_from
from accredit.engines.transformers_engine import TransformersEngine
from accredit.environments.single_turn import SingleTurn
from accredit.functional.flops import ModelShape
from accredit.reports.metrics import step_metrics
from accredit.tasks.rendering import decoder, render_all
from accredit.tasks.source import ShuffledPrompts
from accredit.types import (
    Message,
    Problem,
    Rollout,
    Sampling,
    State,
    Verdict,
)
from accredit.world import Clock, TimedEngine, TimedVerifier, World

GROUP_SIZE = 8
PROMPT_TOKENS = 16
NUM_PROMPTS = 64
LEARNING_RATE = 1e-4


class Load(NamedTuple):
    """What one step has to do."""

    name: str
    shape: Shape
    completions: int
    budget: int
    """Tokens of every completion."""

    @property
    def tokens(self) -> int:
        """Generated in a step."""
        return self.completions * self.budget


LOADS = (
    Load("133k parameters, 32 completions of 16 tokens", SMALL, 32, 16),
    Load("133k parameters, 64 completions of 32 tokens", SMALL, 64, 32),
    Load("0.62M parameters, 32 completions of 16 tokens", PACKAGED, 32, 16),
    Load("0.62M parameters, 64 completions of 32 tokens", PACKAGED, 64, 32),
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
        self.algorithm = build_algorithm(config.algorithm, load.budget)
        tokenizer = letter_tokenizer(load.shape.vocabulary, load.shape.vocabulary)
        problems = [
            Problem(f"p{n}", (Message("user", text),))
            for n, text in enumerate(self.texts)
        ]
        clock = Clock()
        learner = build_learner(config, load.shape.random_model(), lambda: None)
        engine = TimedEngine(TransformersEngine(learner.model, ()), clock)
        self.world = World(
            problems=ShuffledPrompts(render_all(problems, tokenizer, 64).prompts, 0),
            environment=SingleTurn(
                engine,
                TimedVerifier(DigitVerifier(), clock),
                decoder(tokenizer, ()),
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

    def steps(self, count: int) -> None:
        """Takes so many steps."""
        for _ in range(count):
            self.state, record = self.algorithm.step(
                self.algorithm, self.state, self.world
            )
            step_metrics(record, self.state, self.algorithm.clip_bounds)
            if record.cost.tokens_generated != self.load.tokens:
                raise RuntimeError(f"got {record.cost.tokens_generated} tokens")


class Turns(TrainerCallback):
    """Times TRL's steps, and after every turn of them lets accredit take one."""

    def __init__(self, ours: Callable[[int], None], steps: int) -> None:
        self.ours, self.steps = ours, steps
        self.seconds: dict[str, list[Seconds]] = {"accredit": [], "trl": []}
        self.started = moment()

    def on_train_begin(self, *arguments: Any, **names: Any) -> None:
        self.started = moment()

    def on_step_end(self, args: Any, state: Any, control: Any, **names: Any) -> None:
        if state.global_step % self.steps:
            return
        handed_over = moment()
        self.ours(self.steps)
        back = moment()
        self.seconds["trl"].append(handed_over.since(self.started))
        self.seconds["accredit"].append(back.since(handed_over))
        self.started = moment()


def main() -> None:
    """Runs every load and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=8, help="of a turn")
    options = parser.parse_args()
    torch.set_num_threads(1)
    loads = {load.name: measured(load, options) for load in LOADS}
    content = {
        "rounds": options.rounds,
        "steps_per_turn": options.steps,
        "group_size": GROUP_SIZE,
        "prompt_tokens": PROMPT_TOKENS,
        "loads": loads,
    }
    write_result("grpo_step", content, "trl", "accelerate")


def measured(load: Load, options: argparse.Namespace) -> dict[str, Any]:
    """Rates of both and their ratio, round by round; the first round warms up."""
    source = random.Random(1)
    alphabet = letters(load.shape.vocabulary)
    texts = [
        "".join(source.choices(alphabet, k=PROMPT_TOKENS)) for _ in range(NUM_PROMPTS)
    ]
    turns = Turns(Ours(load, texts).steps, options.steps)
    with tempfile.TemporaryDirectory() as folder:
        num_steps = (options.rounds + 1) * options.steps
        trainer = trl_trainer(load, texts, num_steps, folder)
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(turns)
        trainer.train()
    num_tokens = load.tokens * options.steps
    rates = {
        name: {
            clock: [round(num_tokens / getattr(s, clock), 1) for s in seconds[1:]]
            for clock in Seconds._fields
        }
        for name, seconds in turns.seconds.items()
    }
    ratios = {
        clock: spread(rates["accredit"][clock], rates["trl"][clock])
        for clock in Seconds._fields
    }
    step_ms = {
        name: round(1e3 * num_tokens / options.steps / statistics.median(r["wall"]), 1)
        for name, r in rates.items()
    }
    print(f"{load.name}: {step_ms} ms a step; times TRL {ratios}")
    return {"step_ms": step_ms, "tokens_per_s": rates, "times_trl": ratios}


def trl_trainer(
    load: Load, texts: Sequence[str], num_steps: int, folder: str
) -> GRPOTrainer:
    """TRL with what costs time and is not the step turned off."""
    tokenizer: PreTrainedTokenizerFast = letter_tokenizer(
        load.shape.vocabulary, load.shape.vocabulary
    )

    def reward(
        completions: list[str], completion_ids: list[list[int]], **columns: Any
    ) -> list[float]:
        num_tokens = sum(map(len, completion_ids))
        if num_tokens != load.tokens:
            raise RuntimeError(f"got {num_tokens} tokens")
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
        processing_class=tokenizer,
    )


if __name__ == "__main__":
    main()
