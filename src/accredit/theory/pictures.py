"""A picture per theorem, as files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from accredit.reports.plots import save_png
from accredit.theory import pictures_of_credit, pictures_of_critics

PICTURES: dict[str, Callable[[int], Any]] = {
    "theory-1-uniqueness": pictures_of_credit.uniqueness,
    "theory-2-teachers": pictures_of_credit.teachers,
    "theory-3-baselines": pictures_of_credit.baselines,
    "theory-4-sparsity": pictures_of_credit.sparsity,
    "theory-5-critic-errors": pictures_of_critics.critic_error_bias,
    "theory-6-noise": pictures_of_critics.noise,
    "theory-7-value-targets": pictures_of_critics.value_targets,
    "theory-8-consequences": pictures_of_critics.consequences,
}
"""File name -> who draws it from a seed."""


def write_pictures(folder: Path, seed: int) -> list[Path]:
    """Draws all of them into a folder that exists."""
    written = []
    for name, draw in PICTURES.items():
        written.append(folder / f"{name}.png")
        save_png(draw(seed), written[-1])
    return written
