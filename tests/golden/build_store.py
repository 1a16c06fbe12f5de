"""Writes the store of the kept files: ``python -m tests.golden.build_store``.

What is kept once stays as it is, as a user's store does: a file that is there is not written again,
and a model version gets no file that its record does not list.
After a format has changed, with a migration, the new files go beside the old ones.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest import mock

from pipeline_store import gcs, uris
from pipeline_store.layout import StoreLayout
from tests.golden import more_files
from tests.golden.discovery import sources
from tests.model_registry import finetunings, retained
from tests.model_registry.runs import NOW
from tests.pipeline_store.gcs_server import running

STORE = Path(__file__).with_name("store")
ROOT = "gs://golden/store"
"""Not a folder: then no file has the name of one of this machine in it."""

TASK = 'kind = "classification"\ntext_column = "sentence"\nlabels = ["rain", "sun"]\n'


class _Clock(datetime):
    """A clock that stands still, so that two runs write the same."""

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return NOW


def main() -> None:
    """Write the files that are not there."""
    with ExitStack() as stack:
        server = stack.enter_context(running())
        stack.enter_context(mock.patch.dict(os.environ, STORAGE_EMULATOR_HOST=server.url))
        gcs._client.cache_clear()
        # Before the clock is replaced, as some modules are imported only when they are used.
        modules = [importlib.import_module(name) for name in _dated()]
        for module in modules:
            stack.enter_context(mock.patch.object(module, "datetime", _Clock))
        _write(StoreLayout(ROOT))
        committed = set(STORE.rglob("model.json"))
        for uri in uris.list_files(ROOT):
            path = STORE / uri.removeprefix(f"{ROOT}/")
            if not path.exists() and path.with_name("model.json") not in committed:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(uris.read(uri))
    gcs._client.cache_clear()


def _dated() -> Iterator[str]:
    return (n for n, text in sources().items() if "datetime.now(" in text and _is_light(n))


def _is_light(module: str) -> bool:
    return module.partition(".")[0] in ("model_registry", "pipeline_store")


def _write(store: StoreLayout) -> None:
    """Write two promoted runs, a fine-tuning run, and what these do not have."""
    first = retained.promoted(store.root, "1")
    second = retained.promoted(store.root, "2", first.version_id)
    # Two trainings on two TPUs, so that there is a folder of a further TPU.
    seeds = {"finetuning__random_seeds": [1, 2], "finetuning__parallel_tpus": 2}
    tuned = finetunings.FinetuningRun(store, "manual__1", **seeds)
    tuned.train()
    tuned.end()
    uris.write(store.task("weather").description, TASK.encode())
    for uri, file in more_files.files(store, second, tuned):
        file.write(uri)
    for uri, text in more_files.texts(second):
        uris.write(uri, text.encode())


if __name__ == "__main__":
    main()
