"""Prepares the tasks that a T5 is trained on together in a DAG run: checks, copies, commits them.

The copy has everything that was read, so that later trainings, on other hosts and from several
seeds, use what was checked, even if the files change. It needs no TensorFlow.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from corpus.labelled.descriptions import check_name, read_description
from pipeline_config import ConfigError, FinetuningConfig
from pipeline_config.text_to_text import (
    TOKEN_ACCURACY,
    TextMixture,
    TextToTextConfig,
    of_trial,
    parse_text_to_text,
)
from pipeline_store import request_paths, uris
from pipeline_store.formats import FileDigest, TaskInput, TaskManifest, TaskRecords, TaskSplit
from pipeline_store.layout import StoreLayout
from trained_models.errors import BadDataError, UserError
from trained_models.text_to_text.sizes import PAD, SOURCE, TARGET
from training.text_to_text.setup import Prepared, prepare, prepare_texts
from training.text_to_text.task_text import Pair, TaskText, checked, first_problems

# Part of every key. Increase it when equal inputs and settings give other bytes than before.
_RECIPE_VERSION = 1
_NAME_DIGITS = 16


def load_mixture(store: StoreLayout, name: str) -> TextMixture:
    """Return the mixture that ``text_to_text.toml`` in a task's folder describes.

    :raises ConfigError: the file is missing, or it breaks rules; the error lists all of them.
    """
    check_name(name)
    uri = store.task(name).text_to_text
    return parse_text_to_text(read_description(store, name, uri), uri, TextMixture)


def check_mixture(store: StoreLayout, name: str) -> Iterator[str]:
    """Yield a line for every quickly detectable reason why a mixture cannot be prepared.

    Only the description and some examples of each split's first files are read.
    """
    try:
        mixture = load_mixture(store, name)
    except ConfigError as error:
        yield from error.violations
        return
    for task in mixture.tasks:
        for line in first_problems(task, store.task(name).root):
            yield f"task {name!r}: {line}"


@dataclass(frozen=True)
class PreparedMixture:
    """A committed mixture, and whether it existed already."""

    manifest: TaskManifest
    uri: str
    reused: bool


def prepare_mixture(store: StoreLayout, name: str, config: FinetuningConfig) -> PreparedMixture:
    """Prepare the current state of a mixture, unless the store has it already.

    :param config: configuration of a run that fine-tunes a T5.
    :raises ConfigError: the description is missing or wrong.
    :raises UserError: model, vocabulary or files are missing or do not fit.
    :raises BadDataError: too many examples are unusable.
    """
    prepared = look_at_mixture(store, name, config)
    inputs = _inputs(prepared)
    key = _key(prepared, inputs)
    layout = store.task(name)
    done = TaskManifest.load_or_none(layout.manifest(key))
    if done is not None:
        return PreparedMixture(done, layout.manifest(key), reused=True)
    numbers = {
        uri: number
        for number, uri in enumerate(file.uri for files in inputs.values() for file in files)
    }
    mixture = TextMixture(tasks=prepared.recipe.tasks)
    manifest = TaskManifest(
        name=name,
        key=key,
        # Also the length, as the manifest's counts depend on it.
        task={
            **mixture.model_dump(mode="json"),
            "max_target_length": prepared.recipe.max_target_length,
        },
        task_kind="text_to_text",
        compared_by=TOKEN_ACCURACY,
        labels=[],
        vocabulary_sha256=prepared.tokenizer.sha256,
        max_seq_length=prepared.recipe.max_source_length,
        inputs=inputs,
        splits={
            split: _records(prepared, split, numbers, layout.preparation(key))
            for split in TaskSplit
            if any(split in task.rows for task in prepared.tasks)
        },
        dropped=dict(sum((task.texts.left_out for task in prepared.tasks), Counter[str]())),
        dead_letter=None,
        warnings=prepared.warnings,
    )
    # If another process was first, its manifest has the same content.
    manifest.create(layout.manifest(key))
    return PreparedMixture(TaskManifest.load(layout.manifest(key)), layout.manifest(key), False)


def look_at_mixture(store: StoreLayout, name: str, config: FinetuningConfig) -> Prepared:
    """Read and check a mixture without writing; raises the errors of :func:`prepare_mixture`."""
    recipe = config.finetuning
    trial = of_trial(
        config,
        load_mixture(store, name).tasks,
        learning_rate=recipe.learning_rates[0],
        random_seed=recipe.random_seeds[0],
    )
    checkpoint = store.resolve(trial.init_checkpoint)
    trial = trial.model_copy(update={"init_checkpoint": checkpoint})
    return prepare(trial, store.task(name).root)


def _inputs(prepared: Prepared) -> dict[TaskSplit, list[TaskInput]]:
    inputs: dict[TaskSplit, list[TaskInput]] = {}
    for task in prepared.tasks:
        for split, files in task.texts.files.items():
            inputs.setdefault(split, []).extend(
                TaskInput(uri=uri, sha256=request_paths.sha256(uri), bytes=uris.size(uri))
                for uri in files
            )
    # In the order of TaskManifest.files, each once.
    return {
        split: list({file.uri: file for file in inputs[split]}.values())
        for split in TaskSplit
        if split in inputs
    }


def _key(prepared: Prepared, inputs: dict[TaskSplit, list[TaskInput]]) -> str:
    recipe = prepared.recipe
    parts = {
        "recipe": _RECIPE_VERSION,
        "files": [(split, file.sha256) for split, files in inputs.items() for file in files],
        "tasks": [task.model_dump(mode="json") for task in recipe.tasks],
        "vocabulary": prepared.tokenizer.sha256,
        "lengths": [recipe.max_source_length, recipe.max_target_length],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def _records(
    prepared: Prepared, split: TaskSplit, numbers: dict[str, int], folder: str
) -> TaskRecords:
    """Write the examples of a split; return their record."""
    tasks = [task for task in prepared.tasks if split in task.rows]
    pairs = [(task.texts, pair) for task in tasks for pair in task.texts.splits[split]]
    lines = [
        json.dumps({"task": texts.task.name, "text": pair.text, "target": pair.target}).encode()
        for texts, pair in pairs
    ]
    ends = [0, *itertools.accumulate(len(line) + 1 for line in lines)]
    sources = [(numbers[pair.uri], pair.line) for _, pair in pairs]
    rows = [task.rows[split][name] for task in tasks for name in (SOURCE, TARGET)]
    return TaskRecords(
        data=_kept(folder, split, ".jsonl", b"".join(line + b"\n" for line in lines)),
        index=_kept(folder, split, ".idx", np.array(ends, "<u8").tobytes()),
        sources=_kept(folder, split, ".sources", np.array(sources, "<i8").tobytes()),
        records=len(pairs),
        labels=dict(
            Counter(
                f"{texts.task.name}.{pair.target}"
                for texts, pair in pairs
                if texts.task.target == "label"
            )
        ),
        truncated=sum(task.texts.truncated[split] for task in tasks),
        tokens=sum(int((ids != PAD).sum()) for ids in rows),
    )


def _kept(folder: str, split: TaskSplit, end: str, data: bytes) -> FileDigest:
    path = f"{split}-{hashlib.sha256(data).hexdigest()[:_NAME_DIGITS]}{end}"
    uris.write(uris.join(folder, path), data)
    return FileDigest.of(path, data)


def load_prepared(
    store: StoreLayout,
    manifest_uri: str,
    config: FinetuningConfig,
    *,
    learning_rate: float,
    random_seed: int,
) -> Prepared:
    """Return the prepared tasks that a trial is trained and scored on.

    :raises FormatError: the manifest is damaged.
    :raises BadDataError: a file of examples is damaged.
    :raises UserError: the tasks were prepared for another vocabulary.
    """
    manifest = TaskManifest.load(manifest_uri)
    content = {name: value for name, value in manifest.task.items() if name == "tasks"}
    tasks = TextMixture.model_validate(content).tasks
    recipe = of_trial(config, tasks, learning_rate=learning_rate, random_seed=random_seed)
    checkpoint = store.resolve(recipe.init_checkpoint)
    recipe = recipe.model_copy(update={"init_checkpoint": checkpoint})
    prepared = prepare_texts(recipe, _texts(manifest, manifest_uri, recipe), config.tpu)
    if prepared.tokenizer.sha256 != manifest.vocabulary_sha256:
        raise UserError(
            f"{manifest_uri} was prepared with another spiece.model than that of {checkpoint}. "
            "Prepare the task again: clear the task prepare, or start a new run."
        )
    return prepared


def _texts(
    manifest: TaskManifest, manifest_uri: str, recipe: TextToTextConfig
) -> Iterator[TaskText]:
    found = {task.name: TaskText(task) for task in recipe.tasks}
    folder, files = manifest_uri.rpartition("/")[0], manifest.files
    for split, records in manifest.splits.items():
        lines = _read(folder, records.data).decode().splitlines()
        sources = np.frombuffer(_read(folder, records.sources), "<i8").reshape(-1, 2).tolist()
        for line, (number, place) in zip(lines, sources, strict=True):
            item = json.loads(line)
            pairs = found[item["task"]].splits.setdefault(split, [])
            pairs.append(Pair(item["text"], item["target"], files[number], place))
    for task in found.values():
        yield checked(task)


def _read(folder: str, digest: FileDigest) -> bytes:
    uri = uris.join(folder, digest.path)
    data = uris.read(uri)
    if hashlib.sha256(data).hexdigest() != digest.sha256:
        raise BadDataError(
            f"{uri} is damaged: it has another SHA-256 than its manifest says. Delete the folder "
            "and prepare the task again."
        )
    return data
