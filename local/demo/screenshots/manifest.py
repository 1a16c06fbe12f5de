"""Detects outdated pictures: each is recorded with a hash of the files it is drawn from.

Airflow's own pages are not covered: after a new version of Airflow all pictures must be retaken.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "images"
NAME = "manifest.json"

_RUNS = ("local/demo/tiny.py", "local/demo/screenshots/repretraining.py")
_FINETUNING = (*_RUNS, "local/demo/screenshots/finetuning.py")
_PAGE = tuple(
    f"plugins/pages/{name}"
    for name in (
        *("charts.py", "formatting.py", "progress.py", "spending.py"),
        *("templates/base.html", "templates/macros.html", "templates/style.css"),
    )
)
_RUN_PAGE = (*_PAGE, "plugins/pages/settings_view.py")
_FORM = ("plugins/trigger_form.py", "docs/reference/config.md")

SOURCES: dict[str, tuple[str, ...]] = {
    "approval": (*_RUNS, "plugins/operators/approval.py"),
    "backfill": (*_RUNS, *_FORM),
    "finetuning-form": (*_FINETUNING, *_FORM),
    "finetuning-report": (*_FINETUNING, "trained_models/downstream/*.py"),
    "finetuning-run-page": (
        *(*_FINETUNING, *_RUN_PAGE),
        *("plugins/pages/finetuning_view.py", "plugins/pages/templates/finetuning.html"),
    ),
    "finetuning-tpus": (*_FINETUNING, "dags/bert_finetuning.py"),
    "models-page": (
        *(*_RUNS, *_PAGE),
        *("plugins/pages/lineage_view.py", "plugins/pages/templates/models.html"),
    ),
    "rollback": (*_RUNS, "dags/model_rollback.py"),
    "run-page": (
        *(*_RUNS, *_RUN_PAGE),
        *("plugins/pages/run_view.py", "plugins/pages/templates/run.html"),
    ),
    "training-in-airflow": (*_RUNS, "dags/bert_repretraining.py"),
    "trigger-form": (*_RUNS, *_FORM),
}
"""The files that each picture is drawn from, as patterns below the repository's root."""


def write(folder: Path = FOLDER) -> None:
    """Record the hashes of the files from which a folder's pictures have just been drawn."""
    content = {name: digest(patterns) for name, patterns in sorted(SOURCES.items())}
    (folder / NAME).write_text(json.dumps(content, indent=2) + "\n")


def stale(folder: Path = FOLDER) -> list[str]:
    """Return the pictures that are missing, in light or dark, or whose sources have changed."""
    kept = json.loads((folder / NAME).read_text()) if (folder / NAME).exists() else {}
    return [
        name
        for name, patterns in sorted(SOURCES.items())
        if kept.get(name) != digest(patterns) or not all(p.exists() for p in files_of(folder, name))
    ]


def files_of(folder: Path, name: str) -> tuple[Path, Path]:
    """Return the light and the dark file of a picture."""
    return folder / f"{name}.png", folder / f"{name}-dark.png"


def digest(patterns: Iterable[str], root: Path = ROOT) -> str:
    """Return the SHA-256 of the names and contents of the matching files.

    :raises FileNotFoundError: a pattern matches no file, so that its hash would be meaningless.
    """
    found = hashlib.sha256()
    for pattern in patterns:
        paths = sorted(path for path in root.glob(pattern) if path.is_file())
        if not paths:
            raise FileNotFoundError(f"{pattern} matches no file of {root}; see SOURCES.")
        for path in paths:
            found.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return found.hexdigest()
