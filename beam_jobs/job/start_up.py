"""Imports Beam for a command: without what only Google Cloud needs, where it runs on this machine.

Beam's package imports the clients of BigQuery, Pub/Sub and Cloud Storage as well as pandas wherever
they are installed, and does without where they are not: more than half of its import, which is
most of what a small partition takes. So they are hidden from it, and only while it is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType

# Beam's source of BigQuery, on whose import its package makes those of the other sources of Google
# Cloud depend; what its extra `gcp` installs; and what data frames need. The store's own client of
# Cloud Storage is imported by the store, and later.
HIDDEN = (
    "apache_beam.io.gcp.bigquery",
    *("apitools", "google.api_core", "google.auth", "google.cloud", "google.pubsub_v1"),
    *("oauth2client", "pandas"),
)
# Beam's DirectRunner downloads the Prism engine when it can and falls back to this one when it
# cannot, so what runs would depend on the network.
LOCAL_RUNNER = "FnApiRunner"


class _Hidden:
    """Finds no module of :data:`HIDDEN`, as if it were not installed."""

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

    In full where it is to run elsewhere, or where it has options of its own, which may be about
    anything.

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
