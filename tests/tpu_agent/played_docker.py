"""Plays Docker on a machine that has none: it records its calls, and a container is a process.

As ``docker`` on PATH it takes the options that it knows, and refuses all others as Docker does.
What it runs is real: the arguments after the image, by the entry point of
``docker/trainer.Dockerfile``, with the environment that ``--env`` lets through. Its processes are
not apart from the others, and all images are the Python that runs the tests.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
HOST = "us-central1-docker.pkg.dev"
IMAGE = f"{HOST}/my-project/bert-images/bert-trainer-tpu@sha256:{'a1' * 32}"
REFUSED = 125  # Docker's exit code for what it does not even start


class PlayedDocker:
    """The folder of the engine's state, and the program for PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        command = shlex.join([sys.executable, str(Path(__file__)), str(folder)])
        program = self.bin / "docker"
        program.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        program.chmod(0o755)

    def fail_pulls(self, count: int) -> None:
        """Let the registry refuse the next pulls."""
        (self.folder / "refusals").write_text(str(count))

    def calls(self, command: str) -> list[dict[str, Any]]:
        """Return the calls of a command: its arguments, and what login read from its input."""
        path = self.folder / "calls.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [call for call in map(json.loads, lines) if call["arguments"][0] == command]

    def runs(self) -> bool:
        """Return whether a container runs."""
        return any((self.folder / "containers").glob("*"))


def main(folder: Path, arguments: list[str]) -> int:
    """Do what Docker would; return the exit code."""
    call = {"arguments": arguments, "input": sys.stdin.read() if arguments[0] == "login" else ""}
    with (folder / "calls.jsonl").open("a") as calls:
        calls.write(json.dumps(call) + "\n")
    command, *rest = arguments
    commands = {"image": _inspect, "login": _login, "pull": _pull, "rm": _remove, "run": _run}
    return commands[command](folder, rest)


def _images(folder: Path) -> Path:
    return folder / "images"


def _inspect(folder: Path, arguments: list[str]) -> int:
    [_, image] = arguments
    images = _images(folder)
    return int(not images.exists() or image not in images.read_text().splitlines())


def _login(_folder: Path, arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--username", required=True)
    parser.add_argument("--password-stdin", action="store_true", required=True)
    parser.add_argument("server")
    options = parser.parse_args(arguments)
    configuration = Path(os.environ["DOCKER_CONFIG"])
    (configuration / "config.json").write_text(options.server)
    return 0


def _pull(folder: Path, arguments: list[str]) -> int:
    [_, image] = arguments
    refusals = folder / "refusals"
    if refusals.exists() and (left := int(refusals.read_text())):
        refusals.write_text(str(left - 1))
        print("Error response from daemon: denied", file=sys.stderr)
        return 1
    with _images(folder).open("a") as images:
        images.write(f"{image}\n")
    return 0


def _remove(folder: Path, arguments: list[str]) -> int:
    [_, name] = arguments
    container = folder / "containers" / name
    if container.exists():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(container.read_text()), signal.SIGKILL)
        container.unlink()
    return 0


def _run(folder: Path, arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
    add = parser.add_argument
    for name in ("name", "pull", "user", "network", "stop-timeout", "workdir", "volume"):
        add(f"--{name}", required=True)
    add("--env", action="append")
    add("--rm", action="store_true", required=True)
    add("--privileged", action="store_true", required=True)
    add("image")
    add("command", nargs="+")
    options = parser.parse_args(arguments)
    container = folder / "containers" / options.name
    source, _, target = options.volume.partition(":")
    if _inspect(folder, ["inspect", options.image]) or source != target:
        return REFUSED
    container.parent.mkdir(exist_ok=True)
    try:
        container.touch(exist_ok=False)
    except FileExistsError:
        print(f"Conflict. The container name {options.name} is already in use", file=sys.stderr)
        return REFUSED
    # By the last ones the emulator knows the processes of a VM.
    let_through = (*options.env, "TPU_EMULATOR_VM", "TPU_EMULATOR_STATE_DIR")
    environment = {name: os.environ[name] for name in let_through if name in os.environ}
    environment["PATH"] = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    process = subprocess.Popen(
        [*_entry_point(), *options.command], cwd=options.workdir, env=environment
    )
    container.write_text(str(process.pid))
    signal.signal(signal.SIGTERM, lambda number, _frame: process.send_signal(number))
    code = process.wait()
    container.unlink(missing_ok=True)
    return code if code >= 0 else 128 - code


def _entry_point() -> list[str]:
    """Return the image's entry point, without the init process that this machine lacks."""
    text = (REPOSITORY / "docker/trainer.Dockerfile").read_text()
    [found] = re.findall(r"^ENTRYPOINT (\[.+\])$", text, re.MULTILINE)
    words: list[str] = json.loads(found)
    return words[words.index("--") + 1 :]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
