"""The table of mutants edits what is there, and names tests that exist."""

from pathlib import Path

SCRIPTS = Path(__file__).parents[1] / "scripts"


def test_every_mutant_is_an_edit_of_what_is_there(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    from mutate import PACKAGE, TABLE, table

    mutants = list(table(TABLE.read_text("utf-8")))
    assert len(mutants) > 700
    for mutant in mutants:
        source = (PACKAGE / mutant.module).read_text("utf-8")
        assert mutant.mutated() != source
        compile(mutant.mutated(), mutant.module, "exec")
    assert not [
        p for m in mutants for p in m.tests if not (SCRIPTS.parent / p).exists()
    ]
