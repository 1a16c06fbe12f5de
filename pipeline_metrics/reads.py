"""How each metric is read from a snapshot: the values of its labels, and its own."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import takewhile

from pipeline_alerts.causes import Cause, Severity, severity
from pipeline_metrics.installation import AlertKind
from pipeline_metrics.lineages import SeenLineage
from pipeline_metrics.runs import SeenRun, SeenTpu, TpuState
from pipeline_metrics.snapshot import Snapshot
from pipeline_store.formats import (
    Heartbeat,
    LineageLease,
    OutcomeKind,
    PartitionManifest,
    Progress,
    SpentOn,
)
from tpu_lifecycle.records.spending import LineageSpending, by_lineage

Samples = Iterator[tuple[tuple[str, ...], float]]

GOING_ON, REFUSED, USED = "going_on", "refused", "used"
FAILURES = frozenset({OutcomeKind.FAILED, OutcomeKind.CANCELLED})
COPIES = frozenset({"duplicate", "near_duplicate"})
"""Reasons for which a document is not lost: it, or one like it, is used elsewhere."""


def runs(snapshot: Snapshot) -> Samples:
    """Yield runs by outcome; each outcome of a DAG that has any runs."""
    found: Counter[tuple[str, str, str]] = Counter()
    for run in _own(snapshot):
        if run.outcome is None and run.has_ended:
            continue  # its outcome cannot be read
        outcome = str(run.outcome.outcome) if run.outcome is not None else GOING_ON
        found[run.record.lineage_id, run.record.dag_id, outcome] += 1
    for refused in snapshot.runs.refused:
        found[refused.lineage_id, refused.dag_id, REFUSED] += 1
    for lineage, dag in sorted({(lineage, dag) for lineage, dag, _ in found}):
        for outcome in (*OutcomeKind, GOING_ON, REFUSED):
            yield (lineage, dag, str(outcome)), found[lineage, dag, outcome]


def failed_in_a_row(snapshot: Snapshot) -> Samples:
    """Yield how many of the newest ended runs failed."""
    return _in_a_row(snapshot, FAILURES)


def rejected_in_a_row(snapshot: Snapshot) -> Samples:
    """Yield how many of the newest ended runs were rejected."""
    return _in_a_row(snapshot, frozenset({OutcomeKind.REJECTED}))


def oldest_start(snapshot: Snapshot) -> Samples:
    """Yield when the oldest open run began."""
    for key, found in _by_dag(run for run in _own(snapshot) if not run.has_ended):
        yield key, min(run.record.created.timestamp() for run in found)


def heartbeat(snapshot: Snapshot) -> Samples:
    """Yield the oldest of the last heartbeats of TPUs with a job."""
    for key, beats in _beats(snapshot):
        yield key, min(beat.time.timestamp() for beat in beats)


def progress(snapshot: Snapshot) -> Samples:
    """Yield the share of steps that are done."""
    for key, job in _jobs(snapshot):
        if job.train_steps:
            yield key, job.step / job.train_steps


def step_duration(snapshot: Snapshot) -> Samples:
    """Yield the trainer's own smoothed time of a step, from what it still expects to take."""
    for key, job in _jobs(snapshot):
        left = job.train_steps - job.step
        if job.eta_seconds is not None and left > 0:
            yield key, job.eta_seconds / left


def tokens_per_second(snapshot: Snapshot) -> Samples:
    """Yield the speed of training."""
    return _of_job(snapshot, lambda job: job.tokens_per_second)


def remaining(snapshot: Snapshot) -> Samples:
    """Yield the seconds that are left."""
    return _of_job(snapshot, lambda job: job.eta_seconds)


def job_loss(snapshot: Snapshot) -> Samples:
    """Yield the losses of a job."""
    for key, job in _jobs(snapshot):
        for rows, loss in (("training", job.loss), ("held_out", job.held_out_loss)):
            if loss is not None:
                yield (*key, rows), loss


def chips(snapshot: Snapshot) -> Samples:
    """Yield chips by state; each state of every lineage of which they are known."""
    found: Counter[tuple[str, TpuState]] = Counter()
    for lineage, tpu in _tpus(snapshot):
        found[lineage, tpu.state] += tpu.chips
    unknown = {run.record.lineage_id for run in snapshot.runs.runs if run.tpus is None}
    if not snapshot.runs.is_complete:
        unknown.update(_lineages(snapshot))
    for lineage in _lineages(snapshot):
        if lineage in unknown:
            continue
        for state in TpuState:
            yield (lineage, str(state)), found[lineage, state]


def oldest_in_state(snapshot: Snapshot) -> Samples:
    """Yield since when the oldest TPU of a state is in it."""
    found: dict[tuple[str, str], float] = {}
    for lineage, tpu in _tpus(snapshot):
        key, since = (lineage, str(tpu.state)), tpu.since.timestamp()
        found[key] = min(since, found.get(key, since))
    yield from found.items()


def chip_seconds(snapshot: Snapshot) -> Samples:
    """Yield chip-seconds by what they were spent on."""
    found: dict[tuple[str, SpentOn], float] = defaultdict(float)
    for one in _spending(snapshot):
        for spent_on, seconds in one.total.spent.items():
            found[one.lineage_id, spent_on] += seconds
    for (lineage, spent_on), seconds in found.items():
        yield (lineage, str(spent_on)), seconds


def goodput(snapshot: Snapshot) -> Samples:
    """Yield the share of kept steps."""
    billed: dict[str, float] = defaultdict(float)
    stepping: dict[str, float] = defaultdict(float)
    for one in _spending(snapshot):
        billed[one.lineage_id] += one.total.chip_seconds
        stepping[one.lineage_id] += one.total.spent.get(SpentOn.STEP, 0.0)
    for lineage, seconds in billed.items():
        if seconds:
            yield (lineage,), stepping[lineage] / seconds


def cost(snapshot: Snapshot) -> Samples:
    """Yield the money."""
    for one in _spending(snapshot):
        yield (one.lineage_id, one.total.currency), one.total.cost


def lost_cost(snapshot: Snapshot) -> Samples:
    """Yield what losses cost."""
    for one in _spending(snapshot):
        key = (one.lineage_id, one.total.currency)
        yield (*key, "preemption"), one.total.lost_to_preemption
        yield (*key, "failures"), one.total.lost_to_failures


def rejected_cost(snapshot: Snapshot) -> Samples:
    """Yield what rejected candidates cost."""
    for one in _spending(snapshot):
        yield (one.lineage_id, one.total.currency), one.total.cost_of_rejected


def saved_cost(snapshot: Snapshot) -> Samples:
    """Yield what spot TPUs saved, where that is known."""
    for one in _spending(snapshot):
        if one.total.saved is not None:
            yield (one.lineage_id, one.total.currency), one.total.saved


def documents(snapshot: Snapshot) -> Samples:
    """Yield documents by what became of them."""
    found: Counter[tuple[str, str]] = Counter()
    for manifest in _manifests(snapshot).values():
        lineage, dropped = manifest.lineage_id, manifest.dropped
        found[lineage, USED] += manifest.documents - sum(dropped.values())
        found.update({(lineage, reason): count for reason, count in dropped.items()})
    yield from found.items()


def tokens(snapshot: Snapshot) -> Samples:
    """Yield tokens by side of the split."""
    found: Counter[tuple[str, str]] = Counter()
    for manifest in _manifests(snapshot).values():
        found.update({(manifest.lineage_id, str(s)): n for s, n in manifest.tokens.items()})
    yield from found.items()


def newest_dropped(snapshot: Snapshot) -> Samples:
    """Yield how much of the newest partition is not used."""
    for lineage, manifest in _newest(snapshot):
        lost = sum(n for reason, n in manifest.dropped.items() if reason not in COPIES)
        if manifest.documents:
            yield (lineage,), lost / manifest.documents


def newest_unknown(snapshot: Snapshot) -> Samples:
    """Yield how much of the newest partition is unknown to the vocabulary."""
    for lineage, manifest in _newest(snapshot):
        if manifest.statistics.text_tokens:
            share = manifest.statistics.unknown_tokens / manifest.statistics.text_tokens
            yield (lineage,), share


def lease_held(snapshot: Snapshot) -> Samples:
    """Yield whether a run holds each lineage."""
    for one in snapshot.lineages:
        if one.is_held is not None:
            yield (one.lineage_id,), float(one.is_held)


def lease_acquired(snapshot: Snapshot) -> Samples:
    """Yield since when."""
    return _of_lease(snapshot, lambda lease: lease.acquired)


def lease_expiry(snapshot: Snapshot) -> Samples:
    """Yield until when at the latest."""
    return _of_lease(snapshot, lambda lease: lease.expires)


def waiting_runs(snapshot: Snapshot) -> Samples:
    """Yield how many runs wait."""
    for one in snapshot.lineages:
        if one.waiting is not None:
            yield (one.lineage_id,), len(one.waiting)


def waiting_oldest(snapshot: Snapshot) -> Samples:
    """Yield since when the first of them does."""
    for one in snapshot.lineages:
        if one.waiting:
            yield (one.lineage_id,), min(ticket.since.timestamp() for ticket in one.waiting)


def model_info(snapshot: Snapshot) -> Samples:
    """Yield the versions in use."""
    for one in snapshot.lineages:
        if one.pointer is not None:
            yield (one.lineage_id, one.pointer.version_id), 1


def promoted(snapshot: Snapshot) -> Samples:
    """Yield since when they are."""
    for one in snapshot.lineages:
        if one.pointer is not None:
            yield (one.lineage_id,), one.pointer.changed.timestamp()


def partitions(snapshot: Snapshot) -> Samples:
    """Yield how much they have seen."""
    for one in snapshot.lineages:
        if one.model is not None:
            yield (one.lineage_id,), len(one.model.partitions_seen)


def model_loss(snapshot: Snapshot) -> Samples:
    """Yield the losses around them."""
    for one in snapshot.lineages:
        for of, loss in _losses(one).items():
            yield (one.lineage_id, of), loss


def waiting_partitions(snapshot: Snapshot) -> Samples:
    """Yield how many partitions wait for a run."""
    if (waiting := snapshot.installation.waiting) is not None:
        yield (), len(waiting)


def waiting_partition_oldest(snapshot: Snapshot) -> Samples:
    """Yield since when the first of them does."""
    if waiting := snapshot.installation.waiting:
        yield (), min(one.since.timestamp() for one in waiting)


def corpus_grown(snapshot: Snapshot) -> Samples:
    """Yield when the corpus grew."""
    if (corpus := snapshot.installation.corpus) is not None:
        yield (), corpus.grown.timestamp()


def watch_pass(snapshot: Snapshot) -> Samples:
    """Yield the watch's last pass."""
    if (watch := snapshot.installation.watch) is not None:
        yield (), watch.finished.timestamp()


def watch_problems(snapshot: Snapshot) -> Samples:
    """Yield how much of it went wrong."""
    if (watch := snapshot.installation.watch) is not None:
        yield (), len(watch.problems)


def reaper_pass(snapshot: Snapshot) -> Samples:
    """Yield the reapers' last passes."""
    for one in snapshot.installation.reapers:
        yield (one.owner, one.project_id), one.finished.timestamp()


def reaper_problems(snapshot: Snapshot) -> Samples:
    """Yield how much of each went wrong."""
    for one in snapshot.installation.reapers:
        yield (one.owner, one.project_id), len(one.problems)


def alerts_open(snapshot: Snapshot) -> Samples:
    """Yield open alerts; of each cause that this program knows also those of no lineage."""
    if (found := snapshot.installation.alerts) is not None:
        for kind in sorted({*(AlertKind(str(cause)) for cause in Cause), *found}):
            # Of a cause that only a later program knows nothing says how soon to look.
            known = severity(kind.cause) if kind.cause in set(Cause) else Severity.WARNING
            yield (kind.cause, str(known), kind.lineage_id, kind.dag_id), found[kind]


def read_errors(snapshot: Snapshot) -> Samples:
    """Yield errors since the exporter began."""
    for source, count in snapshot.errors.items():
        yield (str(source),), count


def unreadable(snapshot: Snapshot) -> Samples:
    """Yield errors of this reading."""
    for source, count in snapshot.failures.items():
        yield (str(source),), count


def read_duration(snapshot: Snapshot) -> Samples:
    """Yield how long reading took."""
    yield (), snapshot.seconds


def read_time(snapshot: Snapshot) -> Samples:
    """Yield when it began."""
    yield (), snapshot.now.timestamp()


def _own(snapshot: Snapshot) -> Iterator[SeenRun]:
    return (run for run in snapshot.runs.runs if not run.is_rental)


def _by_dag(found: Iterable[SeenRun]) -> Iterator[tuple[tuple[str, str], list[SeenRun]]]:
    groups: dict[tuple[str, str], list[SeenRun]] = defaultdict(list)
    for run in found:
        groups[run.record.lineage_id, run.record.dag_id].append(run)
    yield from groups.items()


def _in_a_row(snapshot: Snapshot, kinds: frozenset[OutcomeKind]) -> Samples:
    for key, found in _by_dag(_own(snapshot)):
        ended = [run.outcome for run in found if run.outcome is not None]
        ended.sort(key=lambda outcome: outcome.time.timestamp(), reverse=True)
        yield key, sum(1 for _ in takewhile(lambda outcome: outcome.outcome in kinds, ended))


def _tpus(snapshot: Snapshot) -> Iterator[tuple[str, SeenTpu]]:
    runs = snapshot.runs.runs
    return ((run.record.lineage_id, tpu) for run in runs for tpu in run.tpus or [])


def _lineages(snapshot: Snapshot) -> list[str]:
    known = {one.lineage_id for one in snapshot.lineages}
    return sorted(known | {run.record.lineage_id for run in snapshot.runs.runs})


def _beats(snapshot: Snapshot) -> Iterator[tuple[tuple[str, str], list[Heartbeat]]]:
    """Yield the heartbeats of TPUs with a job, by lineage and DAG."""
    for key, found in _by_dag(snapshot.runs.runs):
        tpus = (tpu for run in found for tpu in run.tpus or [])
        working = (tpu for tpu in tpus if tpu.state is TpuState.WORKING)
        if beats := [tpu.beat for tpu in working if tpu.beat is not None]:
            yield key, beats


def _jobs(snapshot: Snapshot) -> Iterator[tuple[tuple[str, str], Progress]]:
    for key, beats in _beats(snapshot):
        told = [beat for beat in beats if beat.progress is not None]
        newest = max(told, key=lambda beat: beat.time.timestamp(), default=None)
        if newest is not None and newest.progress is not None:
            yield key, newest.progress


def _of_job(snapshot: Snapshot, value: Callable[[Progress], float | None]) -> Samples:
    for key, job in _jobs(snapshot):
        if (found := value(job)) is not None:
            yield key, found


def _spending(snapshot: Snapshot) -> list[LineageSpending]:
    return by_lineage(snapshot.runs.spent)


def _manifests(snapshot: Snapshot) -> dict[tuple[str, str], PartitionManifest]:
    """Return the newest manifest of each partition, the newest partition last."""
    found: dict[tuple[str, str], PartitionManifest] = {}
    for run in snapshot.runs.runs:
        if (manifest := run.manifest) is not None:
            key = (manifest.lineage_id, manifest.partition)
            found.pop(key, None)
            found[key] = manifest
    return found


def _newest(snapshot: Snapshot) -> Iterable[tuple[str, PartitionManifest]]:
    return {lineage: one for (lineage, _), one in _manifests(snapshot).items()}.items()


def _of_lease(snapshot: Snapshot, time: Callable[[LineageLease], datetime]) -> Samples:
    for one in snapshot.lineages:
        if one.lease is not None:
            yield (one.lineage_id,), time(one.lease).timestamp()


def _losses(lineage: SeenLineage) -> dict[str, float]:
    found: dict[str, float] = {}
    if (verdict := lineage.verdict) is not None:
        found["in_use"] = verdict.candidate_loss
        name = "unigram" if verdict.reference == "unigram" else "baseline"
        found[name] = verdict.reference_loss
    if (model := lineage.model) is not None and model.partitions_seen:
        unigram = model.metrics.get(f"unigram/{model.partitions_seen[-1]}/masked_lm_loss")
        found |= {"unigram": unigram} if unigram is not None else {}
    if (training := lineage.training) is not None:
        found["training"] = training.final_loss
    return found
