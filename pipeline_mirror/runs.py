"""Reads from the store what is sent to MLflow about a run; needs no MLflow."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from model_registry.publishing import metrics_of
from pipeline_config import parse_config
from pipeline_store import uris
from pipeline_store.formats import (
    EvaluationReport,
    OutcomeKind,
    PartitionManifest,
    RunOutcome,
    RunPlan,
    RunRecord,
    Split,
    TrainingResult,
    Verdict,
)
from pipeline_store.layout import RunLayout
from trained_models import metric_files

TAG = "repretrain."
"""Prefix of the names of this mirror's tags."""

ENDED, UNTIL = f"{TAG}ended", f"{TAG}metrics_until"
"""Tags that tell the next pass which outcome and which training records are mirrored."""

STATUS = {
    None: "RUNNING",
    OutcomeKind.PROMOTED: "FINISHED",
    OutcomeKind.COMPLETED: "FINISHED",
    OutcomeKind.REJECTED: "FINISHED",
    OutcomeKind.SKIPPED: "FINISHED",
    OutcomeKind.FAILED: "FAILED",
    OutcomeKind.CANCELLED: "KILLED",
}
"""MLflow's status for each outcome of a run; a rejection is the result of a run that finished."""

SOURCE_TYPE = "repretraining_store"
"""Source type of datasets in MLflow, which has no suitable type of its own."""

_MOST_TAG = 5000
"""Most characters of a tag; MLflow truncates longer ones, so each pass would see a change."""

_PREFIXES = {metric_files.LOOP: "training", metric_files.HELD_OUT: "held_out"}
_FORBIDDEN = re.compile(r"[^\w\-. :/]", re.ASCII)


@dataclass(frozen=True)
class Number:
    """A value of a metric.

    :ivar time: milliseconds since 1970.
    """

    name: str
    value: float
    time: int
    step: int


@dataclass(frozen=True)
class Dataset:
    """A partition that a run has read.

    :ivar digest: id of its manifest, which changes with its text.
    :ivar source: address of the manifest, as JSON.
    :ivar profile: its counts, as JSON.
    :ivar context: what the run has read it for, such as training or replay.
    """

    name: str
    digest: str
    source: str
    profile: str
    context: str


@dataclass(frozen=True)
class RunFacts:
    """The current state of a run.

    :ivar until: time of the newest record of its training; empty: there is none.
    """

    name: str
    status: str
    start: int
    end: int | None
    params: dict[str, str]
    tags: dict[str, str]
    numbers: list[Number]
    datasets: list[Dataset]
    until: str


def read_run(run: RunLayout, record: RunRecord, outcome: RunOutcome | None, since: str) -> RunFacts:
    """Return the known facts about a run.

    :param since: time of the newest record of its training that MLflow has; empty: none. For an
        ended run all records are returned: MLflow stores repeated ones only once.
    :raises FormatError: a file of the run is damaged.
    :raises BadDataError: a record of its training is damaged.
    """
    records = metric_files.read(run.training.metrics)
    new = [one for one in records if outcome or one["time"] > since]
    plan = RunPlan.load_or_none(run.plan)
    numbers = [number for one in new for number in _training(one)]
    if outcome is not None and plan is not None:
        numbers += _evaluation(run, plan, outcome)
    return RunFacts(
        name=record.partition,
        status=STATUS[outcome.outcome if outcome else None],
        start=milliseconds(record.created),
        end=milliseconds(outcome.time) if outcome else None,
        params=_params(run),
        tags=_tags(run, record, plan, outcome),
        numbers=numbers,
        datasets=_datasets(plan) if plan else [],
        until=max((one["time"] for one in records), default=""),
    )


def milliseconds(time: datetime) -> int:
    """Return a time in milliseconds since 1970, as MLflow stores it."""
    return round(time.timestamp() * 1000)


def metric_name(name: str) -> str:
    """Return a name that MLflow accepts: letters, digits, and a few other characters."""
    return _FORBIDDEN.sub("_", name)


def _params(run: RunLayout) -> dict[str, str]:
    data = uris.read_or_none(run.config)
    if data is None:
        return {}
    return dict(_flat("", parse_config(data, run.config).model_dump(mode="json")))


def _flat(prefix: str, settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield settings by their dotted names, as in forms and on the command line."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(f"{prefix}{name}.", value)
        else:
            yield prefix + name, value if isinstance(value, str) else json.dumps(value)


def _training(record: metric_files.Record) -> Iterator[Number]:
    prefix = _PREFIXES.get(record["kind"])
    if prefix is None:
        return
    time = milliseconds(datetime.fromisoformat(record["time"]))
    for name in metric_files.FIELDS[record["kind"]]:
        value = record.get(name)
        if isinstance(value, int | float):
            yield Number(f"{prefix}/{name}", float(value), time, int(record["step"]))


def _evaluation(run: RunLayout, plan: RunPlan, outcome: RunOutcome) -> list[Number]:
    """Return the metrics of the comparison that decided, also of rejected candidates."""
    report = EvaluationReport.load_or_none(run.evaluation(plan.parent_version))
    verdict = Verdict.load_or_none(run.verdict(plan.parent_version))
    result = TrainingResult.load_or_none(run.training.result)
    if report is None or verdict is None:
        return []
    time, step = milliseconds(outcome.time), result.train_steps if result else 0
    found = metrics_of(report, verdict)
    return [
        Number(metric_name(f"evaluation/{name}"), value, time, step)
        for name, value in found.items()
    ]


def _tags(
    run: RunLayout, record: RunRecord, plan: RunPlan | None, outcome: RunOutcome | None
) -> dict[str, str]:
    tags = {
        "mlflow.source.name": record.dag_id,
        "mlflow.source.type": "JOB",
        f"{TAG}run_key": record.run_key,
        f"{TAG}dag_id": record.dag_id,
        f"{TAG}run_id": record.run_id,
        f"{TAG}lineage": record.lineage_id,
        f"{TAG}partition": record.partition,
        f"{TAG}folder": run.root,
    }
    if plan is not None:
        tags[f"{TAG}parent_version"] = plan.parent_version or ""
    # When a person resumes a run, its outcome is removed: then these tags must be emptied.
    tags |= {
        f"{TAG}outcome": str(outcome.outcome) if outcome else "",
        f"{TAG}version_id": (outcome.version_id or "") if outcome else "",
        "mlflow.note.content": outcome.reason if outcome else "",
    }
    return {name: value[:_MOST_TAG] for name, value in tags.items()}


def _datasets(plan: RunPlan) -> list[Dataset]:
    contexts: dict[tuple[str, str], list[str]] = {}
    for context, named in (
        ("training", plan.trained),
        ("replay", plan.replayed),
        ("evaluation", plan.evaluated),
    ):
        for partition, uri in named.items():
            contexts.setdefault((partition, uri), []).append(context)
    found = []
    for (partition, uri), words in contexts.items():
        manifest = PartitionManifest.load_or_none(uri)
        # The plan may name a manifest that retention has removed.
        if manifest is not None:
            found.append(_dataset(partition, uri, manifest, ", ".join(words)))
    return found


def _dataset(partition: str, uri: str, manifest: PartitionManifest, context: str) -> Dataset:
    profile = {
        "documents": manifest.documents,
        "dropped": sum(manifest.dropped.values()),
        "training_rows": manifest.training_rows,
        "training_tokens": manifest.tokens.get(Split.TRAIN, 0),
        "held_out_rows": manifest.records.get(Split.VALIDATION, 0),
        "held_out_tokens": manifest.tokens.get(Split.VALIDATION, 0),
    }
    return Dataset(
        name=partition,
        digest=uri.rpartition("/")[2].removesuffix(".json"),
        source=json.dumps({"uri": uri}),
        profile=json.dumps(profile),
        context=context,
    )
