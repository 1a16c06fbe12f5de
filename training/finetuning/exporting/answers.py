"""The file of a model's answers: a line for every example of the input files."""

from __future__ import annotations

import csv
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from training.finetuning.exporting.chosen import ChosenTrial
from training.finetuning.exporting.text_files import TextRow, read_texts

log = logging.getLogger("training")

SECONDS_BETWEEN_REPORTS = 10.0


class Counts(NamedTuple):
    """Examples: all, those with an answer, and those with an error."""

    rows: int
    predicted: int
    errors: int


class Answering(Protocol):
    """A model that answers texts.

    :class:`training.finetuning.exporting.functions.TextFunctions` is one.
    """

    def predict(self, texts: Sequence[tuple[str, ...]]) -> dict[str, Any]:
        """Return the answers for some examples, tensors by name."""
        ...


def write_answers(
    chosen: ChosenTrial,
    model: Answering,
    inputs: Sequence[str],
    path: Path,
    *,
    batch_size: int,
) -> Counts:
    """Write a table with a header line; see ``docs/guides/finetuning.md`` for its columns.

    :param chosen: trial of the model.
    :param inputs: URIs of input files.
    :param path: local path of the table.
    :raises UserError: a file's format is unknown, or it lacks a column of texts.
    :raises BadDataError: a file is damaged.
    """
    task = chosen.task
    form = _Form(chosen.manifest.labels, task.kind, task.label_separator)
    progress = _Progress()
    errors = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, "excel-tab", lineterminator="\n")
        table.writerow(["file", "line", *form.columns, "error"])
        for uri in inputs:
            for rows in _batches(read_texts(uri, task), batch_size):
                answers = iter(_ask(model, [row.texts for row in rows if not row.error], form))
                for row in rows:
                    answer = [""] * len(form.columns) if row.error else next(answers)
                    table.writerow([uri, row.line, *answer, row.error])
                errors += sum(bool(row.error) for row in rows)
                progress.add(len(rows))
    return Counts(progress.rows, progress.rows - errors, errors)


def _batches(rows: Iterable[TextRow], size: int) -> Iterator[list[TextRow]]:
    iterator = iter(rows)
    while batch := list(islice(iterator, size)):
        yield batch


class _Form:
    """The columns and fields of an answer."""

    def __init__(self, labels: Sequence[str], kind: str, separator: str) -> None:
        self._kind = kind
        self._separator = separator
        of_labels = [f"p({label})" for label in labels]
        first = {
            "classification": ["label", "probability"],
            "multi_label": ["labels"],
            "regression": ["value"],
        }
        self.columns = [*first[kind], *of_labels]

    def lines(self, answers: dict[str, Any]) -> Iterator[list[str]]:
        """Yield the fields of every text.

        :param answers: arrays by name, as the signature ``predict`` returns them.
        """
        if self._kind == "regression":
            yield from ([f"{value:.6g}"] for value in answers["values"])
            return
        for label, shares in zip(answers["labels"], answers["probabilities"], strict=True):
            numbers = [f"{share:.6f}" for share in shares]
            if self._kind == "classification":
                yield [label.decode(), f"{max(shares):.6f}", *numbers]
            else:
                names = (name.decode() for name in label if name)
                yield [self._separator.join(names), *numbers]


def _ask(model: Answering, texts: list[tuple[str, ...]], form: _Form) -> Iterator[list[str]]:
    if not texts:
        return
    yield from form.lines({name: v.numpy() for name, v in model.predict(texts).items()})


class _Progress:
    """A counter of written lines that logs progress at intervals."""

    def __init__(self) -> None:
        self.rows = 0
        self._began = self._said = time.monotonic()

    def add(self, rows: int) -> None:
        """Count lines that are written."""
        self.rows += rows
        now = time.monotonic()
        if now - self._said >= SECONDS_BETWEEN_REPORTS:
            self._said = now
            speed = self.rows / (now - self._began)
            log.info("%s lines, %.0f a second", f"{self.rows:,}", speed)
