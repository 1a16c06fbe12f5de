"""Collects the evidence on a finished run: its ledgers, and independent records of its trainers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline_store.formats import JobStatus, JobUsage, SpentOn
from pipeline_store.layout import RunLayout, StoreLayout
from tpu_lifecycle.records.attempts import AttemptRecord, load_attempts, read_heartbeat
from tpu_lifecycle.records.billed import spent_since
from tpu_lifecycle.records.ledger import so_far
from tpu_lifecycle.records.reservation import newest_generation, open_reservation
from tpu_lifecycle.records.spending import by_lineage
from verification.chaos.audit import ALIVE, TraceEvent, read_trace

TRAINING = "010-train"
Json = dict[str, Any]


def collect(folder: Path, billed_chip_seconds: float) -> Json:
    """Return the evidence on the only run in a schedule's folder, as plain values.

    :param billed_chip_seconds: chip-seconds on the service's own bill.
    """
    store = StoreLayout(str(folder / "store"))
    runs = sorted((folder / "store" / "runs").iterdir())
    (run,) = [store.run(path.name) for path in runs if (path / "run.json").exists()]
    records = [record for _, found in _generations(run) for record in found]
    return {
        "service_chip_seconds": billed_chip_seconds,
        "entries": entries(run),
        "totals": totals(store),
        "trace": [asdict(event) for event in _known(read_trace(folder / "trace.jsonl"), records)],
        "other_startup": sum(
            usage.seconds.get(SpentOn.PROGRAM_STARTUP, 0.0)
            for record in records
            for usage in _usages(record)
            if usage.job_id != TRAINING
        ),
    }


def entries(run: RunLayout) -> list[Json]:
    """Return the ledgers' entries of all billed attempts."""
    found = [
        entry
        for reservation, _ in _generations(run)
        for entry in so_far(reservation.record, reservation.layout).entries
    ]
    return [entry.model_dump(mode="json") for entry in found if entry.billed_seconds]


def totals(store: StoreLayout) -> Json:
    """Return the totals of all lineages, as the command over runs reports them.

    :raises OSError: a file of a run cannot be read.
    """
    problems: list[str] = []
    lineages = by_lineage(spent_since(store, datetime(2020, 1, 1, tzinfo=UTC), problems=problems))
    if problems:
        raise OSError("; ".join(problems))
    return {
        "chip_seconds": sum(one.total.chip_seconds for one in lineages),
        "cost": sum(one.total.cost for one in lineages),
    }


def _generations(run: RunLayout) -> Iterator[tuple[Any, list[AttemptRecord]]]:
    for number in range(1, newest_generation(run) + 1):
        reservation = open_reservation(run.root, number)
        yield reservation, load_attempts(reservation.layout)


def _known(trace: list[TraceEvent], records: list[AttemptRecord]) -> list[TraceEvent]:
    """Return the events that a store can know: those up to the last report of each VM.

    The store also knows of checkpoints that were committed after it.
    """
    last = {record.attempt.token: _last_word(record) for record in records}
    return [
        known
        for event in trace
        if (known := known_of(event, last.get(event.token, 0.0))) is not None
    ]


def known_of(event: TraceEvent, last: float) -> TraceEvent | None:
    """Return what is known of an event, by the time of its VM's last report; 0: no report."""
    if not last or event.time <= last:
        return event if last else None
    return replace(event, time=last, event="commit" if event.event == "commit" else ALIVE)


def _last_word(record: AttemptRecord) -> float:
    """Return the time of a VM's last report on the training, in epoch seconds."""
    status = JobStatus.load_or_none(record.layout.status(0, TRAINING))
    if status and status.usage and status.token == record.attempt.token:
        return float("inf")
    beat = read_heartbeat(record, 0)
    return beat.time.timestamp() if beat else 0.0


def _usages(record: AttemptRecord) -> list[JobUsage]:
    beat = read_heartbeat(record, 0)
    jobs = {usage.job_id: usage for usage in (beat.usage if beat else [])}
    for job_id in tuple(jobs):
        status = JobStatus.load_or_none(record.layout.status(0, job_id))
        if status and status.usage and status.token == record.attempt.token:
            jobs[job_id] = status.usage
    return list(jobs.values())
