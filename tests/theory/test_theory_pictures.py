"""Pictures of the theory are written, and are those that the docs show."""

import re
from pathlib import Path

import pytest

from accredit.reports.plots import save_png
from accredit.theory.pictures import PICTURES, write_pictures
from accredit.theory.pictures_of_credit import example_tree, free_directions
from commanding import DONE, called

pytestmark = pytest.mark.whole_run

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_shows_every_picture_and_no_other():
    page = (DOCS / "theory.md").read_text("utf-8")
    shown = re.findall(r"!\[.+?\]\(images/(.+?)\.png\)", page)
    assert shown == list(PICTURES)
    for name in PICTURES:
        assert (DOCS / "images" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["theory-1-uniqueness", "theory-4-sparsity"])
def test_the_seed_draws_the_picture_of_the_page(name, tmp_path):
    save_png(PICTURES[name](0), tmp_path / "again.png")
    size = len((DOCS / "images" / f"{name}.png").read_bytes())
    assert 0.8 < len((tmp_path / "again.png").read_bytes()) / size < 1.25


def test_they_are_written_into_a_new_folder(tmp_path, monkeypatch, capsys):
    drawn = {name: PICTURES[name] for name in ("theory-6-noise", "theory-4-sparsity")}
    monkeypatch.setattr("accredit.theory.pictures.PICTURES", drawn)
    monkeypatch.setattr("accredit.theory.lab.IDENTITIES", ())
    monkeypatch.setattr("accredit.theory.lab.ONCE", ())
    folder = tmp_path / "a" / "b"
    code, _, _ = called(capsys, "lab", "--json", "--plots", folder)
    assert code == DONE
    assert {path.name for path in folder.iterdir()} == {f"{n}.png" for n in drawn}
    assert min(path.stat().st_size for path in folder.iterdir()) > 10_000
    assert write_pictures(folder, 3)[0].stem in drawn


def test_printed_credits_are_differences_of_printed_values():
    """0.53 to 0.75 is +0.22, whatever the digits that are not shown."""
    shown = [
        text.get_text() for text in PICTURES["theory-1-uniqueness"](0).axes[0].texts
    ]
    edges, values = shown[:14], [float(text) for text in shown[14:]]
    credits = [float(text.replace("−", "-")) for text in edges]
    parents = [(node - 1) // 2 for node in range(1, 15)]
    for node, (parent, credit) in enumerate(
        zip(parents, credits, strict=True), start=1
    ):
        assert credit == pytest.approx(values[node] - values[parent])
    assert credits[:2] == [0.22, -0.21]


@pytest.mark.slow
@pytest.mark.parametrize("name", PICTURES)
def test_another_seed_draws_as_well(name):
    figure = PICTURES[name](1)
    assert figure.axes
    assert all(axes.has_data() for axes in figure.axes)


def test_the_axioms_leave_as_much_as_the_picture_says():
    # 15 nodes, 8 leaves, 7 inner ones; 24 tokens, 15 equations of which 14 count.
    assert free_directions(example_tree()) == [0, 8, 7, 24 - 14]
