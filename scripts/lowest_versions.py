"""Prints the lowest version that pyproject.toml allows of each dependency, as pins.

    python scripts/lowest_versions.py > build/lowest/lowest.txt

`make test-lowest` installs them and runs some of the tests, so that a lower bound is a
version that worked. Extras that those tests need are pinned alike; what only checks or
builds the code is left to pip.
"""

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("tasks", "trackers", "lora")
TOOLS = ("pytest", "pytest-xdist", "pytest-timeout", "hypothesis", "beartype")
BUILDER = ("hatchling", "editables")


def main() -> None:
    """Print the pins in pip's own format."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"], *(line for e in EXTRAS for line in extras[e])]
    for line in asked:
        print(lowest(Requirement(line)))
    names = {Requirement(line).name: line for line in extras["dev"]}
    for name in (*TOOLS, *BUILDER):
        print(names[name])


def lowest(requirement: Requirement) -> str:
    """The requirement with its lower bound as its only version."""
    bounds = [s.version for s in requirement.specifier if s.operator in (">=", "==")]
    if len(bounds) != 1:
        raise ValueError(
            f"a dependency must have one lower bound, got {requirement}; write it as "
            "name>=version in pyproject.toml"
        )
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}=={bounds[0]}"


if __name__ == "__main__":
    main()
