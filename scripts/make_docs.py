"""Writes docs/recipes.md and docs/algorithms.md from the code that they speak about.

    python scripts/make_docs.py

Keys, types, defaults and ranges come from the models of `accredit.recipe.config`,
boxes and deviations from the heads of the algorithms' files. `tests/test_docs.py`
holds the pages and the code together.
"""

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from accredit.algorithms.replay_configs import AC2Config, GateConfig
from accredit.command.keys import keys_of, sections_of, shown
from accredit.critics.configs import ValueHeadConfig
from accredit.recipe.config import RunConfig, choices_of, union_members

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "accredit"
DOCS = ROOT / "docs"

RECIPES_OPENING = """\
# Recipes

*Written by `scripts/make_docs.py` from the code; edit that, not this page.*

A recipe is a TOML file that says everything about a run. Every key has a default but
for those marked *required*. The run writes its recipe, with every default filled in, to
`recipe.json` in its folder, and `accredit train` and `accredit eval --recipe` take that
file as well. `accredit recipes` lists the packaged ones; [README](../README.md) has a
first one of your own.

## Own columns and an own reward

Problems in `problems.jsonl`, one object a line:

```json
{"question": "What is 17 * 3?", "gold": "51", "level": 1}
{"question": "What is 6 * 7?", "gold": "42", "level": 1}
```

A reward in `my_rewards.py`, called in a process of its own that is killed if it
hangs. It returns a number, or None where it cannot tell; None is counted and is not a
zero:

```python
def near_the_end(completion, problem):
    return float(problem.answer in completion[-20:])
```

```toml
name = "mine"
steps = 200

[model]
path = "models/qwen3-0.6b"          # a Hugging Face directory

[task]
name = "jsonl"
path = "problems.jsonl"
prompt_column = "question"
answer_column = "gold"
verifier = "function"
reward_function = "my_rewards:near_the_end"
held_out = 100                      # the last 100 rows are for evaluation

[algorithm]
name = "rloo"
prompts_per_step = 16
group_size = 8

[learner]
learning_rate = 1e-6
warmup_steps = 10
```

## A critic

Algorithms with a critic (`ppo`, `sao`, `pact`) have a section for it:

```toml
[algorithm]
name = "pact"
prompts_per_step = 128

[algorithm.critic]
path = "runs/pretrained"            # starts with the critic of that run; by default
                                    # with the policy's model and a head that says
initial_value = 0.06                # this of everything
trunk = "lora"                      # adapters on the policy, in place of a model
learning_rate = 1e-4
warmup_steps = 0                    # it is trained already
template = "{prompt} Hint: {answer}"
```

`initial_value` is a fresh head's: with a saved critic as `path` its own head stands. A
critic is pretrained by a run with `warmup_steps` equal to `steps`, in which it learns
alone.

## Overrides

Every key can be given on the command line by its dotted name, which wins over the
file:

```bash
accredit train mine.toml --learner.learning_rate 5e-7 --algorithm.group_size=16
accredit train mine.toml --name mine-2 --trackers '["tensorboard"]'
accredit eval models/qwen3-0.6b --task walk --task.split easy --evaluation.samples 16
```

A value is read as TOML (`3`, `1e-6`, `true`, `[1, 2]`, `"7"`) and, where it is not
TOML, as text. The word `none` takes a value away from a key that may be none, as in
`--learner.max_gradient_norm none`, or `max_gradient_norm = "none"` in a file. A
resumed run may only change `steps`, `threads`, `trackers`, `engine` and `checkpoint`.

## Mistakes

A mistake ends the command with code 2 and one line: an unknown key names the nearest
known one, a value says what must hold. Keys and values are checked before a model is
loaded, files (rows, columns, a model directory, a reward function) before anything is
sampled.

## Keys
"""

ALGORITHMS_OPENING = """\
# Algorithms

*Written by `scripts/make_docs.py` from the heads of the files in
`src/accredit/algorithms/`; edit those, not this page.*

All algorithms share one step (roll out, verify, value, credit, update) and differ in
the parts below. R is the verified reward, A the advantage, rho the ratio of the current
policy to the one at the start of the update, and J what is minimised.

What holds for all of them:

- A rollout that could not be verified has no reward, which is not a reward of 0: it
  neither votes in a baseline nor learns, and it is counted.
- Rollouts of one step make one batch, which `num_minibatches` and `num_epochs` divide
  into optimizer steps. With one of each, the ratio is exactly 1 and nothing is
  clipped.
- Where nothing can be learned from a step, its update is skipped and counted.
- Log-probs of the engine, of the trainer before the update, and of the current policy
  are three tensors. `engine_correction` weighs the gap between the first two.
"""


def pages() -> dict[Path, str]:
    """The text of every page that this script writes."""
    return {
        DOCS / "recipes.md": recipes_page(),
        DOCS / "algorithms.md": algorithms_page(),
    }


def recipes_page() -> str:
    """Every key of a recipe, section by section."""
    top = {k: f for k, f in RunConfig.model_fields.items() if f.description}
    parts = [RECIPES_OPENING, "### Top level\n", key_table(RunConfig, list(top))]
    for name, field in RunConfig.model_fields.items():
        inner: Any = field.annotation
        if field.discriminator:
            parts += choices(name, field)
        elif name not in top:
            parts += [f"### `[{name}]`\n", sentence(inner), key_table(inner)]
    return "\n".join(parts)


def choices(name: str, field: Any) -> Iterator[str]:
    """A section whose key `name` decides which keys it has."""
    members = union_members(field)
    default = field.default.name
    listed = ", ".join(f"`{choice_name(member)}`" for member in members)
    yield f"### `[{name}]`\n"
    yield f"`name` decides the other keys: {listed}; by default `{default}`.\n"
    for member in members:
        yield f'#### `[{name}]` with `name = "{choice_name(member)}"`\n'
        yield sentence(member)
        yield key_table(member)
    if name == "algorithm":
        yield f"#### `[{name}.critic]`\n"
        yield sentence(ValueHeadConfig)
        yield "Of `ppo`, `sao` and `pact`, whose own defaults stand in their tables.\n"
        yield key_table(ValueHeadConfig)
        yield from sections_of_ac2()


def sections_of_ac2() -> Iterator[str]:
    """Gate and critic of `ac2` and `ac2_plus`."""
    yield "#### `[algorithm.gate]`\n"
    yield sentence(GateConfig)
    yield "Of `ac2` and `ac2_plus`, whose own defaults stand in their tables.\n"
    yield key_table(GateConfig)
    members = choices_of(AC2Config.model_fields["critic"])
    listed = ", ".join(f"`{kind}`" for kind in members)
    yield "#### `[algorithm.critic]` of `ac2` and `ac2_plus`\n"
    yield f"`kind` decides the other keys: {listed}; by default `prompted`.\n"
    for kind, member in members.items():
        yield f'##### `[algorithm.critic]` with `kind = "{kind}"`\n'
        yield sentence(member)
        if issubclass(member, ValueHeadConfig):
            yield "Keys as of `ppo`, `sao` and `pact`, less those that it refuses.\n"
            own = member.model_fields.items()
            yield key_table(
                member, [key for key, field in own if is_changed(key, field)]
            )
        elif len(member.model_fields) > 1:
            yield key_table(member)


def is_changed(key: str, field: Any) -> bool:
    """Whether a key of a critic has another default than in its base."""
    base = ValueHeadConfig.model_fields.get(key)
    return base is not None and base.default != field.default


def algorithms_page() -> str:
    """Box, deviations and keys of every algorithm."""
    members = union_members(RunConfig.model_fields["algorithm"])
    parts = [ALGORITHMS_OPENING]
    for member in members:
        name = choice_name(member)
        (file,) = (SOURCE / "algorithms").rglob(f"{name}.py")
        title, *paragraphs = head(file)
        parts += [f"## `{name}`\n", f"**{title}**\n", *map(as_markdown, paragraphs)]
        parts += [key_table(member)]
    return "\n".join(parts)


def head(path: Path) -> list[str]:
    """Paragraphs of a file's docstring."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    return re.split(r"\n\s*\n", docstring or "")


def as_markdown(paragraph: str) -> str:
    """A box as a block of code, anything else as text, papers linked."""
    if paragraph.startswith("    "):
        return f"```text\n{textwrap.dedent(paragraph)}\n```\n"
    linked = re.sub(
        r"arXiv:(\d{4}\.\d{5})", r"[arXiv:\1](https://arxiv.org/abs/\1)", paragraph
    )
    return re.sub(r":\n- ", ":\n\n- ", linked) + "\n"


def key_table(model: type[BaseModel], keys: list[str] | None = None) -> str:
    """Keys of a section as a table."""
    lines = ["| key | type | default | range | meaning |", "|---|---|---|---|---|"]
    plain = {key.name: key for key in keys_of(model)}
    sections = {name for name, _, _ in sections_of(model)}
    for name in keys or [n for n in model.model_fields if n in plain or n in sections]:
        if name in sections:
            lines += section_rows(model, name)
            continue
        key = plain[name]
        default = "*required*" if key.default is None else f"`{key.default}`"
        meaning = key.meaning.replace("|", r"\|")
        lines.append(f"| `{name}` | {key.type} | {default} | {key.range} | {meaning} |")
    return "\n".join(lines) + "\n"


def section_rows(model: type[BaseModel], name: str) -> Iterator[str]:
    """A section inside, and where its defaults are this algorithm's own."""
    field = model.model_fields[name]
    asked = name == "critic" and field.discriminator
    link = (
        f"[section](recipes.md#algorithm{name}{'-of-ac2-and-ac2_plus' * bool(asked)})"
    )
    yield f"| `{name}` | {link} | | | {field.description} |"
    own: Any = field.annotation
    chosen = field.default if name == "gate" or asked else None
    base = type(chosen) if chosen is not None else ValueHeadConfig
    for key, found in base.model_fields.items():
        default = (
            own.model_fields[key].default if chosen is None else getattr(chosen, key)
        )
        if default != found.default:
            yield f"| `{name}.{key}` | | `{shown(default)}` | | as there |"


def sentence(model: type[BaseModel]) -> str:
    """The first paragraph of a class's docstring."""
    return " ".join((model.__doc__ or "").split("\n\n")[0].split()) + "\n"


def choice_name(member: type[BaseModel]) -> str:
    """What a recipe calls a choice."""
    return member.model_fields["name"].default


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")
        print(page.relative_to(ROOT))
