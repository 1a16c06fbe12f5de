"""What shows of a task before anything is spent: its description, its files' first examples."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from beam_jobs.labelled.description import load_task, task_files
from corpus.errors import UserError
from corpus.labelled.problems import Unusable
from corpus.labelled.reading import Example, file_format, read_examples
from corpus.text.drops import RejectedFileError
from pipeline_config import ConfigError, TaskConfig
from pipeline_store import request_paths
from pipeline_store.formats import TaskSplit
from pipeline_store.layout import StoreLayout

_TRIED_EXAMPLES = 100
_TRIED_FILES = 20


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
        for uri in found[:_TRIED_FILES]:
            if reason := _why_unusable(uri, task, split):
                yield f"task {name!r}: {split}: {uri}: {reason}."


def _why_unusable(uri: str, task: TaskConfig, split: TaskSplit) -> str | None:
    first: Unusable | None = None
    with request_paths.open_stream(uri) as stream:
        examples = read_examples(
            stream, file_format(uri, task), task, labelled=split is not TaskSplit.PREDICT
        )
        try:
            for found in itertools.islice(examples, _TRIED_EXAMPLES):
                if isinstance(found, Example):
                    return None
                first = first or found
        except RejectedFileError as error:
            return error.detail
    if first is None:
        return "there is no example in it"
    return f"none of its first examples can be used; line {first.line}: {first.detail}"
