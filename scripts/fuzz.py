"""Feeds the library broken input and demands one line for each, never a traceback.

    python scripts/fuzz.py                      3,000 inputs of every kind
    python scripts/fuzz.py --num 300 --seed 9   others, fewer
    python scripts/fuzz.py --only 1234          one of them again, and what it said
    python scripts/fuzz.py --kinds recipe,data  of these kinds alone

Every input is a whole one with one mutation, both drawn from its seed. A mutation says
what must come of it: REFUSED (exit code 2 or 1 with one line), SAME (what the whole one
gives) or EITHER. Counts what came by kind, and names each input that hung, that raised,
that was told in another form, or that was accepted although it must be refused. Exits 1
where there is one.
"""

import argparse
import contextlib
import io
import json
import math
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REFUSED, EITHER, SAME = "refused", "either", "same"
DEADLINE_S = 30
LINE = 420
"""Characters of a line that tells a mistake, the path of the folder aside."""
ROOM_BYTES = 6 << 30
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 7, 10**30, 1.5, math.nan, math.inf, "", "x", "a[/b]",
    "\x1b[31m", "\u202eabc", "\ud800", "\0", "9" * 5000, "x" * 5000, [], {}, [1], ["x"],
    {"a": 1}, [[[[[]]]]], {"a": {"b": {"c": []}}},
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One broken input."""

    what: str
    """The mutation, in words."""
    expected: str
    call: Callable[[], object]
    """What is asked of the library; its result is compared where SAME is expected."""
    whole: Callable[[], object] | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of it."""

    verdict: str
    """`refused`, `failed` (exit code 1), `accepted`, or what is wrong."""
    told: str

    @property
    def wrong(self) -> bool:
        return self.verdict not in ("refused", "failed", "accepted")


class Hang(BaseException):
    """Raised by the alarm; no `except Exception` holds it."""


@dataclass(frozen=True)
class Base:
    """Whole inputs, made once."""

    folder: Path
    model: Path
    run: Path

    def fresh(self, source: Path) -> Path:
        """A copy to break."""
        target = self.folder / "broken"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target, symlinks=True)
        return target


# --- what is broken -----------------------------------------------------------------

RECIPE: dict[str, Any] = {
    "name": "fuzzed",
    "steps": 20,
    "seed": 3,
    "threads": 1,
    "model": {"path": "packaged", "gradient_checkpointing": False},
    "task": {"name": "jsonl", "path": "rows.jsonl", "verifier": "exact", "held_out": 2},
    "algorithm": {
        "name": "ppo",
        "group_size": 4,
        "prompts_per_step": 2,
        "critic": {"warmup_steps": 1},
    },
    "learner": {"learning_rate": 1e-4, "schedule": "cosine", "max_gradient_norm": 1.0},
    "evaluation": {"every": 2, "samples": 2},
    "sampling": {"temperature": 1.0, "system": "Be brief."},
}
NUMBERS = (
    "steps", "seed", "threads", "task.held_out", "algorithm.group_size",
    "algorithm.critic.warmup_steps", "learner.learning_rate",
    "learner.max_gradient_norm", "evaluation.samples", "sampling.temperature",
)  # fmt: skip
NO_NUMBERS: tuple[Any, ...] = (True, "3", " 3 ", "x", [], {}, [3], "1e-4", math.nan)


def recipes(draw: random.Random, base: Base) -> Case:
    """A recipe in a file."""
    from accredit.recipe.config import load_recipe

    choice = draw.choice(["value", "number", "unknown", "bytes", "layout", "kind"])
    content = json.loads(json.dumps(RECIPE))
    path = base.folder / "recipe.json"

    def call() -> object:
        return load_recipe(path).model_dump(mode="json")

    def whole() -> object:
        from accredit.recipe.config import recipe_from

        return recipe_from(RECIPE, "whole").model_dump(mode="json")

    if choice == "kind":
        return odd_file(draw, path, load_recipe)
    if choice in ("bytes", "layout"):
        path = base.folder / "recipe.toml"
        text = toml(content)
        if choice == "layout":
            path.write_text(relaid(draw, text))
            return Case("other layout", SAME, call, whole)
        path.write_bytes(mutated(draw, text.encode()))
        return Case("bytes of a TOML recipe", EITHER, call)
    if choice == "value":
        place = draw.choice(places(content))
        value = draw.choice(ODD)
        put(content, place, value)
        path.write_text(json.dumps(content))
        return Case(f"{'.'.join(place)} = {value!r:.40}", EITHER, call)
    if choice == "number":
        place = tuple(draw.choice(NUMBERS).split("."))
        value = draw.choice(NO_NUMBERS)
        put(content, place, value)
    else:
        place = draw.choice(places(content))
        value = draw.choice(["", "s", "_", "\u200b", "é", "x" * 400])
        section = content
        for part in place[:-1]:
            section = section[part]
        section[f"{place[-1]}{value or 'z'}"] = 3
    path.write_text(json.dumps(content))
    return Case(f"{'.'.join(place)} with {value!r:.40}", REFUSED, call)


def overrides(draw: random.Random, base: Base) -> Case:
    """Words of the command line."""
    from accredit.recipe.config import load_recipe

    path = base.folder / "recipe.json"
    path.write_text(json.dumps(RECIPE))
    number = f"--{draw.choice(NUMBERS)}"
    refused = [
        [number], [number, "x"], [number, "true"], [number, '" 3 "'], [f"{number}="],
        [number, "3\nseed = 4"], [number, "3 # x"], [number, "[" * 999],
        [number, "nan"], [f"{number}.deeper", "3"], [f"{number}x", "3"], ["x"], ["--"],
        ["--=3"], [f"--{'a.' * 500}b", "3"], ["--task", "walk"], ["--task.name", "wlk"],
        ["--sampling.system", "\udcff"], ["--name", "a/b"], ["--name", "x" * 300],
        ["--threads", "4096"], ["--task.messages_column=m", "--task.prompt_column=p"],
        [f"{number}=" + "9" * 5000 + "x"], ["--algorithm", '{name = "grpo", x = 1}'],
    ]  # fmt: skip
    chance = draw.random()
    if chance < 0.5:
        words, expected = draw.choice(refused), REFUSED
    elif chance < 0.6:
        words, expected = ["--seed=3", "--learner.learning_rate", "1e-4"], SAME
    else:
        words = [f"--{'.'.join(draw.choice(places(RECIPE)))}", str(draw.choice(ODD))]
        if chance < 0.8:
            texts = [mutated(draw, word.encode("utf-8", "replace")) for word in words]
            words = [os.fsdecode(text) for text in texts]
        expected = EITHER

    def call() -> object:
        return load_recipe(path, words)

    return Case(f"words {words!r:.60}", expected, call, lambda: load_recipe(path))


ROWS = [
    {"prompt": f"say {n}", "answer": str(n), "id": f"r{n}", "level": n}
    for n in range(12)
]


def data(draw: random.Random, base: Base) -> Case:
    """A file of problems."""
    from accredit.tasks.jsonl import load_jsonl

    suffix = draw.choice([".jsonl", ".json", ".csv"])
    path = base.folder / f"rows{suffix}"

    def call() -> object:
        return load_jsonl(path).problems

    choice = draw.choice(["row", "bytes", "layout", "kind", "value"])
    if choice == "kind":
        return odd_file(draw, path, load_jsonl)
    rows: list[Any] = json.loads(json.dumps(ROWS))
    if choice == "row" and suffix != ".csv":
        place = draw.randrange(len(rows))
        rows[place] = draw.choice(
            [3, None, "x", [], {}, {"prompt": ""}, {"prompt": 3}, {"prompt": [3]},
             {"prompt": [{"role": "x", "content": "y"}]}, {"prompt": None},
             {"prompt": "a", "id": "r1" if place != 1 else "r2"}, {"prompt": []},
             {"prompt": "a", "answer": [1]}, {"prompt": "a", "answer": True}]
        )  # fmt: skip
        path.write_text(written(rows, suffix))
        return Case(f"row {place} = {rows[place]!r:.40}", REFUSED, call)
    if choice == "layout" and suffix != ".csv":
        text = written(rows, suffix)
        spaced = ["\ufeff" + text.replace("\n", "\n\n"), text + "\n \n"]
        path.write_text(draw.choice(spaced))
        whole = base.folder / f"whole{suffix}"
        whole.write_text(text)
        return Case("other layout", SAME, call, lambda: load_jsonl(whole).problems)
    if choice == "value" and suffix != ".csv":
        rows[draw.randrange(12)][draw.choice(["prompt", "answer", "id", "level"])] = (
            draw.choice(ODD)
        )
        path.write_text(written(rows, suffix))
        return Case("an odd value", EITHER, call)
    path.write_bytes(mutated(draw, written(rows, suffix).encode()))
    return Case(f"bytes of a {suffix}", EITHER, call)


CONFIG_REFUSED: dict[str, tuple[Any, ...]] = {
    "use_cache": (None, 3, "x", []),
    "hidden_act": (3, None, "nope", []),
    "num_attention_heads": (0, -1, "x", None, [], 10**30),
    "num_hidden_layers": (0, -1, "x", None, 10**7, 10**30),
    "hidden_size": (0, -1, "x", None, 10**12, 13),
    "vocab_size": (0, -1, "x", None, 10**12, 5),
    "intermediate_size": (0, -1, "x", None, 10**12, 5),
    "max_position_embeddings": (0, -1, "x", []),
    "dtype": (3, "bfloat61", []),
    "layer_types": (3, ["full_attention"] * 99, ["x"]),
    "rope_parameters": (3, [], "x"),
    "quantization_config": ({"a": 1}, 3, "x"),
    "model_type": (3, None, "", "t5", "nope", []),
    "eos_token_id": ("x", 10**9, True, [[1]], 1.5),
}


def models(draw: random.Random, base: Base) -> Case:
    """A model directory."""
    from accredit.models.loading import load_model

    folder = base.fresh(base.model)

    def call() -> object:
        load_model(folder, device="cpu")
        return None

    jsons = sorted(
        path.name for path in folder.glob("*.json") if path.name != "README.json"
    )
    choice = draw.choice(["key", "odd", "json", "weights", "torn", "kind", "gone"])
    if choice == "key":
        key = draw.choice(sorted(CONFIG_REFUSED))
        value = draw.choice(CONFIG_REFUSED[key])
        edit(folder / "config.json", key, value)
        return Case(f"config {key} = {value!r:.40}", REFUSED, call)
    if choice == "odd":
        name = draw.choice(jsons)
        content = json.loads((folder / name).read_text())
        place = draw.choice(places(content)) if places(content) else ("a",)
        value = draw.choice(ODD)
        put(content, place, value)
        (folder / name).write_text(json.dumps(content))
        return Case(f"{name} {'.'.join(place)[:60]} = {value!r:.30}", EITHER, call)
    if choice == "json":
        name = draw.choice(
            ["config.json", "generation_config.json", "tokenizer_config.json"]
        )
        (folder / name).write_text(
            draw.choice(["", "null", "[]", "3", "{", "[" * 9999])
        )
        return Case(f"{name} of another kind", REFUSED, call)
    weights = folder / "model.safetensors"
    if choice == "weights":
        return broken_weights(draw, weights, call)
    if choice == "torn":
        content = weights.read_bytes()
        weights.write_bytes(content[: draw.randrange(len(content))])
        return Case("weights cut off", REFUSED, call)
    if choice == "kind":
        target = draw.choice([*jsons, "model.safetensors"])
        return odd_file(draw, folder / target, lambda _: call())
    name = draw.choice(["config.json", "tokenizer.json", "model.safetensors"])
    (folder / name).unlink()
    return Case(f"{name} is gone", REFUSED, call)


def broken_weights(draw: random.Random, path: Path, call: Callable[[], object]) -> Case:
    """One tensor that is no tensor of the model."""
    import torch
    from safetensors.torch import load_file, save_file

    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    name = draw.choice(sorted(tensors))
    changes: dict[str, Callable[[Any], Any]] = {
        "NaN": lambda t: t.fill_(float("nan")),
        "infinite": lambda t: t.fill_(float("-inf")),
        "int64": lambda t: t.to(torch.int64),
        "bool": lambda t: t.to(torch.bool),
        "complex": lambda t: t.to(torch.complex64),
        "flat": lambda t: t.reshape(1, -1).contiguous(),
        "shorter": lambda t: t[:-1].contiguous(),
        "gone": lambda t: None,
    }
    change = draw.choice(sorted(changes))
    changed = changes[change](tensors.pop(name))
    if changed is not None:
        tensors[name] = changed
    save_file(tensors, path, metadata={"format": "pt"})
    return Case(f"{name}: {change}", REFUSED, call)


def saved(draw: random.Random, base: Base) -> Case:
    """A checkpoint: broken bytes are never taken for whole ones."""
    from accredit.storage.checkpoint import checkpoints, latest_checkpoint

    folder = base.fresh(base.run)
    newest = checkpoints(folder / "checkpoints")[0]
    files = sorted(path for path in newest.rglob("*") if path.is_file())
    path = draw.choice(files)
    how = draw.choice(["flip", "cut", "gone", "empty", "pipe", "folder", "link"])
    content = path.read_bytes()
    path.unlink()
    if how == "flip":
        place = draw.randrange(max(1, len(content)))
        flipped = bytearray(content or b"\0")
        flipped[place % len(flipped)] ^= 1 << draw.randrange(8)
        path.write_bytes(bytes(flipped))
    elif how == "cut":
        path.write_bytes(content[: draw.randrange(max(1, len(content)))])
    elif how == "empty":
        path.write_bytes(b"" if content else b"\0")
    else:
        replaced(path, how)

    def call() -> object:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = latest_checkpoint(folder / "checkpoints")
        if found == newest:
            return "taken for whole"
        raise ValueError("the checkpoint is torn")

    return Case(f"{path.relative_to(newest)}: {how}", REFUSED, call)


RUN_FILES = ("recipe.json", "metrics.jsonl", "evals.jsonl", "environment.json")


def runs(draw: random.Random, base: Base) -> Case:
    """A run's folder, reported, calibrated or resumed."""
    folder = base.fresh(base.run)
    command = draw.choice([("report",), ("calibrate", "--json"), ("train", "--resume")])
    name = draw.choice([*RUN_FILES, "rollouts"])
    path = folder / name
    if name == "rollouts":
        path = draw.choice(sorted(path.iterdir()))
    content = path.read_bytes()
    how = draw.choice(["bytes", "odd", "pipe", "folder", "gone", "empty", "line"])
    if how == "bytes" or (how in ("odd", "line") and path.suffix == ".zst"):
        path.write_bytes(mutated(draw, content))
    elif how == "odd":
        lines = content.splitlines() if path.suffix == ".jsonl" else [content]
        place = draw.randrange(len(lines))
        row = json.loads(lines[place])
        put(row, draw.choice(places(row)), draw.choice(ODD))
        lines[place] = json.dumps(row).encode()
        path.write_bytes(b"\n".join(lines) + b"\n")
    elif how == "line":
        odd = [
            b"null",
            b"3",
            b"[]",
            b"{}",
            b'{"step": null}',
            b'{"step": "x"}',
            b"\xff",
        ]
        path.write_bytes(content + draw.choice(odd) + b"\n")
    elif how == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()
        replaced(path, how)
    words = [*command, str(folder)]
    return Case(f"{' '.join(command)}: {name} {how}", EITHER, lambda: command_of(words))


TABLE = "mean_reward,mean_value,share_f,reference_shown\n" + "".join(
    f"{n / 10},{(n + 1) / 12:.3f},{n % 2},{n % 2}\n" for n in range(10)
)


def tables(draw: random.Random, base: Base) -> Case:
    """A calibration file."""
    path = base.folder / "table.csv"
    words = ["calibrate", str(path), "--json"]
    choice = draw.choice(["cell", "bytes", "kind", "column", "layout"])
    if choice == "kind":
        return odd_file(draw, path, lambda _: command_of(words))
    if choice == "bytes":
        path.write_bytes(mutated(draw, TABLE.encode()))
        return Case("bytes of a table", EITHER, lambda: command_of(words))
    lines = [line.split(",") for line in TABLE.splitlines()]
    if choice == "layout":
        whole = base.folder / "whole.csv"
        whole.write_text(TABLE)
        path.write_text("\ufeff" + TABLE.replace("\n", "\r\n"))
        same = ["calibrate", str(whole), "--json"]
        return Case(
            "other line ends", SAME, lambda: command_of(words), lambda: command_of(same)
        )
    if choice == "column":
        lines[0][draw.randrange(4)] = draw.choice(
            ["", "x", "mean_rewards", "share_f\0"]
        )
    else:
        row, column = lines[draw.randrange(1, 11)], draw.randrange(4)
        row[column] = draw.choice(
            ["", "x", "nan", "inf", "1e999", "[", "\x1b", "--", "1 2"]
        )
    path.write_text("\n".join(map(",".join, lines)) + "\n")
    return Case(f"an odd {choice}", REFUSED, lambda: command_of(words))


KINDS: dict[str, tuple[int, Callable[[random.Random, Base], Case]]] = {
    "recipe": (28, recipes),
    "override": (17, overrides),
    "data": (22, data),
    "model": (13, models),
    "checkpoint": (8, saved),
    "run": (5, runs),
    "table": (7, tables),
}
"""Share in a hundred, and the maker."""


# --- how it is broken ---------------------------------------------------------------


def places(content: Any, above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Where keys lie, sections included."""
    found: list[tuple[str, ...]] = []
    for key, value in content.items() if isinstance(content, dict) else ():
        found += [(*above, key), *places(value, (*above, key))]
    return found[:400]


def put(content: Any, place: tuple[str, ...], value: Any) -> None:
    """Sets one key."""
    for part in place[:-1]:
        content = content[part]
    content[place[-1]] = value


def edit(path: Path, key: str, value: Any) -> None:
    """Sets one key of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))


def mutated(draw: random.Random, content: bytes) -> bytes:
    """A few bytes flipped, lost, doubled or put in."""
    found = bytearray(content or b"\0")
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(len(found) + 1)
        end = place + draw.randint(1, 20)
        how = draw.randrange(4)
        if how == 0 and place < len(found):
            found[place] ^= 1 << draw.randrange(8)
        elif how == 1:
            del found[place:end]
        elif how == 2:
            found[place:place] = found[place:end]
        else:
            found[place:place] = draw.choice(
                [b"\0", b"\xff", b"[", b'"', b"\n", b"=", b"\\", b"{", b"\xe2\x80\xae"]
            )
    return bytes(found)


def relaid(draw: random.Random, text: str) -> str:
    """The same TOML with other spaces, line ends and comments."""
    lines = text.splitlines()
    for place in range(len(lines)):
        if draw.random() < 0.3:
            lines[place] += draw.choice(["  ", "  # said", "\t"])
    end = draw.choice(["\n", "\r\n", "\n\n"])
    return end.join(lines) + end


def toml(content: dict[str, Any], above: str = "") -> str:
    """A recipe as TOML."""
    plain = {k: v for k, v in content.items() if not isinstance(v, dict)}
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in plain.items())
    for key, value in content.items():
        if isinstance(value, dict):
            text += f"[{above}{key}]\n" + toml(value, f"{above}{key}.")
    return text


def written(rows: list[Any], suffix: str) -> str:
    """Rows as a file of that kind."""
    if suffix == ".json":
        return json.dumps(rows)
    if suffix == ".jsonl":
        return "".join(json.dumps(row) + "\n" for row in rows)
    cells = [",".join(ROWS[0]), *(",".join(map(str, row.values())) for row in rows)]
    return "\n".join(cells) + "\n"


def replaced(path: Path, how: str) -> None:
    """Another kind of thing in place of a file; `gone` is none."""
    if how == "pipe":
        os.mkfifo(path)
    elif how == "folder":
        path.mkdir()
    elif how == "link":
        path.symlink_to("/dev/zero")


def odd_file(draw: random.Random, path: Path, call: Callable[[Path], object]) -> Case:
    """A pipe, a device, a folder or nothing where a file is asked for."""
    how = draw.choice(["pipe", "folder", "link", "gone"])
    optional = path.name in ("generation_config.json", "tokenizer_config.json")
    path.unlink(missing_ok=True)
    replaced(path, how)
    expected = EITHER if how in ("gone", "folder") and optional else REFUSED
    return Case(f"{path.name}: {how}", expected, lambda: cleared(path, call))


def cleared(path: Path, call: Callable[[Path], object]) -> object:
    """Calls, and takes the odd thing away again."""
    try:
        return call(path)
    finally:
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)


# --- what comes of it ---------------------------------------------------------------


def command_of(words: list[str]) -> object:
    """What the command prints; its exit code, where it is not 0, as an error."""
    from accredit.command.cli import main

    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            main(words)
    except SystemExit as end:
        if end.code:
            raise
    return printed.getvalue()


def outcome(case: Case, folder: Path) -> Outcome:
    """Runs one case under the alarm."""
    from accredit.command.cli import guarded

    told = io.StringIO()
    results: list[object] = []

    def asked() -> int:
        results.append(case.call())
        return 0

    signal.setitimer(signal.ITIMER_REAL, DEADLINE_S)
    try:
        with contextlib.redirect_stderr(told):
            try:
                code: Any = guarded(asked)
            except SystemExit as end:
                code = end.code
    except Hang:
        return Outcome("HANG", told.getvalue())
    except BaseException:
        return Outcome("TRACEBACK", traceback.format_exc())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return judged(case, code, told.getvalue().replace(str(folder), "."), results)


def judged(case: Case, code: Any, said: str, results: list[object]) -> Outcome:
    """Whether the exit code, the line and the result are what must come."""
    if code == 0:
        if case.expected == REFUSED:
            return Outcome("SILENT ACCEPTANCE", said)
        if case.expected == SAME and case.whole and case.whole() != results[0]:
            return Outcome("OTHER RESULT", said)
        return Outcome("accepted", said)
    if code not in (1, 2) or "Traceback" in said:
        return Outcome(f"EXIT CODE {code}", said)
    if not said.startswith("accredit: ") or said.count("\n") != 1 or len(said) > LINE:
        return Outcome("NOT ONE SHORT LINE", said)
    if case.expected == SAME:
        return Outcome("REFUSED WHAT IS WHOLE", said)
    return Outcome("refused" if code == 2 else "failed", said)


@contextlib.contextmanager
def based(needs_run: bool) -> Iterator[Base]:
    """A folder with a whole model and, where one is asked for, a whole run."""
    import accredit

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "model"
        shutil.copytree(Path(accredit.__file__).parent / "packaged", model)
        run = folder / "runs" / "whole"
        if needs_run:
            recipe = folder / "whole.toml"
            recipe.write_text(
                f"name = 'whole'\nruns_folder = '{folder}/runs'\nsteps = 2\n"
                "[task]\nname = 'walk'\nsplit = 'easy'\n[algorithm]\nname = 'ppo'\n"
                "prompts_per_step = 2\ngroup_size = 2\ncritic = {warmup_steps = 1}\n"
                "[evaluation]\nmax_problems = 2\nsamples = 2\n"
                "[checkpoint]\nevery = 1\nrollouts_every = 1\n"
            )
            with contextlib.redirect_stdout(io.StringIO()):
                command_of(["train", str(recipe), "--model.device", "cpu"])
        warm(model)
        yield Base(folder, model, run)


def warm(model: Path) -> None:
    """Imports what takes its time, before the alarm counts it."""
    from accredit.models.loading import load_model
    from accredit.reports.calibration import sources as calibration_sources
    from accredit.reports.calibration import tables as calibration_tables

    load_model(model, device="cpu")
    assert calibration_sources and calibration_tables


def case_of(seed: int, base: Base, kinds: list[str]) -> tuple[str, Case]:
    """The kind and the case that a seed stands for."""
    draw = random.Random(f"fuzz {seed}")
    kind = draw.choices(kinds, [KINDS[name][0] for name in kinds])[0]
    return kind, KINDS[kind][1](draw, base)


@contextlib.contextmanager
def alarmed() -> Iterator[None]:
    """An alarm raises `Hang` inside."""

    def rang(number: int, frame: object) -> None:
        raise Hang

    previous = signal.signal(signal.SIGALRM, rang)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, previous)


def fuzz(seeds: range, kinds: list[str], loud: bool = False) -> dict[str, Counter[str]]:
    """Counts of what came by kind; prints what is wrong."""

    counts: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
    with alarmed(), based(bool({"checkpoint", "run"} & set(kinds))) as base:
        for seed in seeds:
            kind, case = case_of(seed, base, kinds)
            found = outcome(case, base.folder)
            counts[kind][found.verdict] += 1
            if found.wrong or loud:
                print(f"seed {seed}  {kind}  {case.what!a}  {found.verdict}")
                print(f"    {found.told.strip()[-1500:]!a}")
    return counts


def main() -> int:
    """Exit code 1 where an input was dealt with wrongly."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--num", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    parser.add_argument("--kinds", default=",".join(KINDS))
    options = parser.parse_args()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM_BYTES, used + ROOM_BYTES))
    seeds = range(options.seed, options.seed + options.num)
    if options.only is not None:
        seeds = range(options.only, options.only + 1)
    counts = fuzz(seeds, options.kinds.split(","), loud=options.only is not None)
    wrong = 0
    for kind, found in counts.items():
        print(f"{kind:12}", *(f"{name} {n}" for name, n in sorted(found.items())))
        wrong += sum(n for name, n in found.items() if name.isupper())
    print(
        f"{sum(map(Counter.total, counts.values()))} inputs, {wrong} dealt with wrongly"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
