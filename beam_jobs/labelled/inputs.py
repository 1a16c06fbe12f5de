"""Identifies a task's files as they are now, and derives the key of their preparation."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor

from beam_jobs.labelled.description import TaskFiles
from beam_jobs.labelled.facts import TaskFile
from corpus.labelled.reading import file_format
from corpus.text.reading import HashingStream
from pipeline_config import TaskConfig
from pipeline_store import request_paths, uris
from pipeline_store.formats import TaskInput, TaskSplit

# Part of every key. Raise it when equal inputs and settings give other bytes than before.
RECIPE_VERSION = 1
_PARALLEL_READS = 16


def identify(files: TaskFiles, task: TaskConfig) -> tuple[TaskFile, ...]:
    """Hash a task's files; return them in order, split by split."""
    named = [(split, uri) for split in TaskSplit for uri in files.get(split, [])]
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        hashes = list(pool.map(lambda item: _sha256(item[1]), named))
    return tuple(
        TaskFile(number, split, uri, file_format(uri, task), sha256, uris.size(uri))
        for number, ((split, uri), sha256) in enumerate(zip(named, hashes, strict=True))
    )


def _sha256(uri: str) -> str:
    with request_paths.open_stream(uri) as stream:
        return HashingStream(stream).finish()


def preparation_key(
    files: tuple[TaskFile, ...], task: TaskConfig, vocabulary_sha256: str, max_seq_length: int
) -> str:
    """Return the key of a preparation; equal bytes, settings and vocabulary give an equal key.

    File names are not part of it, only the files' order and formats. The exception is files to
    predict, because they are read again by the names in the manifest.
    """
    parts = {
        "recipe": RECIPE_VERSION,
        "files": [(file.split, file.input_format, file.sha256) for file in files],
        "predicted": [file.uri for file in files if file.split is TaskSplit.PREDICT],
        "task": task.sha256,
        "vocabulary": vocabulary_sha256,
        "max_seq_length": max_seq_length,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def manifest_inputs(files: tuple[TaskFile, ...]) -> dict[TaskSplit, list[TaskInput]]:
    """Return the files as a manifest lists them."""
    inputs: dict[TaskSplit, list[TaskInput]] = {}
    for file in files:
        found = TaskInput(uri=file.uri, sha256=file.sha256, bytes=file.bytes)
        inputs.setdefault(file.split, []).append(found)
    return inputs
