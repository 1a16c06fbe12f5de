"""Plans one preparation of a task, finds it if it is done, and commits it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

from beam_jobs.labelled.conversion import TaskVocabulary
from beam_jobs.labelled.description import load_task, task_files
from beam_jobs.labelled.inputs import identify, manifest_inputs, preparation_key
from beam_jobs.labelled.joining import join_letters, join_records
from beam_jobs.labelled.outcome import TaskOutcome
from beam_jobs.labelled.pipeline import LETTERS, TaskJob
from beam_jobs.labelled.verdict import TaskRefusedError, refusals, warnings
from corpus.errors import BadDataError, raise_failures
from pipeline_store import uris
from pipeline_store.formats import FileDigest, TaskManifest, TaskRecords, TaskSplit
from pipeline_store.layout import StoreLayout, TaskLayout


@dataclass(frozen=True)
class Preparation:
    """A preparation of a task, and its place in the store.

    ``key``: equal for equal bytes, settings and vocabulary.
    """

    name: str
    key: str
    layout: TaskLayout
    job: TaskJob

    @property
    def manifest_uri(self) -> str:
        """Return the URI of the manifest, whether or not it exists yet."""
        return self.layout.manifest(self.key)

    @property
    def _folder(self) -> str:
        return self.layout.preparation(self.key)

    def done(self) -> TaskManifest | None:
        """Return the committed manifest, or None.

        :raises BadDataError: files that it names are missing or have another size.
        """
        manifest = TaskManifest.load_or_none(self.manifest_uri)
        for split in manifest.splits.values() if manifest else ():
            for digest in (split.data, split.index, split.sources):
                uri = uris.join(self._folder, digest.path)
                if not uris.exists(uri) or uris.size(uri) != digest.bytes:
                    raise BadDataError(
                        f"{self.manifest_uri} names {digest.path} of {digest.bytes} bytes, which "
                        "is missing or of another size. Delete manifest.json and run again."
                    )
        return manifest

    def commit(self, outcome: TaskOutcome) -> TaskManifest:
        """Join the parts and create the manifest.

        :raises TaskRefusedError: the examples cannot be used.
        """
        job = self.job
        dead_letter = self._dead_letter()
        where = uris.join(self._folder, dead_letter.path) if dead_letter else None
        self.refuse_unusable(outcome, where)
        manifest = TaskManifest(
            name=self.name,
            key=self.key,
            task=job.task.model_dump(mode="json"),
            task_kind=job.task.kind,
            compared_by=job.task.compared_by,
            labels=outcome.labels,
            vocabulary_sha256=job.vocabulary_sha256,
            max_seq_length=job.max_seq_length,
            inputs=manifest_inputs(job.files),
            splits={split: self._records(outcome, split) for split in outcome.totals},
            dropped=outcome.dropped,
            dead_letter=dead_letter,
            warnings=warnings(outcome, job.task, job.max_seq_length),
        )
        # If another attempt was first, its manifest is the same.
        manifest.create(self.manifest_uri)
        return TaskManifest.load(self.manifest_uri)

    def refuse_unusable(self, outcome: TaskOutcome, letters: str | None = None) -> None:
        """Check the outcome of the job.

        :param letters: URI of the list of unusable examples.
        :raises TaskRefusedError: the examples cannot be used.
        """
        raise_failures(outcome.failures)
        if reasons := list(refusals(outcome, self.job.task, self.job.max_seq_length)):
            raise TaskRefusedError(self.name, reasons, letters)

    def _dead_letter(self) -> FileDigest | None:
        found = uris.list_files(self.job.folder)
        letters = [uri for uri in found if uri.rpartition("/")[2].startswith(LETTERS)]
        return join_letters(letters, self._folder)

    def _records(self, outcome: TaskOutcome, split: TaskSplit) -> TaskRecords:
        totals = outcome.totals[split]
        is_labelled = split is not TaskSplit.PREDICT
        return TaskRecords(
            **join_records(outcome.of(split), self._folder, str(split)),
            records=totals.records,
            labels=outcome.label_counts.get(split, {}) if is_labelled else {},
            truncated=totals.truncated,
            tokens=totals.tokens,
        )


def plan_preparation(
    store: StoreLayout, name: str, *, lineage_id: str, max_seq_length: int
) -> Preparation:
    """Return the preparation of a task as its description and files are now.

    :raises ConfigError: the task's description is missing or wrong.
    :raises UserError: there are no such files, or the lineage has no vocabulary.
    """
    task = load_task(store, name)
    files = identify(task_files(store, name, task), task)
    vocabulary = TaskVocabulary.load(store, lineage_id, max_seq_length)
    key = preparation_key(files, task, vocabulary.sha256, max_seq_length)
    layout = store.task(name)
    job = TaskJob(
        store=store,
        task=task,
        files=files,
        folder=uris.join(layout.preparation(key), f"try-{uuid.uuid4().hex}"),
        lineage_id=lineage_id,
        vocabulary_sha256=vocabulary.sha256,
        max_seq_length=max_seq_length,
    )
    return Preparation(name, key, layout, job)


def in_folder(preparation: Preparation, folder: str) -> Preparation:
    """Return the same preparation with its temporary files elsewhere."""
    return replace(preparation, job=replace(preparation.job, folder=folder))
