"""Reads and checks ``task.toml``, and lists the files that it names.

Also checks a task before anything is spent, by its description and its files' first examples.
"""

from __future__ import annotations

import difflib
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

from pydantic import ValidationError

from corpus.errors import UserError
from corpus.labelled.descriptions import check_name, read_description
from corpus.labelled.reading import FORMATS, TRIED_FILES, file_format, read_examples, why_unusable
from corpus.text.inputs import format_of_name, list_inputs
from pipeline_config import ConfigError, TaskConfig
from pipeline_config.task import task_violations
from pipeline_config.unquoted import broken_fields, fault
from pipeline_store.formats import TaskSplit
from pipeline_store.layout import StoreLayout

TaskFiles = dict[TaskSplit, list[str]]


def load_task(store: StoreLayout, name: str) -> TaskConfig:
    """Return a task's description.

    :raises ConfigError: there is none of that name, or it breaks rules; every one is listed.
    """
    uri, content = _content(store, name)
    known = list(TaskConfig.model_fields)
    problems = [
        _unknown(number, key, known) for number, key in enumerate(content, 1) if key not in known
    ]
    try:
        task = TaskConfig.model_validate({k: v for k, v in content.items() if k in known})
        problems += task_violations(task)
    except ValidationError as error:
        problems += broken_fields(error, TaskConfig)
    if problems:
        raise ConfigError([f"{uri}: {line}" for line in problems])
    return task


def _content(store: StoreLayout, name: str) -> tuple[str, dict[str, Any]]:
    check_name(name)
    uri = store.task(name).description
    data = read_description(store, name, uri)
    try:
        return uri, tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        problem = f"{uri}: it is no TOML file ({fault(error)}). Correct that place."
        raise ConfigError([problem]) from None


def _unknown(number: int, key: str, known: list[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    guide = "See docs/reference/finetuning-data.md for the names."
    hint = f"Did you mean {close[0]!r}?" if close else guide
    return f"its setting number {number}: there is none of that name. {hint}"


def task_files(store: StoreLayout, name: str, task: TaskConfig) -> TaskFiles:
    """Return the files that a task's patterns match, by split, sorted.

    :raises UserError: a pattern matches nothing, a file is named for two splits, or its name's
        extension does not tell its format.
    """
    patterns = {
        TaskSplit.TRAIN: task.train,
        TaskSplit.VALIDATION: task.validation,
        TaskSplit.TEST: task.test,
        TaskSplit.PREDICT: task.predict,
    }
    folder = StoreLayout(store.task(name).root)
    files = {
        split: list_inputs(pattern, "", folder, f"task {name!r}: {split}")
        for split, pattern in patterns.items()
        if pattern is not None
    }
    for problem in (*_named_twice(files), *_without_format(files, task)):
        raise UserError(f"task {name!r}: {problem}")
    return files


def _named_twice(files: TaskFiles) -> Iterator[str]:
    counts = Counter(uri for found in files.values() for uri in found)
    for uri, count in sorted(counts.items()):
        if count > 1:
            splits = " and ".join(split for split, found in files.items() if uri in found)
            yield f"{uri} is named by {splits}; each example may be in one split only."


def _without_format(files: TaskFiles, task: TaskConfig) -> Iterator[str]:
    for uri in (uri for found in files.values() for uri in found):
        if task.input_format == "auto" and format_of_name(uri) not in FORMATS:
            yield (
                f"{uri} ends in none of .{', .'.join(FORMATS)} (also before .gz, .bz2, .zst, "
                ".xz); set input_format, or name a narrower pattern."
            )


def check_task(store: StoreLayout, name: str) -> Iterator[str]:
    """Yield a line for each reason that a quick check finds why a task cannot be prepared.

    The check reads the description and, of each split's first 20 files, examples up to the first
    usable one.
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
