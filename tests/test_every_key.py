"""A key that changes nothing is a defect (case B059): each one is shown to matter.

`leaves` reads the keys from the models, so that a new key without a case fails here.
"""

import os
from collections.abc import Callable, Iterator

import pytest
import torch
from pydantic import BaseModel

import key_cases_algorithms
import key_cases_replay
import key_cases_runs
import key_cases_tasks
from accredit.recipe.config import RunConfig, union_members
from key_cases_runs import Bench
from runs import written_files

pytestmark = pytest.mark.whole_run

CASES: dict[str, Callable[[Bench], None]] = {
    **key_cases_algorithms.CASES,
    **key_cases_replay.CASES,
    **key_cases_tasks.CASES,
    **key_cases_runs.CASES,
}


Leaf = tuple[str, type[BaseModel]]
"""A key's dotted name, and the class that declares it."""


def leaves() -> Iterator[Leaf]:
    """All keys, those of a choice under the name of the choice."""
    yield from section_leaves(RunConfig)


def section_leaves(section: type[BaseModel]) -> Iterator[Leaf]:
    """Keys of a section; those of a section inside it behind its name and a dot.

    Of a choice between sections, what chooses, and each one's keys behind its name.
    """
    for key, field in section.model_fields.items():
        owner = next(
            c for c in section.__mro__ if key in vars(c).get("__annotations__", ())
        )
        inner = field.annotation
        if field.discriminator:
            tag = str(field.discriminator)
            yield f"{key}.{tag}", owner
            for member in union_members(field):
                name = member.model_fields[tag].default
                for leaf, declaring in section_leaves(member):
                    if leaf != tag:
                        yield f"{key}.{name}.{leaf}", declaring
        elif isinstance(inner, type) and issubclass(inner, BaseModel):
            inside = section_leaves(inner)
            yield from ((f"{key}.{leaf}", declaring) for leaf, declaring in inside)
        else:
            yield key, owner


def declared() -> list[str]:
    """One name of each key and class that declares it: the first that has it."""
    names: dict[tuple[type[BaseModel], str], str] = {}
    for name, owner in leaves():
        names.setdefault((owner, name.rpartition(".")[2]), name)
    return sorted(names.values())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return written_files(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def bench(folder, monkeypatch):
    monkeypatch.chdir(folder)
    num_threads = torch.get_num_threads()
    yield Bench(folder, monkeypatch)
    torch.set_num_threads(num_threads)


def test_every_key_has_a_case_and_every_case_a_key():
    assert sorted(name for name, _ in leaves()) == sorted(CASES)


@pytest.mark.parametrize("key", declared())
def test_it_matters(key, bench):
    assert os.getcwd() == str(bench.folder)
    CASES[key](bench)
