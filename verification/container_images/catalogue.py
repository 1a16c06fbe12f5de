"""The catalog of images and what is expected of each, and functions to read a Dockerfile."""

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
    """Name in docker/ of the locked requirements; the image has exactly these packages."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Build arguments."""
    offline_target: str | None = None
    """Stage to build if no image registry can be reached; None: the whole file."""
    root_because: str | None = None
    """Why its processes run as root; None if they do not."""

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
    """Return the default value of an ARG.

    :raises ValueError: the file has no such ARG with a value.
    """
    found = re.search(rf"^ARG {name}=(\S+)$", dockerfile.read_text(), re.MULTILINE)
    if found is None:
        raise ValueError(f"{dockerfile}: no ARG {name} with a value.")
    return found[1]


def copied(dockerfile: Path) -> list[str]:
    """Return the paths of the repository that a Dockerfile copies into its stages, in order."""
    return re.findall(r"^COPY (?!--from)(\S+) \S+$", dockerfile.read_text(), re.MULTILINE)
