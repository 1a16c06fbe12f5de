"""Shared parts of checks: the state folder, stored results, and the version of the code.

Results of another version of the code do not count.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

from local.stack.paths import REPOSITORY, StackError

Line = dict[str, Any]
_DOCUMENTS_PER_FILE = 8


def add_state_dir(parser: argparse.ArgumentParser, check: str, holds: str) -> None:
    """Add the argument for a check's folder.

    :param holds: what the folder is for.
    """
    parser.add_argument(
        "--state-dir",
        type=Path,
        default=Path(f".local/{check}"),
        help=f"{holds} (default: %(default)s)",
    )


class Lines:
    """A file with a line of JSON for each result, so that an interrupted check can resume."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[Line]:
        """Return the lines, oldest first."""
        text = self._path.read_text() if self._path.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def add(self, line: Line) -> None:
        """Append a line."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def write_corpus(folder: Path) -> None:
    """Write this repository's documentation as input files of a data job, into a new folder."""
    folder.mkdir(parents=True)
    pages = sorted((REPOSITORY / "docs").rglob("*.md"))
    sections = [part for page in pages for part in page.read_text().split("\n## ")]
    for number in range(0, len(sections), _DOCUMENTS_PER_FILE):
        group = sections[number : number + _DOCUMENTS_PER_FILE]
        (folder / f"{number:04d}.jsonl").write_text(
            "".join(json.dumps({"text": text}) + "\n" for text in group)
        )


def code_version(repository: Path = REPOSITORY) -> str:
    """Return the checked-out commit, plus a hash of uncommitted changes, if there are any.

    :raises StackError: git fails.
    """
    commit = _git(repository, "rev-parse", "HEAD").decode().strip()
    changes = _git(repository, "diff", "HEAD")
    for name in _git(repository, "ls-files", "-z", "--others", "--exclude-standard").split(b"\0"):
        if name:
            changes += name + b"\0" + (repository / name.decode()).read_bytes()
    return f"{commit}+{hashlib.sha256(changes).hexdigest()[:12]}" if changes else commit


def _git(repository: Path, *words: str) -> bytes:
    command = ["git", "-C", str(repository), *words]
    try:
        return subprocess.run(command, check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", b"") or str(error).encode()
        raise StackError(
            f"Results are kept for one version of the code, and git does not say which {repository}"
            f" has: {said.decode(errors='replace').strip()}. Run the check in a clone."
        ) from error
