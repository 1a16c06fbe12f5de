"""What shows of a task before anything is spent: its description, its files' first examples."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from beam_jobs.labelled.description import load_task, task_files
from corpus.errors import UserError
from corpus.labelled.reading import TRIED_FILES, file_format, read_examples, why_unusable
from pipeline_config import ConfigError
from pipeline_store.formats import TaskSplit
from pipeline_store.layout import StoreLayout


def check_task(store: StoreLayout, name: str) -> Iterator[str]:
    """Yield a line for every reason why a task cannot be prepared that shows at once.

    Read are the description and, of each split's first 20 files, examples up to the first one that
    can be used.
    """
    try:
        task = load_task(store, name)
        files = task_files(store, name, task)
    except ConfigError as error:
        yield from error.violations
        return
    except UserError as error:
        yield str(error)
        return
    for split, found in files.items():
        labelled = split is not TaskSplit.PREDICT
        for uri in found[:TRIED_FILES]:
            read = partial(
                read_examples, input_format=file_format(uri, task), task=task, labelled=labelled
            )
            if reason := why_unusable(uri, read):
                yield f"task {name!r}: {split}: {uri}: {reason}."
