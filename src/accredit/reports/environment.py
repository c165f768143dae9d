"""What a run ran on: versions, hardware and the commit of the code.

Reads no environment variable, no host name and no user name: a run directory is shared.
"""

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("accredit", "torch", "transformers", "tokenizers", "safetensors", "numpy")


def environment() -> dict[str, Any]:
    """The content of `environment.json`."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "num_cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "accelerators": _accelerators(),
        "git": _git(Path(__file__).parent),
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _accelerators() -> list[str]:
    """Names of the devices that an already loaded torch sees."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]


def _git(folder: Path) -> dict[str, Any] | None:
    """Commit of the checkout that tracks this package; None for an installed one."""
    tracked = _git_output(folder, "ls-files", "--error-unmatch", Path(__file__).name)
    commit = _git_output(folder, "rev-parse", "HEAD")
    if tracked is None or commit is None:
        return None
    changes = _git_output(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "modified": bool(changes)}


def _git_output(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
