"""Four small steps of every algorithm, held to the bit.

`--write` stores what the runs of `CASES` produce in tests/golden.json: the SHA-256 of
the policy's weights, of the critic's, and every metric but times. `--check` runs them
again and names what differs. A change of shape must leave all of it as it is; a change
of behaviour writes the file anew and says why.

Floating-point sums depend on the processor and on the build of torch, so the file
names both, and `--check` on another machine says that it cannot tell.
"""

import argparse
import hashlib
import json
import platform
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FILE = ROOT / "tests" / "golden.json"
RECIPES = ROOT / "recipes"
STEPS = 4

SMALL = {"algorithm": {"prompts_per_step": 4, "group_size": 4}}
REPLAY = {"algorithm": {**SMALL["algorithm"], "num_refill": 1, "replay_capacity": 4}}
AC2 = {
    "algorithm": {
        **REPLAY["algorithm"],
        "critic_capacity": 32,
        "records_per_step": 8,
        "min_valid": 2,
        "gate": {"tau_global": 2.0, "tau_local": 2.0, "require_bank": False},
    }
}
"""A gate that opens at once, so that four steps stop rollouts and value them."""
AC2_EXACT = {
    "algorithm": {**AC2["algorithm"], "critic": {"kind": "exact"}},
}
"""Its recipe has keys of a critic that learns, which are left out."""
CRITIC = {
    "algorithm": {
        "prompts_per_step": 16,
        "group_size": 1,
        "critic": {"warmup_steps": 1, "num_minibatches": 2},
    }
}


def group(name: str) -> tuple[str, dict[str, Any]]:
    """The recipe of a group algorithm without one of its own."""
    return "walk_grpo.toml", {"algorithm": {"name": name, **SMALL["algorithm"]}}


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "walk_grpo": ("walk_grpo.toml", SMALL),
    "walk_pact": ("walk_pact.toml", CRITIC),
    "walk_ppo": ("walk_ppo.toml", CRITIC),
    "walk_sao": ("walk_sao.toml", CRITIC),
    "walk_vine": ("walk_vine.toml", {"algorithm": {"prompts_per_step": 4}}),
    "walk_opd": (
        "walk_opd.toml",
        {"algorithm": {"prompts_per_step": 16, "teacher": "packaged"}},
    ),
    "ac2_walk": ("ac2_walk.toml", AC2),
    "ac2_plus_walk": ("ac2_plus_walk.toml", AC2),
    "ac2_fineproofs": ("paper/ac2_fineproofs.toml", AC2),
    "grpo_fineproofs": ("paper/grpo_fineproofs.toml", SMALL),
    "prefix_grpo_fineproofs": ("paper/prefix_grpo_fineproofs.toml", REPLAY),
    "dapo": group("dapo"),
    "gspo": group("gspo"),
    "cispo": group("cispo"),
    "reinforce_pp": group("reinforce_pp"),
    "dr_grpo": group("dr_grpo"),
    "rloo": group("rloo"),
    "ac2_value_head": (
        "ac2_walk.toml",
        {"algorithm": {**AC2["algorithm"], "critic": {"kind": "value_head"}}},
    ),
    "ac2_exact": ("ac2_walk.toml", AC2_EXACT),
}
"""By name: a recipe, and what makes it small."""


def merged(recipe: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`recipe` with the changes' keys in the place of its own, section by section.

    A section that names another kind replaces the recipe's: their keys differ.
    """
    result = dict(recipe)
    for key, value in changes.items():
        old = result.get(key)
        kinds = [
            part.get("name", part.get("kind"))
            for part in (old, value)
            if isinstance(part, dict)
        ]
        other_kind = len(kinds) == 2 and kinds[1] not in (None, kinds[0])
        nested = isinstance(old, dict) and isinstance(value, dict) and not other_kind
        result[key] = merged(old, value) if nested else value
    return result


def content_of(name: str, folder: Path) -> dict[str, Any]:
    """The recipe of a case: the packaged model on `walk`, whatever its data were."""
    file, changes = CASES[name]
    recipe = tomllib.loads((RECIPES / file).read_text("utf-8"))
    for section in ("model", "task", "sampling", "trackers"):
        recipe.pop(section, None)
    if file.startswith("paper/"):
        for key in ("chunk_length", "cut_grid"):
            recipe["algorithm"].pop(key, None)
        critic = recipe["algorithm"].get("critic", {})
        critic.pop("both_prompts", None)
        critic |= {"template": "compact", "reference": "none"} if critic else {}
    recipe |= {
        "name": name,
        "runs_folder": str(folder),
        "steps": STEPS,
        "threads": 1,
        "model": {"path": "packaged", "device": "cpu"},
        "task": {"name": "walk", "split": "easy"},
        "evaluation": {"every": 0, "samples": 2, "max_problems": 4},
        "checkpoint": {"every": 0, "rollouts_every": 0},
    }
    recipe = merged(recipe, changes)
    if changes is AC2_EXACT:
        for key in ("critic_capacity", "records_per_step", "min_valid"):
            del recipe["algorithm"][key]
    return recipe


def sha256(paths: Sequence[Path]) -> str:
    """Of the files' contents, one after another."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def produced(name: str) -> dict[str, Any]:
    """What a case leaves behind: two checksums, and its metrics but times."""
    from accredit.recipe.config import recipe_from
    from accredit.reports.metrics.step import is_timing
    from accredit.runs.session import start_training
    from accredit.storage.checkpoint import latest_checkpoint

    with tempfile.TemporaryDirectory() as folder, quiet():
        recipe = recipe_from(content_of(name, Path(folder)), name)
        run, finished = start_training(recipe)
        assert finished, f"{name} was stopped"
        newest = latest_checkpoint(run.checkpoints)
        assert newest is not None, f"{name} left no checkpoint"
        rows = run.metrics()
        keys = sorted({key for row in rows for key in row if not is_timing(key)})
        return {
            "weights": sha256(sorted((newest / "model").glob("*.safetensors"))),
            "critic": sha256(sorted((newest / "critic").rglob("*.safetensors"))),
            "evaluations": [row.get("eval/mean") for row in run.evaluations()],
            "metrics": {key: [row.get(key) for row in rows] for key in keys},
        }


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing of the runs on the screen."""
    with redirect_stdout(StringIO()):
        yield


def differences(stored: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """One line for each thing that is not as it was."""
    lines = [
        f"{part}: {stored[part]} is now {now[part]}"
        for part in ("weights", "critic", "evaluations")
        if stored[part] != now[part]
    ]
    old, new = stored["metrics"], now["metrics"]
    lines += [f"{key} is gone" for key in sorted(old.keys() - new.keys())]
    lines += [f"{key} is new" for key in sorted(new.keys() - old.keys())]
    return lines + [
        f"{key}: {old[key]} is now {new[key]}"
        for key in sorted(old.keys() & new.keys())
        if old[key] != new[key]
    ]


def machine() -> str:
    """What the last bits depend on: the processor's name and torch's build."""
    import torch

    processor = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [line for line in info.read_text().splitlines() if "model name" in line]
        processor = names[0].partition(":")[2].strip() if names else processor
    return f"{processor}, torch {torch.__version__}"


def written(names: Sequence[str]) -> dict[str, Any]:
    """The file's content with those cases run anew."""
    stored = json.loads(FILE.read_text("utf-8")) if FILE.is_file() else {"cases": {}}
    cases = stored["cases"] if stored.get("machine") == machine() else {}
    fresh = {name: produced(name) for name in names}
    return {"machine": machine(), "cases": {**cases, **fresh}}


def main() -> int:
    """Writes or checks the cases named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true", help="store results")
    mode.add_argument("--check", action="store_true", help="compare results")
    parser.add_argument("cases", nargs="*", help=f"some of: {', '.join(CASES)}")
    options = parser.parse_args()
    unknown = [name for name in options.cases if name not in CASES]
    if unknown:
        parser.error(f"cases must be among {', '.join(CASES)}, got {unknown[0]}")
    names = options.cases or list(CASES)
    if options.write:
        FILE.write_text(json.dumps(written(names), indent=1) + "\n", "utf-8")
        print(f"{len(names)} cases are in {FILE.relative_to(ROOT)}")
        return 0
    stored = json.loads(FILE.read_text("utf-8"))
    if stored["machine"] != machine():
        print(f"cannot tell: stored on {stored['machine']}, this is {machine()}")
        return 0
    changed = 0
    for name in names:
        lines = differences(stored["cases"][name], produced(name))
        changed += bool(lines)
        print(f"{name}: " + ("as it was" if not lines else "differs"))
        print("".join(f"  {line}\n" for line in lines), end="", flush=True)
    return int(changed > 0)


if __name__ == "__main__":
    sys.exit(main())
