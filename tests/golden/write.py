"""Writes ``names.json`` and ``triggers.json`` anew: ``python -m tests.golden.write``.

It asks a new process, in an environment of its own, as names must not depend on what somebody has
set, nor on what the tests before have imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.golden.discovery import PLUGINS, REPOSITORY

NAMES = Path(__file__).with_name("names.json")
TRIGGERS = Path(__file__).with_name("triggers.json")


def extracted() -> dict[str, Any]:
    """Return the names as the code has them now."""
    with tempfile.TemporaryDirectory() as home:
        target = Path(home) / "names.json"
        environment = {
            "PATH": str(Path(sys.executable).parent),
            "HOME": home,
            "AIRFLOW_HOME": home,
            "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
            "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{REPOSITORY / PLUGINS}",
        }
        command = [sys.executable, "-m", "tests.golden.extract", str(target)]
        result = subprocess.run(
            command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stderr[-4000:]
        names: dict[str, Any] = json.loads(target.read_text())
        return names


def text(content: Any) -> str:
    """Return a file's content: one name a line."""
    return json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def main() -> None:
    """Write both files; a trigger that is kept already stays as it was stored then."""
    found = extracted()
    samples = found.pop("trigger samples")
    NAMES.write_text(text(found))
    kept = json.loads(TRIGGERS.read_text()) if TRIGGERS.exists() else {}
    TRIGGERS.write_text(text(samples | kept))


if __name__ == "__main__":
    main()
