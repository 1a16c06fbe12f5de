"""Converts a file's examples to the records of each split, with the vocabulary of a lineage."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_jobs.labelled.facts import FileFacts, TaskFile
from beam_jobs.labelled.label_leaks import Counts, LabelSearch
from beam_jobs.labelled.records import TaskRecordBuilder
from beam_jobs.labelled.task_examples import LEFT_OUT, SPLITS, Decided
from corpus.errors import UserError
from corpus.labelled.reading import Example, read_examples
from corpus.rows.record_files import RecordWriter
from corpus.tokens.lineage_vocabulary import read_committed
from corpus.tokens.tokenizing import Tokenizer, make_tokenizer
from corpus.tokens.vocabulary import Vocabulary
from pipeline_config import TaskConfig
from pipeline_store.formats import TaskSplit, VocabularyInfo
from pipeline_store.layout import StoreLayout

_BATCH_CHARACTERS = 1 << 19


@dataclass(frozen=True)
class FileWork:
    """A file to be converted.

    ``assigned`` int8 [N]: as in :class:`Decided`. ``first_ids``: ``example_id`` of the file's first
    example in each split that it has examples of.
    """

    file: TaskFile
    assigned: npt.NDArray[np.int8]
    first_ids: dict[TaskSplit, int]
    labels: list[str]


def plan_work(facts: list[FileFacts], decided: Decided) -> Iterator[FileWork]:
    """Yield the conversion work on each file after the decision, in order of the files."""
    ids = dict.fromkeys(SPLITS, 0)
    for one in facts:
        assigned = decided.assigned[one.file.number]
        counts = np.bincount(assigned[assigned != LEFT_OUT], minlength=len(SPLITS)).tolist()
        sizes = {split: count for split, count in zip(SPLITS, counts, strict=True) if count}
        yield FileWork(one.file, assigned, {split: ids[split] for split in sizes}, decided.labels)
        for split, count in sizes.items():
            ids[split] += count


@dataclass
class Part:
    """A file's records of one split, on this machine.

    ``sources`` int64, by example: the number of the file, and the line.
    """

    split: TaskSplit
    records: RecordWriter
    sources: array[int]
    truncated: int = 0
    tokens: int = 0

    def source_bytes(self) -> bytes:
        """Return the origins of the records in the format of ``TaskRecords.sources``."""
        return np.array(self.sources, "<i8").tobytes()


class Converted(NamedTuple):
    """The result of converting a file."""

    parts: list[Part]
    label_search: Counts


class TaskConverter:
    """Turns files of a task into records, whose bytes depend only on the arguments.

    :param batch_characters: text converted at once; bounds the memory, changes no byte.
    """

    def __init__(
        self,
        task: TaskConfig,
        vocabulary: Vocabulary,
        tokenizer: Tokenizer,
        max_seq_length: int,
        batch_characters: int = _BATCH_CHARACTERS,
    ) -> None:
        self._task = task
        self._vocabulary = vocabulary
        self._tokenizer = tokenizer
        self._max_seq_length = max_seq_length
        self._batch_characters = batch_characters

    def convert(
        self,
        stream: BinaryIO,
        work: FileWork,
        folder: Path,
        report: Callable[[int, int], None] = lambda examples, tokens: None,
    ) -> Converted:
        """Write the records of a file's examples into files of a folder.

        :param report: called after each batch with the examples and tokens so far.
        """
        builder = TaskRecordBuilder(
            self._task, work.labels, self._vocabulary, self._tokenizer, self._max_seq_length
        )
        search = LabelSearch(self._task, work.labels)
        with ExitStack() as stack:
            parts = {
                split: Part(
                    split, stack.enter_context(RecordWriter(folder / str(split))), array("q")
                )
                for split in work.first_ids
            }
            for split, examples in self._batches(stream, work):
                part = parts[split]
                built = builder.build(examples, work.first_ids[split] + part.records.records)
                part.records.write_records(built.examples)
                part.truncated += built.truncated
                part.tokens += built.tokens
                for example in examples:
                    part.sources.extend((work.file.number, example.line))
                    if example.label is not None:
                        search.add(example.texts, example.label)
                report(
                    sum(one.records.records for one in parts.values()),
                    sum(one.tokens for one in parts.values()),
                )
        return Converted(list(parts.values()), search.counts)

    def _batches(
        self, stream: BinaryIO, work: FileWork
    ) -> Iterator[tuple[TaskSplit, list[Example]]]:
        """Yield batches of examples, each of one split, in order."""
        waiting: dict[TaskSplit, list[Example]] = {split: [] for split in work.first_ids}
        characters = dict.fromkeys(waiting, 0)
        labelled = work.file.split is not TaskSplit.PREDICT
        found = read_examples(stream, work.file.input_format, self._task, labelled=labelled)
        usable = (example for example in found if isinstance(example, Example))
        for example, code in zip(usable, work.assigned.tolist(), strict=True):
            if code == LEFT_OUT:
                continue
            split = SPLITS[code]
            waiting[split].append(example)
            characters[split] += sum(map(len, example.texts))
            if characters[split] >= self._batch_characters:
                yield split, waiting[split]
                waiting[split], characters[split] = [], 0
        yield from ((split, examples) for split, examples in waiting.items() if examples)


@dataclass(frozen=True)
class TaskVocabulary:
    """A lineage's vocabulary, whether its text is lowercased, and the length of rows."""

    vocabulary: Vocabulary
    do_lower_case: bool
    max_seq_length: int

    @classmethod
    def load(cls, store: StoreLayout, lineage_id: str, max_seq_length: int) -> TaskVocabulary:
        """Load the vocabulary of a lineage.

        :raises UserError: it has no vocabulary, or the stored one is damaged.
        """
        lineage = store.lineage(lineage_id)
        info = VocabularyInfo.load_or_none(lineage.vocabulary_info)
        if info is None:
            raise UserError(
                f"lineage {lineage_id!r} has no vocabulary ({lineage.vocabulary_info}), so it has "
                "no model to fine-tune. Pre-train or import one first, or name another lineage."
            )
        return cls(read_committed(info, lineage), info.do_lower_case, max_seq_length)

    @property
    def sha256(self) -> str:
        """Hash of what defines the vocabulary."""
        return self.vocabulary.sha256

    def converter(self, task: TaskConfig) -> TaskConverter:
        """Return the converter of a task's files to records."""
        tokenizer = make_tokenizer(self.vocabulary, self.do_lower_case)
        return TaskConverter(task, self.vocabulary, tokenizer, self.max_seq_length)
