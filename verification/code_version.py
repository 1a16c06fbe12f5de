"""Which code is checked: results of other code say nothing about it."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from local.stack.paths import REPOSITORY, StackError


def code_version(repository: Path = REPOSITORY) -> str:
    """Return the commit that is checked out, and a hash of what differs from it, if anything does.

    :raises StackError: git does not say.
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
