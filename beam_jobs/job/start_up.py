"""Imports Beam for a command; for a local run, without the modules that only Google Cloud needs.

Beam imports pandas and the clients of BigQuery, Pub/Sub and Cloud Storage if they are installed,
and works without them if they are not. They take more than half of Beam's import time, which is
most of a small partition's run time. So they are hidden, only while Beam is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType

# Beam's BigQuery source (if its import fails, Beam skips the other Google Cloud sources), the
# packages of Beam's extra `gcp`, and the package that data frames need. The store imports its own
# client of Cloud Storage later.
HIDDEN = (
    "apache_beam.io.gcp.bigquery",
    *("apitools", "google.api_core", "google.auth", "google.cloud", "google.pubsub_v1"),
    *("oauth2client", "pandas"),
)
# Beam's DirectRunner downloads the Prism engine when it can and falls back to this one when it
# cannot, so what runs would depend on the network.
LOCAL_RUNNER = "FnApiRunner"


class _Hidden:
    """An import finder that reports the modules of :data:`HIDDEN` as not installed."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if any(name == hidden or name.startswith(f"{hidden}.") for hidden in HIDDEN):
            raise ModuleNotFoundError(f"{name} is left out", name=name)
        return None


@contextmanager
def _hidden_from_imports() -> Iterator[None]:
    finder = _Hidden()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def import_beam(runner: str, pipeline_args: Sequence[str]) -> None:
    """Import Beam for a process that does nothing else.

    Only a local run without Beam options imports a part of it now; other runs may need any part.

    :param runner: ``beam.runner`` of the configuration.
    :param pipeline_args: Beam's options.
    """
    if runner == LOCAL_RUNNER and not pipeline_args:
        import_local_beam()


def import_local_beam() -> None:
    """Import the parts of Beam that run a pipeline on this machine, and no client of a cloud."""
    with _hidden_from_imports():
        import apache_beam.runners.portability.fn_api_runner
        import apache_beam.runners.worker.sdk_worker  # noqa: F401 - the import is what is wanted
