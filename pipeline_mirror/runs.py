"""What MLflow is told of a run: read from the store, in words that need no MLflow."""

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
"""What the names of this mirror's tags begin with."""

ENDED, UNTIL = f"{TAG}ended", f"{TAG}metrics_until"
"""Tags by which the next pass knows which outcome, and which records of a training, are there."""

STATUS = {
    None: "RUNNING",
    OutcomeKind.PROMOTED: "FINISHED",
    OutcomeKind.COMPLETED: "FINISHED",
    OutcomeKind.REJECTED: "FINISHED",
    OutcomeKind.SKIPPED: "FINISHED",
    OutcomeKind.FAILED: "FAILED",
    OutcomeKind.CANCELLED: "KILLED",
}
"""MLflow's word for each end of a run; a rejection is the result of a run that did its work."""

SOURCE_TYPE = "repretraining_store"
"""What MLflow calls the kind of place that datasets come from; it knows no word of its own."""

_MOST_TAG = 5000
"""Characters of a tag; MLflow would cut longer ones, and each pass would find them changed."""

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
    """A partition that a run has read, with what of it for.

    :ivar digest: id of its manifest, which is another one when its text has changed.
    :ivar source: where the manifest lies, JSON.
    :ivar profile: its counts, JSON.
    """

    name: str
    digest: str
    source: str
    profile: str
    context: str


@dataclass(frozen=True)
class RunFacts:
    """A run as it is at this moment.

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
    """Return what is known of a run.

    :param since: time of the newest record of its training that MLflow has; empty: none. Of a run
        that has ended all are returned: what MLflow has already, it keeps once.
    :raises FormatError: a file of the run is damaged.
    :raises BadDataError: a record of its training is.
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
    """Return a time as MLflow keeps it."""
    return round(time.timestamp() * 1000)


def metric_name(name: str) -> str:
    """Return a name that MLflow takes: letters, digits, and a few signs."""
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
    """Return the comparison that decided, of candidates that were rejected, too."""
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
    # An outcome is removed when a person lets a run go on: then nothing of it may be left.
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
        # What retention has removed is still named in the run's folder in the store.
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
