"""Which state of the repository an image is made of."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime

from verification.container_images.catalogue import REPOSITORY
from verification.container_images.commands import run


@dataclass(frozen=True)
class Revision:
    """A state of the repository, in the words of OCI's image labels."""

    version: str
    revision: str
    """The commit; with ``-dirty`` if files differ from it."""
    epoch: int
    """Seconds since 1970: when the commit was made, or ``SOURCE_DATE_EPOCH``."""

    @property
    def created(self) -> datetime:
        """The same time, in UTC."""
        return datetime.fromtimestamp(self.epoch, UTC)

    @property
    def arguments(self) -> dict[str, str]:
        """The build arguments that every Dockerfile writes into its labels."""
        return {
            "VERSION": self.version,
            "REVISION": self.revision,
            "CREATED": self.created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }


def current_revision() -> Revision:
    """Return the state of this repository.

    :raises ImageError: this is no git repository.
    """
    commit, seconds = run(["git", "log", "-1", "--format=%H %ct"], cwd=REPOSITORY).split()
    changed = run(["git", "status", "--porcelain"], cwd=REPOSITORY)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    return Revision(
        version=project["version"],
        revision=f"{commit}-dirty" if changed else commit,
        epoch=int(os.environ.get("SOURCE_DATE_EPOCH", seconds)),
    )
