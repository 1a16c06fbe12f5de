"""Checks a task with half of its test examples in the training text, and a model that knows these.

The data jobs prepare the partition and the task; the models' answers are drawn.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from beam_jobs.prepare_task import PreparedTask, prepare_task
from pipeline_store import uris
from pipeline_store.formats import (
    EncoderSource,
    ModelComparison,
    ModelVersion,
    PaidVerdict,
    PartitionManifest,
    ShardManifest,
    Split,
    TaskSplit,
)
from pipeline_store.layout import StoreLayout
from trained_models.downstream import training_text
from trained_models.downstream.comparison import compare
from trained_models.downstream.training_text import InTrainingText
from verification.benchmarks.recipe_check.drawn_trials import DrawnModel, write_trial
from verification.benchmarks.recipe_check.finding import Figures, Finding
from verification.benchmarks.recipe_check.pages import PARTITION, new_store, pages, prepare

NAME = "leaked-task"
LEAKED = 200
"""Number of test examples that are training text; the same number is not."""
_LABELS = ("first", "second")
_SEEDS = (1, 2, 3)
_RIGHT, _RIGHT_ON_LEAKED = 0.6, 0.95
_SHORTEST, _LONGEST = 80, 300
"""Characters of an example: a sentence or two, which fit into a row."""
_NOBODY = EncoderSource(uri=None, version_id=None)


def check(state_dir: Path) -> Finding:
    """Compare two models that are equally good on text that neither has seen.

    Before, nothing checked for this. Now the job that prepares the task looks up its test examples,
    and a model has helped only if it also helped without the examples that were found.

    :param state_dir: parent folder of the store, which is written again.
    """
    found = pages()
    seen = dict(list(found.items())[::2])
    store = new_store(state_dir / NAME, {f"{name}.txt": text for name, text in seen.items()})
    # So that all paragraphs of a training page are trained on.
    partition = prepare(store, {"corpus.split_by": "file"})
    leaked = _examples(found, _trained(partition))[:LEAKED]
    others = _examples(found, found.keys() - seen.keys())
    task = _prepare_task(store, partition, [*leaked, *others[:LEAKED]], others[LEAKED : 2 * LEAKED])
    lines = _test_lines(task)
    version = _version(store, partition)
    known = training_text.find(store, task.manifest_uri, version, _NOBODY)
    before, after = (_compare(store, task, lines, version, one) for one in (None, known))
    return Finding(
        NAME,
        before=_figures(before),
        after=_figures(after),
        holds=known.exact == set(np.flatnonzero(lines < LEAKED).tolist())
        and before.verdict is PaidVerdict.HELPED
        and after.verdict is PaidVerdict.NO_EVIDENCE,
    )


def _trained(partition: PartitionManifest) -> set[str]:
    """Return the pages that are trained on; a shard is a page."""
    return {
        Path(shard.input_uri).stem
        for shard in map(ShardManifest.load, partition.shards)
        if (file := shard.file(Split.TRAIN, partition.max_seq_length)) and file.documents
    }


def _examples(found: dict[str, str], names: Iterable[str]) -> list[str]:
    """Return the paragraphs of pages that have the length of an example and occur only once.

    :param names: names of the pages, which are used in alphabetical order.
    """
    split = {
        name: [" ".join(one.split()) for one in text.split("\n\n")] for name, text in found.items()
    }
    count = Counter(one for texts in split.values() for one in texts)
    return [
        one
        for name in sorted(names)
        for one in split[name]
        if count[one] == 1 and _SHORTEST <= len(one) <= _LONGEST
    ]


def _prepare_task(
    store: StoreLayout, partition: PartitionManifest, test: list[str], train: list[str]
) -> PreparedTask:
    """Describe and prepare a task whose labels take turns."""
    folder = store.task(NAME).root
    for name, texts in (("train", train), ("test", test)):
        lines = [
            json.dumps({"text": text, "label": _LABELS[number % 2]}) + "\n"
            for number, text in enumerate(texts)
        ]
        uris.write(uris.join(folder, f"{name}.jsonl"), "".join(lines).encode())
    # Some paragraphs are lists of links, of which a row holds half.
    description = f'labels = {json.dumps(_LABELS)}\ntest = "test.jsonl"\nmax_truncated_fraction = 1'
    uris.write(uris.join(folder, "task.toml"), description.encode())
    return prepare_task(
        store, NAME, lineage_id=partition.lineage_id, max_seq_length=partition.max_seq_length
    )


def _test_lines(task: PreparedTask) -> npt.NDArray[np.int64]:
    """Return each test example's line, from 0, by ``example_id``, shape [N]."""
    records = task.manifest.splits[TaskSplit.TEST]
    data = uris.read(uris.join(task.manifest_uri.rpartition("/")[0], records.sources.path))
    return np.frombuffer(data, "<i8").reshape(-1, 2)[:, 1] - 1


def _version(store: StoreLayout, partition: PartitionManifest) -> EncoderSource:
    """Store the record of a version that has seen the partition; nothing reads its weights."""
    lineage, name = store.lineage(partition.lineage_id), "v-1"
    ModelVersion(
        version_id=name,
        lineage_id=partition.lineage_id,
        parent=None,
        run_key="drawn",
        partitions_seen=[PARTITION],
        files=[],
        checkpoint_prefix="none",
        vocabulary_sha256=partition.vocabulary_sha256,
        train_steps_total=0,
        metrics={},
        created=datetime.now(UTC),
    ).create(lineage.model(name))
    return EncoderSource(uri=lineage.version(name), version_id=name)


def _compare(
    store: StoreLayout,
    task: PreparedTask,
    lines: npt.NDArray[np.int64],
    version: EncoderSource,
    known: InTrainingText | None,
) -> ModelComparison:
    right = np.full(len(lines), _RIGHT)
    models = (
        DrawnModel("model", version, np.where(lines < LEAKED, _RIGHT_ON_LEAKED, right), seed=1),
        DrawnModel("previous", _NOBODY, right, seed=2),
    )
    model, reference = (
        [write_trial(f"{store.root}/trials", task.manifest, lines % 2, one, s) for s in _SEEDS]
        for one in models
    )
    return compare(task.manifest, model, reference, in_training_text=known)


def _figures(comparison: ModelComparison) -> Figures:
    """Return the verdict, and the difference behind it with its interval."""
    findings = comparison.training_text
    judged = comparison if findings is None or findings.clean is None else findings.clean
    return {
        "verdict": str(comparison.verdict),
        "found": None if findings is None else findings.found,
        **{name: round(getattr(judged, name), 3) for name in ("difference", "low", "high")},
    }
