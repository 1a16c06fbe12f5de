"""Runs the programs that build and start images."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

LAST_LINES = 15


class ImageError(Exception):
    """An image cannot be built, or fails a check."""


def run(command: Sequence[str | Path], *, cwd: Path | None = None, log: Path | None = None) -> str:
    """Run a command and return its stdout.

    :param log: file for its stdout followed by its stderr; None: they are not kept.
    :raises ImageError: the command fails or is not installed; with its last lines.
    """
    try:
        result = subprocess.run(command, check=False, cwd=cwd, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise _not_installed(command) from error
    if log is not None:
        log.write_text(result.stdout + result.stderr)
    if result.returncode:
        raise _failed(command, result.returncode, result.stdout + result.stderr)
    return result.stdout


def run_long(command: Sequence[str | Path], log: Path) -> None:
    """Run a command that takes minutes; its output can be followed in a file.

    :raises ImageError: the command fails or is not installed; with its last lines.
    """
    with log.open("w") as said:
        try:
            result = subprocess.run(command, check=False, stdout=said, stderr=subprocess.STDOUT)
        except FileNotFoundError as error:
            raise _not_installed(command) from error
    if result.returncode:
        raise _failed(command, result.returncode, log.read_text())


def _not_installed(command: Sequence[str | Path]) -> ImageError:
    return ImageError(f"{command[0]} is not installed; run scripts/need-buildah.")


def _failed(command: Sequence[str | Path], status: int, said: str) -> ImageError:
    last = "\n".join(said.strip().splitlines()[-LAST_LINES:])
    return ImageError(f"{' '.join(map(str, command))}: exit status {status}\n{last}")
