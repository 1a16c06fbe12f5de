"""What a Dockerfile says, as far as the project's own ones go."""

from __future__ import annotations

import re
from pathlib import Path


def default_argument(dockerfile: Path, name: str) -> str:
    """Return the value that an ARG has if nobody gives one.

    :raises ValueError: the file has no such ARG with a value.
    """
    found = re.search(rf"^ARG {name}=(\S+)$", dockerfile.read_text(), re.MULTILINE)
    if found is None:
        raise ValueError(f"{dockerfile}: no ARG {name} with a value.")
    return found[1]


def copied(dockerfile: Path) -> list[str]:
    """Return the paths of the repository that the file copies into its stages, in order."""
    return re.findall(r"^COPY (?!--from)(\S+) \S+$", dockerfile.read_text(), re.MULTILINE)
