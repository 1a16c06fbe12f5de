"""Makes the children of a classifier, measures and judges each, and commits the results."""

from __future__ import annotations

import logging
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from pipeline_config.compression import STUDENT, TFLITE, TRIM, CompressionConfig, steps_of
from pipeline_store import uris
from pipeline_store.formats import (
    ChildParent,
    CompressedModel,
    ModelFigures,
    TaskSplit,
)
from pipeline_store.layout import ChildrenLayout, StoreLayout
from trained_models.commit import CommitGuard
from trained_models.compression import card, records
from trained_models.compression.comparison import compare
from trained_models.compression.gate import reasons_against
from trained_models.compression.trimming import Arrays
from trained_models.errors import PreemptedError, UserError
from training.compression import tflite, written
from training.compression.student import student_job, train_student
from training.compression.trimmed import Trimmed, trim
from training.exporting import writing
from training.finetuning.exporting.chosen import ChosenTrial
from training.finetuning.exporting.exporter import TextModel
from training.finetuning.exporting.functions import write_saved_model
from training.finetuning.task_data import Examples, Task
from training.finetuning.trained import predict_logits
from training.runtime.job import StopRequest

log = logging.getLogger("training")

Outputs = npt.NDArray[np.float32]


@dataclass(frozen=True)
class _Source:
    """A model to be written, and the function that makes its rows."""

    model: TextModel
    rows: Callable[[Arrays], Arrays]
    trimmed: Trimmed | None = None


@dataclass(frozen=True)
class Maker:
    """A maker of children of one classifier.

    :param parent: classifier of a finished trial.
    :param layout: folder of its children.
    """

    chosen: ChosenTrial
    identity: ChildParent
    parent: TextModel
    store: StoreLayout
    layout: ChildrenLayout
    settings: CompressionConfig
    guard: CommitGuard
    stop: StopRequest

    @classmethod
    def load(
        cls,
        chosen: ChosenTrial,
        *,
        identity: ChildParent,
        store: StoreLayout,
        layout: ChildrenLayout,
        settings: CompressionConfig,
        guard: CommitGuard,
        stop: StopRequest,
    ) -> Maker:
        """Load the parent.

        :raises UserError: it is a probe, its task has no test examples, or TensorFlow has no
            operation for its tokenizer.
        """
        parent = TextModel.load(chosen, store)
        name = chosen.result.trial.trial_id
        if parent.trained.encoder is not None:
            raise UserError(
                f"{name}: finetuning.frozen_encoder was on, so it is a dense layer on an encoder "
                "that other tasks share, and no model of its own. Fine-tune without it."
            )
        if not parent.tokenizer.has_text_ops:
            raise UserError(
                f"{name}: its vocabulary is of kind {parent.tokenizer.vocabulary.kind}, for which "
                "TensorFlow has no operation, so a written model could not take texts."
            )
        Task.load(chosen.manifest_uri).records(TaskSplit.TEST)
        return cls(chosen, identity, parent, store, layout, settings, guard, stop)

    def make(self, names: Sequence[str]) -> list[CompressedModel]:
        """Return the children of these names, making those that are missing.

        :raises PreemptedError: a stop was requested; the same call continues.
        :raises UserError: a child exists with other settings, or cannot be made.
        """
        return list(self._make(names))

    def _make(self, names: Sequence[str]) -> Iterator[CompressedModel]:
        for name in names:
            place = self.layout.child(name)
            found = CompressedModel.load_or_none(place.record)
            if found is not None:
                records.require_same(found, place.record, self.identity, self.settings)
                log.info("Child %s is there already.", name)
                yield found
                continue
            if self.stop.requested:
                raise PreemptedError(f"stopped before child {name}; the same command goes on.")
            yield self._child(name)

    def _child(self, name: str) -> CompressedModel:
        source = self._source(steps_of(name))
        last = steps_of(name)[-1]
        form = "tflite" if last in TFLITE else writing.SAVED_MODEL
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch, form)
            if last in TFLITE:
                tflite.write(folder, source.model, last)
            else:
                write_saved_model(folder, source.model.functions())
            child = self._judged(name, source, folder)
            if child.accepted:
                (Path(scratch) / "README.md").write_text(card.render(child), "utf-8")
                unique = uuid.uuid4().hex[:12]
                files = writing.upload(Path(scratch), self.layout.child(name).files(unique))
                child = child.model_copy(update={"folder": unique, "files": files})
        self.guard.check()
        place = self.layout.child(name).record
        if not child.create(place):
            child = CompressedModel.load(place)
        for reason in child.reasons:
            log.warning("Child %s is refused. %s", name, reason)
        return child

    def _judged(self, name: str, source: _Source, folder: Path) -> CompressedModel:
        manifest, test = self.chosen.manifest, self._test
        rows = source.rows(test.inputs)
        outputs = written.answers(folder, rows)
        figures = written.figures(folder, source.model, manifest, test.known_labels, outputs)
        converted = predict_logits(source.model.trained, Examples(rows, None))
        trimmed = source.trimmed
        parent_figures, parent_outputs = self._parent_figures
        try:
            comparison = compare(
                manifest.label_kind,
                manifest.compared_by,
                test.known_labels,
                child=outputs,
                parent=parent_outputs,
                converted=converted,
                covered=None if trimmed is None else trimmed.covered,
                covered_difference=None if trimmed is None else trimmed.difference,
            )
        except ValueError as error:
            raise UserError(
                f"Task {manifest.name!r}: {error} Give its test split more examples."
            ) from error
        reasons = reasons_against(
            name, self.settings, parent=parent_figures, child=figures, comparison=comparison
        )
        return CompressedModel(
            name=name,
            task=manifest.name,
            parent=self.identity,
            settings=self.settings.model_dump(mode="json", exclude={"children"}),
            parent_figures=parent_figures,
            figures=figures,
            comparison=comparison,
            accepted=not reasons,
            reasons=reasons,
            served_as=folder.name,
            folder="",
            files=[],
            created=datetime.now(UTC),
        )

    def _source(self, steps: tuple[str, ...]) -> _Source:
        if TRIM in steps:
            trimmed = self._trimmed_student if STUDENT in steps else self._trimmed_parent
            return _Source(trimmed.model, trimmed.rows, trimmed)
        model = self._student if STUDENT in steps else self.parent
        return _Source(model, lambda rows: rows)

    @cached_property
    def _test(self) -> Examples:
        return Task.load(self.chosen.manifest_uri).examples(TaskSplit.TEST)

    @cached_property
    def _parent_figures(self) -> tuple[ModelFigures, Outputs]:
        """Return the parent's figures, measured now on its SavedModel, and its logits."""
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch, writing.SAVED_MODEL)
            write_saved_model(folder, self.parent.functions())
            outputs = written.answers(folder, self._test.inputs)
            labels, manifest = self._test.known_labels, self.chosen.manifest
            return written.figures(folder, self.parent, manifest, labels, outputs), outputs

    @cached_property
    def _student(self) -> TextModel:
        job = student_job(self.chosen, self.layout.student, self.store, self.settings)
        chosen = train_student(
            self.parent,
            job,
            self.settings,
            strategy=tf.distribute.OneDeviceStrategy("/cpu:0"),
            guard=self.guard,
            stop=self.stop,
        )
        return TextModel.load(chosen, self.store)

    @cached_property
    def _trimmed_student(self) -> Trimmed:
        return trim(self._student, Task.load(self.chosen.manifest_uri))

    @cached_property
    def _trimmed_parent(self) -> Trimmed:
        return trim(self.parent, Task.load(self.chosen.manifest_uri))


def all_children(layout: ChildrenLayout) -> list[CompressedModel]:
    """Return the existing children of a classifier, sorted by name."""
    found = [uri for uri in uris.list_files(layout.root) if uri.endswith("/child.json")]
    return [CompressedModel.load(uri) for uri in sorted(found)]
