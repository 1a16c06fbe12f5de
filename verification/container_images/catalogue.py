"""The images there are, what is expected of each, and what a Dockerfile says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
DOCKER = REPOSITORY / "docker"


@dataclass(frozen=True)
class Image:
    """One image of docker/."""

    name: str
    dockerfile: str
    """Name in docker/."""
    lock: str
    """Name in docker/ of the locked requirements that the image has, all of them and no others."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Build arguments."""
    offline_target: str | None = None
    """Stage to build where no registry of images can be reached; the whole file if None."""
    root_because: str | None = None
    """Why its processes are root; None if they are not."""

    @property
    def path(self) -> Path:
        """The Dockerfile."""
        return DOCKER / self.dockerfile

    @property
    def lock_path(self) -> Path:
        """The locked requirements."""
        return DOCKER / self.lock


TRAINER = Image("bert-trainer", "trainer.Dockerfile", "requirements-training.txt")
TPU_TRAINER = Image(
    "bert-trainer-tpu",
    "trainer.Dockerfile",
    "requirements-tpu.txt",
    arguments={"REQUIREMENTS": "requirements-tpu.txt"},
)
DATA = Image(
    "bert-data",
    "beam.Dockerfile",
    "requirements-beam.txt",
    offline_target="worker",
    root_because="Dataflow hands a worker its files in a folder that belongs to root",
)
AIRFLOW = Image("bert-repretraining", "airflow.Dockerfile", "requirements-airflow.txt")

IMAGES = (DATA, TRAINER, AIRFLOW, TPU_TRAINER)


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
