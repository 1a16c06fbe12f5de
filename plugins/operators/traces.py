"""Makes a run's OpenTelemetry trace: its tasks, its data jobs, and the time spent on its TPUs.

Spans are made from records, after the work has ended. Every sender derives the same trace id from
the run's key, so no context has to be passed on, and a span that is sent twice is the same span. If
Airflow sends traces itself, our spans join its trace, and it sends the spans of tasks.

``plugins/run_traces.py`` imports this if the environment turns traces on.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pipeline_store import identity, uris
from pipeline_store.formats import LedgerEntry, Reservation, RunRecord, SpentOn
from pipeline_store.layout import ReservationLayout, RunLayout
from tpu_lifecycle.records.attempt_time import Piece
from tpu_lifecycle.records.attempts import load_attempts
from tpu_lifecycle.records.ledger import so_far, timelines

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext

SERVICE = "bert-repretraining"
"""Name of the service, unless ``OTEL_SERVICE_NAME`` is set."""

log = logging.getLogger(__name__)

Attributes = Mapping[str, str | int | float | bool]


@dataclass(frozen=True)
class Part:
    """A span that is to be sent.

    :ivar name: the displayed name.
    :ivar path: identifies the part within its run.
    :ivar parent: path of the enclosing part; empty: the run's own span.
    :ivar error: why it failed; empty: it did not fail.
    """

    name: str
    path: str
    start: datetime
    end: datetime
    parent: str = ""
    attributes: Attributes = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True)
class Task:
    """A try of a task, as Airflow has recorded it."""

    task_id: str
    map_index: int
    try_number: int
    state: str
    start: datetime
    end: datetime


def run_part(dag_id: str, run_id: str, state: str, start: datetime, end: datetime) -> Part:
    """Return the span of a whole run; all others are in it."""
    attributes = {
        "airflow.dag_id": dag_id,
        "airflow.dag_run.run_id": run_id,
        "airflow.dag_run.state": state,
        "repretraining.run_key": identity.run_key(dag_id, run_id),
    }
    return Part(dag_id, "", start, end, attributes=attributes, error=_failed(state))


def task_part(task: Task) -> Part:
    """Return the span of a try of a task."""
    attributes: Attributes = {
        "airflow.task_id": task.task_id,
        "airflow.task_instance.try_number": task.try_number,
        "airflow.task_instance.map_index": task.map_index,
        "airflow.task_instance.state": task.state,
    }
    number = f"[{task.map_index}]" if task.map_index >= 0 else ""
    path = task_path(task.task_id, task.map_index, task.try_number)
    name = f"{task.task_id}{number}"
    return Part(name, path, task.start, task.end, attributes=attributes, error=_failed(task.state))


def task_path(task_id: str, map_index: int, try_number: int) -> str:
    """Return the path that identifies a try of a task within its run."""
    return f"task/{task_id}/{map_index}/{try_number}"


def module_parts(task_path: str, runs: Sequence[tuple[str, datetime, datetime]]) -> list[Part]:
    """Return the spans of the modules that a task has run, such as the data job on Beam.

    :param task_path: path of the task's try.
    :param runs: module, begin and end of each.
    """
    return [
        Part(f"python -m {module}", f"{task_path}/{number}", start, end, parent=task_path)
        for number, (module, start, end) in enumerate(runs)
    ]


def tpu_parts(rental: RunLayout) -> Iterator[Part]:
    """Yield spans of the time on the TPUs of a run, or of one of its further rentals.

    The seconds of the billed parts add up to those of the ledger. For a job's time only the totals
    by name are known: there is one part for each name, one after the other, no matter when the
    many short intervals that it stands for took place.
    """
    number = 1
    while uris.exists(rental.reservation(number).record):
        yield from _generation(rental, rental.reservation(number))
        number += 1


def _generation(rental: RunLayout, layout: ReservationLayout) -> Iterator[Part]:
    reservation = Reservation.load(layout.record)
    records, books = load_attempts(layout), so_far(reservation, layout)
    lines = timelines(reservation, layout, records)
    key = RunRecord.load(rental.record).run_key
    for record, entry, (waits, pieces) in zip(records, books.entries, lines, strict=True):
        path = f"tpu/{key}/{reservation.generation}/{record.number}"
        start = min([piece.start for piece in waits], default=entry.created)
        yield Part(
            f"TPU {record.name.resource_id}",
            path,
            start,
            max(entry.gone, start),
            attributes=_attempt(entry, books.currency),
            error=entry.loss and f"lost: {entry.loss}",
        )
        for is_billed, parts in ((False, waits), (True, pieces)):
            for place, piece in enumerate(parts):
                yield from _piece(path, f"{path}/{is_billed}/{place}", piece, entry, is_billed)


def _attempt(entry: LedgerEntry, currency: str) -> Attributes:
    return {
        "repretraining.tpu.zone": entry.zone,
        "repretraining.tpu.accelerator_type": entry.accelerator_type,
        "repretraining.tpu.chips": entry.chips,
        "repretraining.tpu.outcome": entry.outcome,
        "repretraining.tpu.billed_seconds": entry.billed_seconds,
        "repretraining.tpu.chip_seconds": entry.chip_seconds,
        "repretraining.tpu.cost": entry.cost,
        "repretraining.tpu.currency": currency,
    }


def _piece(
    parent: str, path: str, piece: Piece, entry: LedgerEntry, is_billed: bool
) -> Iterator[Part]:
    if piece.job_id:
        yield Part(f"job {piece.job_id}", path, piece.start, piece.end, parent=parent)
        parent = path
    now = piece.start
    for name, seconds in piece.seconds.items():
        end = now + timedelta(seconds=seconds)
        attributes: Attributes = {
            "repretraining.spent_on": str(name),
            "repretraining.seconds": seconds,
            "repretraining.chip_seconds": seconds * entry.chips if is_billed else 0.0,
            "repretraining.is_billed": is_billed,
            "repretraining.is_goodput": name is SpentOn.STEP,
            "repretraining.is_sum": len(piece.seconds) > 1,
        }
        yield Part(str(name), f"{path}/{name}", now, end, parent=parent, attributes=attributes)
        now = end


def _failed(state: str) -> str:
    return state if state in ("failed", "upstream_failed") else ""


def send(run_key: str, parts: Sequence[Part], carrier: Mapping[str, Any] | None = None) -> bool:
    """Send spans of a run; return whether the receiver accepted them. Never raises.

    :param carrier: Airflow's trace context of a task, if Airflow sends traces itself.
    """
    return sender(run_key, parts, carrier)()


def sender(
    run_key: str, parts: Sequence[Part], carrier: Mapping[str, Any] | None = None
) -> Callable[[], bool]:
    """Return a function that sends spans like :func:`send`, and may run in a thread.

    It imports nothing: a thread that imports while its process forks would leave the child with an
    import lock that is never released.
    """
    try:
        spans = _spans(run_key, parts, carrier) if parts else []
        exporter = _exporter() if spans else None
    except Exception as error:  # noqa: BLE001 - a run does not depend on who watches it
        log.warning("Traces of run %s could not be made: %r", run_key, error)
        exporter = None

    def export() -> bool:
        if exporter is None:
            return False
        try:
            result = exporter.export(spans)
            exporter.shutdown()
        except Exception as error:  # noqa: BLE001 - as above
            log.warning("Traces of run %s could not be sent: %r", run_key, error)
            return False
        is_taken: bool = result.name == "SUCCESS"
        return is_taken

    return export


def _spans(
    run_key: str, parts: Sequence[Part], carrier: Mapping[str, Any] | None
) -> list[ReadableSpan]:
    """Return finished spans; an empty list if the run is not sampled."""
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider

    parent = None
    if carrier is not None:
        parent = _from_carrier(carrier)
        if parent is None or not parent.trace_flags.sampled:
            return []
    trace_id = parent.trace_id if parent is not None else int(identity.trace_id(run_key), 16)
    # By OTEL_TRACES_SAMPLER. All senders of a trace must decide alike, so not by the current span:
    # Airflow runs each task in its own span, which is not sampled if Airflow sends no traces.
    sampler = TracerProvider(shutdown_on_exit=False).sampler
    is_sampled = sampler.should_sample(Context(), trace_id, run_key).decision.is_sampled()
    if parent is None and not is_sampled:
        return []
    return [_span(run_key, trace_id, part, parent) for part in parts]


def _exporter() -> Any:
    """Return an exporter, set up by the standard variables for address, headers and timeout."""
    names = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    if next(filter(None, map(os.environ.get, names)), "") == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as Grpc

        return Grpc()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def _from_carrier(carrier: Mapping[str, Any]) -> SpanContext | None:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = trace.get_current_span(
        TraceContextTextMapPropagator().extract(dict(carrier))
    ).get_span_context()
    return context if context.is_valid else None


def _span(run_key: str, trace_id: int, part: Part, above: SpanContext | None) -> ReadableSpan:
    """Return a finished span.

    :param above: a span of Airflow's that replaces the run's own span and those of tasks.
    """
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

    def context(path: str) -> SpanContext:
        span_id = _span_id(run_key, path)
        return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(1))

    is_root = not part.path
    parent = None if is_root else context(part.parent)
    if above is not None and (not part.parent or part.parent.startswith("task/")):
        parent = above
    status = Status(StatusCode.ERROR, part.error) if part.error else Status(StatusCode.OK)
    service = os.environ.get("OTEL_SERVICE_NAME") or SERVICE
    return ReadableSpan(
        name=part.name,
        context=context(part.path),
        parent=parent,
        resource=Resource.create({SERVICE_NAME: service}),
        attributes=dict(part.attributes),
        instrumentation_scope=InstrumentationScope(SERVICE),
        status=status,
        start_time=_nanoseconds(part.start),
        end_time=_nanoseconds(part.end),
    )


def _span_id(run_key: str, path: str) -> int:
    """Return a span's id: any 64-bit number except 0 is valid."""
    return int.from_bytes(hashlib.sha256(f"{run_key}/{path}".encode()).digest()[:8]) or 1


def _nanoseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1e6) * 1000
