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

CASES: dict[str, Callable[[Bench], None]] = {
    **key_cases_algorithms.CASES,
    **key_cases_replay.CASES,
    **key_cases_tasks.CASES,
    **key_cases_runs.CASES,
}


def leaves() -> Iterator[str]:
    """Dotted names of all keys, those of a choice under the name of the choice."""
    yield from section_leaves(RunConfig)


def section_leaves(section: type[BaseModel]) -> Iterator[str]:
    """Keys of a section; those of a section inside it behind its name and a dot.

    Of a choice between sections, what chooses, and each one's keys behind its name.
    """
    for key, field in section.model_fields.items():
        inner = field.annotation
        if field.discriminator:
            tag = str(field.discriminator)
            yield f"{key}.{tag}"
            for member in union_members(field):
                name = member.model_fields[tag].default
                for leaf in section_leaves(member):
                    if leaf != tag:
                        yield f"{key}.{name}.{leaf}"
        elif isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from (f"{key}.{leaf}" for leaf in section_leaves(inner))
        else:
            yield key


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
    assert sorted(leaves()) == sorted(CASES)


@pytest.mark.parametrize("key", sorted(CASES))
def test_it_matters(key, bench):
    assert os.getcwd() == str(bench.folder)
    CASES[key](bench)
