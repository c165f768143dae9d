"""A small real run for tests: random model, own file, own reward function."""

import json
from pathlib import Path

from accredit.recipe.config import RunConfig, recipe_from
from tiny_models import tiny_qwen3

REWARD = '''
def share_of_vowels(completion, problem):
    """Reward between 0 and 1 that a random policy can climb."""
    if not completion:
        return 0.0
    return sum(c in "aeiou" for c in completion) / len(completion)
'''


def written_files(folder: Path, num_rows: int = 24) -> Path:
    """A model directory, a data file and a reward module in `folder`."""
    tiny_qwen3(folder / "model")
    rows = [{"prompt": f"say {n}", "answer": str(n)} for n in range(num_rows)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "rows.jsonl").write_text(lines)
    (folder / "letters.py").write_text(REWARD)
    return folder


def small_recipe(folder: Path, **changes: object) -> dict:
    """A recipe over the files of `written_files`; sections merge, values replace."""
    recipe: dict = {
        "name": "small",
        "runs_folder": str(folder / "runs"),
        "steps": 4,
        "model": {"path": str(folder / "model"), "device": "cpu"},
        "task": {
            "name": "jsonl",
            "path": str(folder / "rows.jsonl"),
            "verifier": "function",
            "reward_function": "letters:share_of_vowels",
            "held_out": 4,
            "verifier_workers": 1,
        },
        "algorithm": {"name": "grpo", "prompts_per_step": 3, "group_size": 4},
        "sampling": {"max_new_tokens": 10},
        "learner": {"learning_rate": 3e-3},
        "evaluation": {"every": 2, "samples": 2},
        "checkpoint": {"every": 2, "rollouts_every": 2},
    }
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(recipe.get(key), dict):
            recipe[key] = {**recipe[key], **value}
        else:
            recipe[key] = value
    return recipe


def small_config(folder: Path, **changes: object) -> RunConfig:
    """The same, validated."""
    return recipe_from(small_recipe(folder, **changes), "test")
