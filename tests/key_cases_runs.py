"""What each key outside of `[task]` and `[algorithm]` changes, in a run that is small.

Rewards are given in this process; everything else is what a recipe builds.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from accredit.engines.local.engine import TransformersEngine
from accredit.loops.synchronous import advance, first_state
from accredit.models.scorer import Scorer
from accredit.recipe.config import RecipeError
from accredit.records import Record
from accredit.reports.evaluation import EvalResult
from accredit.runs.assembly import Assembly, assemble
from accredit.runs.session import TooManyInvalid, evaluate, start_training
from accredit.storage.run_directory import RunDirectory
from runs import small_config
from tiny_models import tiny_qwen3
from worlds import LetterVerifier

Changes = dict[str, Any]


def odd_share(text: str) -> float:
    """Share of characters with an odd code: siblings nearly always differ."""
    return sum(ord(c) % 2 for c in text) / max(len(text), 1)


@dataclass
class Bench:
    """Where the cases run."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch

    def assembly(self, reward: Any = odd_share, **changes: Any) -> Assembly:
        """A small run, built."""
        self.monkeypatch.setattr(
            "accredit.tasks.build.build_verifier", lambda config: LetterVerifier(reward)
        )
        return assemble(small_config(self.folder, **changes))

    def run(self, name: str, reward: Any = odd_share, **changes: Any) -> RunDirectory:
        """A whole run in a folder of its own, without the page at its end."""
        self.monkeypatch.setattr(
            "accredit.tasks.build.build_verifier", lambda config: LetterVerifier(reward)
        )
        self.monkeypatch.setattr(
            "accredit.runs.run_folder.write_report", lambda *_: None
        )
        self.monkeypatch.setattr("accredit.runs.session.environment", dict)
        run, finished = start_training(small_config(self.folder, name=name, **changes))
        assert finished
        return run


def section(key: str, value: object) -> Changes:
    """A dotted key as the changes of a recipe."""
    *sections, leaf = key.split(".")
    changes: Changes = {leaf: value}
    for name in reversed(sections):
        changes = {name: changes}
    return changes


def merged(base: Changes, change: Changes) -> Changes:
    """Both, section by section."""
    result = dict(base)
    for key, value in change.items():
        inner = result.get(key)
        both = isinstance(inner, dict) and isinstance(value, dict)
        result[key] = {**inner, **value} if both else value
    return result


def stepped(assembly: Assembly, count: int = 3) -> list[Record]:
    """The records of some steps."""
    state, records = first_state(assembly.algorithm), []
    for _ in range(count):
        state, record = advance(assembly.algorithm, state, assembly.world)
        records.append(record)
    return records


def weights(assembly: Assembly) -> Tensor:
    """All parameters in one row."""
    model = assembly.world.learner.model
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def trained(bench: Bench, changes: Changes) -> Tensor:
    """Weights after three steps."""
    with closing(bench.assembly(**changes)) as assembly:
        stepped(assembly)
        return weights(assembly)


def changes_weights(key: str, value: object, base: Changes, bench: Bench) -> None:
    before = trained(bench, base)
    after = trained(bench, merged(base, section(key, value)))
    assert (after - before).abs().max() > 1e-6


def changes_rollouts(key: str, value: object, bench: Bench) -> None:
    """Prompts or completions of the first step, by their ids."""

    def first_batch(**changes: Any) -> list[list[int]]:
        with closing(bench.assembly(**changes)) as assembly:
            return stepped(assembly, 1)[0].batch.token_ids.tolist()

    same = first_batch()
    assert same == first_batch()
    assert same != first_batch(**section(key, value))


@contextmanager
def counted(owner: type, name: str, bench: Bench) -> Iterator[list[int]]:
    """Counts the calls of a method."""
    inner, calls = getattr(owner, name), [0]

    def counting(*arguments: Any, **named: Any) -> Any:
        calls[0] += 1
        return inner(*arguments, **named)

    with bench.monkeypatch.context() as patch:
        patch.setattr(owner, name, counting)
        yield calls


def changes_calls_only(
    key: str, value: object, owner: type, name: str, bench: Bench
) -> None:
    """A memory knob: other calls, the same weights.

    Adam divides a gradient near 0 by itself, rounding included: hence the small rate.
    """
    slowly = section("learner.learning_rate", 3e-4)
    with counted(owner, name, bench) as calls:
        before = trained(bench, slowly)
        num_before = calls[0]
    with counted(owner, name, bench) as calls:
        after = trained(bench, merged(slowly, section(key, value)))
        num_after = calls[0]
    assert num_before != num_after
    torch.testing.assert_close(after, before, rtol=0, atol=1e-6)


def gradient_checkpointing(bench: Bench) -> None:
    updates, rows = [], []
    for value in (False, True):
        changes = section("model.gradient_checkpointing", value)
        with closing(bench.assembly(**changes)) as assembly:
            updates.append([record.policy for record in stepped(assembly)])
            rows.append(weights(assembly))
    plain, again = (sum(u.num_forward_tokens for u in update) for update in updates)
    assert again == 2 * plain
    torch.testing.assert_close(rows[0], rows[1], rtol=0, atol=1e-6)


def max_consecutive_skips(bench: Bench) -> None:
    """As many broken updates as the key says are survived but for the last."""
    for limit in (2, 4):
        changes = section("learner.max_consecutive_skips", limit)
        with closing(bench.assembly(**changes)) as assembly:
            (record,) = stepped(assembly, 1)
            broken = torch.full_like(record.credit.advantages, torch.nan)
            learner, objective = assembly.world.learner, assembly.algorithm.objective
            for _ in range(limit - 1):
                learner.begin(record.batch, broken, objective, 0).run()
            with pytest.raises(RuntimeError, match="max_consecutive_skips"):
                learner.begin(record.batch, broken, objective, 0).run()


def device(bench: Bench) -> None:
    bench.monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for name in ("cpu", "auto"):
        with closing(bench.assembly(model={"device": name})) as assembly:
            assert assembly.world.learner.model.device.type == "cpu"
    with pytest.raises(ValueError, match="needs a GPU, got none"):
        bench.assembly(model={"device": "cuda"})


def template_arguments(bench: Bench) -> None:
    """The tiny model's template is given one to read."""
    file = bench.folder / "model" / "chat_template.jinja"
    before = file.read_text()
    file.write_text(before + "{{ mood or '' }}")
    changes_rollouts("sampling.template_arguments", {"mood": "calm"}, bench)
    file.write_text(before)


def model_path(bench: Bench) -> None:
    other = tiny_qwen3(bench.folder / "another", seed=1)
    changes_rollouts("model.path", str(other), bench)


def critic_path(name: str, bench: Bench) -> None:
    """The critic begins with the weights of the folder, not with the policy's."""
    other = tiny_qwen3(bench.folder / "critic", seed=2)
    tables = []
    for critic in ({}, {"path": str(other)}):
        critic = {"warmup_steps": 0, **critic}
        changes = {"algorithm": {"name": name, "critic": critic}}
        with closing(bench.assembly(**changes)) as assembly:
            trunk = assembly.critic.trunk.module
            tables.append(trunk.get_input_embeddings().weight.detach().clone())
    assert (tables[0] - tables[1]).abs().max() > 1e-3


def follows_schedule(name: str, bench: Bench) -> None:
    """Over all four steps, where the policy's schedule is over those it learns in."""
    for follows, expected in ((False, [1.0, 1.0]), (True, [1.0, 0.75])):
        critic = {"warmup_steps": 1, "follows_schedule": follows}
        changes = {
            "algorithm": {"name": name, "critic": {**critic, "learning_rate": 1e-3}},
            "learner": {"schedule": "linear"},
        }
        with closing(bench.assembly(**changes)) as assembly:
            records = stepped(assembly, 2)
        rates = [record.critic.learning_rate / 1e-3 for record in records]
        assert rates == pytest.approx(expected)


def max_prompt_tokens(bench: Bench) -> None:
    """`say 10` and longer are nine ids, `say 9` and shorter are eight."""
    for limit, num_dropped in ((9, 0), (8, 14)):
        changes = merged(
            section("sampling.max_prompt_tokens", limit), section("task.held_out", None)
        )
        with closing(bench.assembly(**changes)) as assembly:
            assert len(assembly.dropped) == num_dropped


def threads(bench: Bench) -> None:
    for count in (2, 1):
        bench.assembly(threads=count).close()
        assert torch.get_num_threads() == count


def evaluated(bench: Bench, changes: Changes) -> EvalResult:
    with closing(bench.assembly(**changes)) as assembly:
        return evaluate(assembly)[0]


def changes_scores(key: str, value: object, what: str, bench: Bench) -> None:
    before = evaluated(bench, {})
    after = evaluated(bench, section(f"evaluation.{key}", value))
    assert getattr(before, what) == getattr(evaluated(bench, {}), what)
    assert getattr(before, what) != getattr(after, what)


def name(bench: Bench) -> None:
    paths = [bench.run(name, steps=1).path for name in ("first", "second")]
    assert [path.name for path in paths] == ["first", "second"]


def runs_folder(bench: Bench) -> None:
    elsewhere = bench.folder / "elsewhere"
    run = bench.run("moved", steps=1, runs_folder=str(elsewhere))
    assert run.path == elsewhere / "moved"


def num_steps(bench: Bench) -> None:
    for count in (1, 2):
        run = bench.run(f"steps-{count}", steps=count)
        assert [row["step"] for row in run.metrics()] == list(range(1, count + 1))


def trackers(bench: Bench) -> None:
    run = bench.run("tracked", steps=1, trackers=["tensorboard"])
    assert list((run.path / "tensorboard").iterdir())
    assert not (bench.run("untracked", steps=1).path / "tensorboard").exists()


def max_invalid_share(bench: Bench) -> None:
    """Some rollouts cannot be verified, for six steps."""

    def sometimes(text: str) -> float | None:
        return odd_share(text) if len(text) % 2 else None

    bench.run("tolerant", sometimes, steps=6, max_invalid_share=1.0)
    with pytest.raises(TooManyInvalid, match=r"max_invalid_share = 0\.01"):
        bench.run("strict", sometimes, steps=6, max_invalid_share=0.01)


def evaluation_every(bench: Bench) -> None:
    for every, expected in ((0, [0, 3]), (2, [0, 2, 3])):
        run = bench.run(f"looks-{every}", steps=3, evaluation={"every": every})
        assert [row["step"] for row in run.evaluations()] == expected


def checkpoint_steps(run: RunDirectory) -> list[int]:
    return sorted(int(path.name[-6:]) for path in run.checkpoints.glob("step-*"))


def checkpoint_every(bench: Bench) -> None:
    for every, expected in ((0, [3]), (1, [1, 2, 3])):
        options = {"every": every, "keep_last": 9}
        # A new best evaluation is saved where it falls: here only at the end.
        quiet = {"every": 0}
        run = bench.run(f"saves-{every}", steps=3, checkpoint=options, evaluation=quiet)
        assert checkpoint_steps(run) == expected


def keep_last(bench: Bench) -> None:
    for keep, expected in ((1, [3]), (2, [2, 3])):
        options = {"every": 1, "keep_last": keep}
        quiet = {"every": 0}
        run = bench.run(f"keeps-{keep}", steps=3, checkpoint=options, evaluation=quiet)
        assert checkpoint_steps(run) == expected


def rollouts_every(bench: Bench) -> None:
    for every, expected in ((0, []), (2, [1, 2])):
        options = {"rollouts_every": every}
        run = bench.run(f"shows-{every}", steps=3, checkpoint=options)
        assert run.rollout_steps() == expected


LINEAR = section("learner.schedule", "linear")
WEIGHTS: dict[str, tuple[object, Changes]] = {
    "learner.learning_rate": (1e-3, {}),
    "learner.schedule": ("linear", {}),
    "learner.warmup_steps": (3, {}),
    "learner.final_share": (0.5, LINEAR),
    "learner.beta1": (0.5, {}),
    "learner.beta2": (0.5, {}),
    "learner.epsilon": (1e-2, {}),
    "learner.weight_decay": (0.5, {}),
    "learner.max_gradient_norm": (1e-4, {}),
}
ROLLOUTS: dict[str, object] = {
    "seed": 1,
    "sampling.temperature": 0.3,
    "sampling.top_p": 0.3,
    "sampling.top_k": 2,
    "sampling.max_new_tokens": 3,
    "sampling.system": "be brief",
    "sampling.chat": "plain",
}
MEMORY: dict[str, tuple[object, type, str]] = {
    "learner.micro_batch_tokens": (40, Scorer, "scores"),
    "engine.max_batch_tokens": (60, TransformersEngine, "_sample"),
    "engine.max_batch_rows": (3, TransformersEngine, "_sample"),
}
SCORES: dict[str, tuple[object, str]] = {
    "samples": (3, "num_rollouts"),
    "max_problems": (2, "num_problems"),
    "temperature": (0.3, "valid"),
    "top_p": (0.3, "valid"),
    "top_k": (2, "valid"),
    "success_at": (0.4, "valid"),
}
PARTS = {
    "verifier.name": "accredit.tasks.configs import TaskVerifierConfig",
    "environment.name": "accredit.environments.configs import EnvironmentConfig",
    "engine.kind": "accredit.recipe.config import EngineConfig",
}
"""Key -> what somebody's own part there is derived from."""


def builds_another(key: str, base: str, bench: Bench) -> None:
    """Somebody's own part is built in the place of the usual one."""
    module = f"own_{key.partition('.')[0]}"
    (bench.folder / f"{module}.py").write_text(
        f"from {base} as Base\n\n"
        "class C(Base):\n"
        "    def build(self, *parts):\n"
        "        raise KeyError('it is built')\n"
    )
    with pytest.raises(RecipeError, match="it is built"):
        bench.assembly(**section(key, f"{module}:C"))


CASES: dict[str, Callable[[Bench], None]] = {
    **{k: partial(builds_another, k, base) for k, base in PARTS.items()},
    **{k: partial(changes_weights, k, *v) for k, v in WEIGHTS.items()},
    **{k: partial(changes_rollouts, k, v) for k, v in ROLLOUTS.items()},
    **{k: partial(changes_calls_only, k, *v) for k, v in MEMORY.items()},
    **{f"evaluation.{k}": partial(changes_scores, k, *v) for k, v in SCORES.items()},
    "name": name,
    "runs_folder": runs_folder,
    "steps": num_steps,
    "threads": threads,
    "trackers": trackers,
    "max_invalid_share": max_invalid_share,
    "model.path": model_path,
    **{
        f"algorithm.{name}.critic.path": partial(critic_path, name)
        for name in ("ppo", "sao", "pact")
    },
    **{
        f"algorithm.{name}.critic.follows_schedule": partial(follows_schedule, name)
        for name in ("ppo", "sao", "pact")
    },
    "model.device": device,
    "model.gradient_checkpointing": gradient_checkpointing,
    "sampling.max_prompt_tokens": max_prompt_tokens,
    "sampling.template_arguments": template_arguments,
    "learner.max_consecutive_skips": max_consecutive_skips,
    "evaluation.every": evaluation_every,
    "checkpoint.every": checkpoint_every,
    "checkpoint.keep_last": keep_last,
    "checkpoint.rollouts_every": rollouts_every,
}
