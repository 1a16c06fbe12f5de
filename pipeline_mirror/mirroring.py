"""Makes a pass of the mirror to MLflow, which adds what MLflow is missing, oldest first.

State between passes is kept only in MLflow itself, so that a server that was unavailable, or was
created anew, is complete after the next pass. Ended runs that are mirrored are not read again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from model_registry import versions
from pipeline_config.settings import load_settings, mlflow_tracking_uri
from pipeline_mirror.models import (
    pointer_tags,
    readable_versions,
    source_of,
    version_description,
    version_tags,
)
from pipeline_mirror.passes import Report, store_label
from pipeline_mirror.runs import ENDED, UNTIL, read_run
from pipeline_store import uris
from pipeline_store.details import ObjectDetails
from pipeline_store.formats import ProductionPointer, RunOutcome, RunRecord
from pipeline_store.layout import StoreLayout
from tpu_lifecycle.records.billed import WEEKS

if TYPE_CHECKING:
    from pipeline_mirror.mlflow_server import MirroredRun, MlflowServer

WINDOW = timedelta(weeks=WEEKS)
"""Age above which ended runs are left out: the same window as on the page *Spending*."""


@dataclass
class RunReport(Report):
    """The results of a pass.

    :ivar runs: keys of the runs that were written.
    """

    runs: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Return a summary of the pass in one line."""
        return f"{len(self.runs)} run(s) written; {super().__str__()}"


def mirror(store: StoreLayout, server: MlflowServer, *, prefix: str, since: datetime) -> RunReport:
    """Make a pass.

    :param prefix: prefix of the names of experiments and registered models.
    :param since: runs that began earlier and have ended are left out.
    :raises ServerAwayError: MLflow is unavailable, or became so.
    """
    report = RunReport()
    lines = {
        lineage_id: _Line(store, server, report, lineage_id, prefix)
        for lineage_id in versions.lineage_ids(store)
    }
    ready = {}
    for lineage_id, line in lines.items():
        with report.collected(f"lineage {lineage_id}"):
            line.open()
            ready[lineage_id] = line
    _mirror_runs(store, ready, report, since)
    for lineage_id, line in ready.items():
        with report.collected(f"models of lineage {lineage_id}"):
            line.mirror_models()
    return report


def mirror_configured(store: StoreLayout, window: timedelta = WINDOW) -> RunReport:
    """Make a pass to the server that the environment names; see ``docs/guides/sharing.md``.

    :param window: runs that began longer ago and have ended are left out.
    :raises ConfigError: the environment names no server.
    :raises ImportError: ``mlflow`` is not installed here.
    :raises ServerAwayError: MLflow is unavailable.
    """
    uri, prefix = mlflow_tracking_uri(), load_settings().mlflow_prefix
    if (label := store_label(store)) is None:
        return RunReport()
    try:
        from pipeline_mirror.mlflow_server import MlflowServer
    except ImportError as error:
        raise ImportError(
            f"{error}. The mirror needs mlflow-skinny: install requirements-mlflow.txt where it "
            "runs."
        ) from error
    server = MlflowServer(uri, label)
    return mirror(store, server, prefix=prefix, since=datetime.now(UTC) - window)


def _mirror_runs(
    store: StoreLayout, lines: dict[str, _Line], report: RunReport, since: datetime
) -> None:
    known = {key: line for line in lines.values() for key in line.runs}
    wanted: list[tuple[RunRecord, _Line, str]] = []
    for key, files in _listed(store).items():
        begun, ended = files.get("run"), _identity(files.get("outcome"))
        if begun is None or (ended and begun.modified < since and key not in known):
            continue
        if key in known and known[key].has(key, ended):
            continue
        with report.collected(f"run {key}"):
            record = RunRecord.load(store.run(key).record)
            # Folders of further TPUs are not runs; a fine-tuning run makes no version.
            if record.rental_of is None and record.partition and record.lineage_id in lines:
                wanted.append((record, lines[record.lineage_id], ended))
    for record, line, ended in sorted(wanted, key=lambda one: one[0].created):
        with report.collected(f"run {record.run_key}"):
            line.mirror_run(record, ended)


def _listed(store: StoreLayout) -> dict[str, dict[str, ObjectDetails]]:
    found: dict[str, dict[str, ObjectDetails]] = {}
    for details in uris.list_named(store.runs, "run.json", "outcome.json"):
        _, key, name = details.uri.rsplit("/", 2)
        found.setdefault(key, {})[name.removesuffix(".json")] = details
    return found


def _identity(outcome: ObjectDetails | None) -> str:
    """Return an outcome's identity, which changes when it is rewritten; empty: no outcome."""
    return f"{outcome.modified.isoformat()} {outcome.bytes}" if outcome is not None else ""


class _Line:
    """One lineage and its runs, in the store and in MLflow.

    :ivar runs: the runs that MLflow has, by key; set by :meth:`open`.
    """

    def __init__(
        self,
        store: StoreLayout,
        server: MlflowServer,
        report: RunReport,
        lineage_id: str,
        prefix: str,
    ) -> None:
        self.runs: dict[str, MirroredRun] = {}
        self._store = store
        self._server = server
        self._report = report
        self._lineage = store.lineage(lineage_id)
        self._name = prefix + lineage_id
        self._experiment = ""

    def open(self) -> None:
        """Find or create the experiment, and delete duplicate runs."""
        self._experiment = self._server.experiment(self._name)
        self.runs = self._server.runs(self._experiment)
        for run in self.runs.values():
            for copy in run.copies:
                self._server.delete_run(copy)

    def has(self, key: str, ended: str) -> bool:
        """Return whether a run needs no update."""
        known = self.runs[key]
        # A run that a person has deleted there stays deleted.
        return known.is_deleted or (bool(ended) and known.ended == ended)

    def mirror_run(self, record: RunRecord, ended: str) -> None:
        """Write a run if it has changed."""
        known = self.runs.get(record.run_key)
        run = self._store.run(record.run_key)
        outcome = RunOutcome.load_or_none(run.outcome) if ended else None
        facts = read_run(run, record, outcome, known.until if known else "")
        marks = {ENDED: ended if outcome else "", UNTIL: facts.until}
        tags = facts.tags | marks
        if known is not None and tags.items() <= known.tags.items():
            return
        run_id = known.id if known else self._server.begin_run(self._experiment, facts)
        self._server.write_run(run_id, facts, marks)
        self._report.runs.append(record.run_key)

    def mirror_models(self) -> None:
        """Add missing versions, mark versions that the store no longer has, and move the alias."""
        stored = {one.uri.split("/")[-2] for one in versions.list_commits(self._lineage)}
        pointer = ProductionPointer.load_or_none(self._lineage.production)
        if not stored:
            return
        tags = self._server.registered_model(self._name)
        there = self._server.versions(self._name)
        numbers = {version_id: one.number for version_id, one in there.items()}
        numbers |= self._add(stored - set(there))
        for version_id, one in there.items():
            is_removed = version_id not in stored
            for number, mark in one.marks.items():
                if mark != is_removed:
                    self._server.mark_removed(self._name, number, is_removed=is_removed)
        if pointer is None or pointer.version_id not in numbers:
            return
        number, wanted = numbers[pointer.version_id], pointer_tags(pointer)
        is_moved = self._server.in_use(self._name) != number
        if is_moved or any(tags.get(name) != value for name, value in wanted.items()):
            self._server.put_in_use(self._name, number, wanted)
        if is_moved:
            self._report.moved[self._name] = pointer.version_id

    def _add(self, missing: set[str]) -> dict[str, str]:
        numbers = {}
        runs = self._server.runs(self._experiment) if missing else {}
        described = []
        for model in readable_versions(self._lineage, missing, self._report, self._name):
            with self._report.collected(f"version {model.version_id} of {self._name}"):
                tags = version_tags(self._lineage, model)
                described.append((model, tags, version_description(self._lineage, model)))
        for model, tags, description in described:
            made = runs.get(model.run_key)
            numbers[model.version_id] = self._server.add_version(
                self._name,
                source=source_of(self._lineage.version(model.version_id)),
                run_id=made.id if made else None,
                tags=tags,
                description=description,
            )
            self._report.versions.append(model.version_id)
        return numbers
