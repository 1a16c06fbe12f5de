"""Reads each metric from a snapshot: the values of its labels, and its own value."""

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
FAILURES = frozenset(kind for kind in OutcomeKind if kind.is_failure)
COPIES = frozenset({"duplicate", "near_duplicate"})
"""Drop reasons that do not count as a loss: the document, or a similar one, is used elsewhere."""


def runs(snapshot: Snapshot) -> Samples:
    """Yield the number of runs by outcome, with every outcome for each DAG that has runs."""
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
    """Yield how many of the newest ended runs failed, in a row."""
    return _in_a_row(snapshot, FAILURES)


def rejected_in_a_row(snapshot: Snapshot) -> Samples:
    """Yield how many of the newest ended runs were rejected, in a row."""
    return _in_a_row(snapshot, frozenset({OutcomeKind.REJECTED}))


def oldest_start(snapshot: Snapshot) -> Samples:
    """Yield when the oldest open run began."""
    for key, found in _by_dag(run for run in _own(snapshot) if not run.has_ended):
        yield key, min(run.record.created.timestamp() for run in found)


def heartbeat(snapshot: Snapshot) -> Samples:
    """Yield the time of the oldest among the last heartbeats of TPUs with a job."""
    for key, beats in _beats(snapshot):
        yield key, min(beat.time.timestamp() for beat in beats)


def progress(snapshot: Snapshot) -> Samples:
    """Yield the share of steps that are done."""
    for key, job in _jobs(snapshot):
        if job.train_steps:
            yield key, job.step / job.train_steps


def step_duration(snapshot: Snapshot) -> Samples:
    """Yield the trainer's own smoothed time of a step, derived from its expected remaining time."""
    for key, job in _jobs(snapshot):
        left = job.train_steps - job.step
        if job.eta_seconds is not None and left > 0:
            yield key, job.eta_seconds / left


def tokens_per_second(snapshot: Snapshot) -> Samples:
    """Yield the speed of training, in tokens per second."""
    return _of_job(snapshot, lambda job: job.tokens_per_second)


def remaining(snapshot: Snapshot) -> Samples:
    """Yield the remaining seconds of a job."""
    return _of_job(snapshot, lambda job: job.eta_seconds)


def job_loss(snapshot: Snapshot) -> Samples:
    """Yield the losses of a job."""
    for key, job in _jobs(snapshot):
        for rows, loss in (("training", job.loss), ("held_out", job.held_out_loss)):
            if loss is not None:
                yield (*key, rows), loss


def chips(snapshot: Snapshot) -> Samples:
    """Yield the number of chips by state, with every state for each lineage with known TPUs."""
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
    """Yield since when the TPU that is longest in a state is in it."""
    found: dict[tuple[str, str], float] = {}
    for lineage, tpu in _tpus(snapshot):
        key, since = (lineage, str(tpu.state)), tpu.since.timestamp()
        found[key] = min(since, found.get(key, since))
    yield from found.items()


def chip_seconds(snapshot: Snapshot) -> Samples:
    """Yield chip-seconds by use."""
    found: dict[tuple[str, SpentOn], float] = defaultdict(float)
    for one in _spending(snapshot):
        for spent_on, seconds in one.total.spent.items():
            found[one.lineage_id, spent_on] += seconds
    for (lineage, spent_on), seconds in found.items():
        yield (lineage, str(spent_on)), seconds


def goodput(snapshot: Snapshot) -> Samples:
    """Yield the share of billed time in steps that were kept."""
    billed: dict[str, float] = defaultdict(float)
    stepping: dict[str, float] = defaultdict(float)
    for one in _spending(snapshot):
        billed[one.lineage_id] += one.total.chip_seconds
        stepping[one.lineage_id] += one.total.spent.get(SpentOn.STEP, 0.0)
    for lineage, seconds in billed.items():
        if seconds:
            yield (lineage,), stepping[lineage] / seconds


def cost(snapshot: Snapshot) -> Samples:
    """Yield the cost of TPUs, at most."""
    for one in _spending(snapshot):
        yield (one.lineage_id, one.total.currency), one.total.cost


def lost_cost(snapshot: Snapshot) -> Samples:
    """Yield the cost of losses, by preemptions and by failures."""
    for one in _spending(snapshot):
        key = (one.lineage_id, one.total.currency)
        yield (*key, "preemption"), one.total.lost_to_preemption
        yield (*key, "failures"), one.total.lost_to_failures


def rejected_cost(snapshot: Snapshot) -> Samples:
    """Yield the cost of rejected candidates."""
    for one in _spending(snapshot):
        yield (one.lineage_id, one.total.currency), one.total.cost_of_rejected


def saved_cost(snapshot: Snapshot) -> Samples:
    """Yield the cost saved by spot TPUs, where it is known."""
    for one in _spending(snapshot):
        if one.total.saved is not None:
            yield (one.lineage_id, one.total.currency), one.total.saved


def documents(snapshot: Snapshot) -> Samples:
    """Yield the number of documents by fate: used, or the reason why they were dropped."""
    found: Counter[tuple[str, str]] = Counter()
    for manifest in _manifests(snapshot).values():
        lineage, dropped = manifest.lineage_id, manifest.dropped
        found[lineage, USED] += manifest.documents - sum(dropped.values())
        found.update({(lineage, reason): count for reason, count in dropped.items()})
    yield from found.items()


def tokens(snapshot: Snapshot) -> Samples:
    """Yield the number of tokens by split."""
    found: Counter[tuple[str, str]] = Counter()
    for manifest in _manifests(snapshot).values():
        found.update({(manifest.lineage_id, str(s)): n for s, n in manifest.tokens.items()})
    yield from found.items()


def newest_dropped(snapshot: Snapshot) -> Samples:
    """Yield the share of unused documents, without copies, in the partition prepared last."""
    for lineage, manifest in _newest(snapshot):
        lost = sum(n for reason, n in manifest.dropped.items() if reason not in COPIES)
        if manifest.documents:
            yield (lineage,), lost / manifest.documents


def newest_unknown(snapshot: Snapshot) -> Samples:
    """Yield the share of tokens in the partition prepared last that the vocabulary lacks."""
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
    """Yield since when the lease of each held lineage is held."""
    return _of_lease(snapshot, lambda lease: lease.acquired)


def lease_expiry(snapshot: Snapshot) -> Samples:
    """Yield when the lease of each held lineage expires."""
    return _of_lease(snapshot, lambda lease: lease.expires)


def waiting_runs(snapshot: Snapshot) -> Samples:
    """Yield how many runs wait for each lineage."""
    for one in snapshot.lineages:
        if one.waiting is not None:
            yield (one.lineage_id,), len(one.waiting)


def waiting_oldest(snapshot: Snapshot) -> Samples:
    """Yield since when the first run waits for each lineage."""
    for one in snapshot.lineages:
        if one.waiting:
            yield (one.lineage_id,), min(ticket.since.timestamp() for ticket in one.waiting)


def model_info(snapshot: Snapshot) -> Samples:
    """Yield the versions in use."""
    for one in snapshot.lineages:
        if one.pointer is not None:
            yield (one.lineage_id, one.pointer.version_id), 1


def promoted(snapshot: Snapshot) -> Samples:
    """Yield since when the versions in use are in use."""
    for one in snapshot.lineages:
        if one.pointer is not None:
            yield (one.lineage_id,), one.pointer.changed.timestamp()


def partitions(snapshot: Snapshot) -> Samples:
    """Yield how many partitions the versions in use have seen."""
    for one in snapshot.lineages:
        if one.model is not None:
            yield (one.lineage_id,), len(one.model.partitions_seen)


def model_loss(snapshot: Snapshot) -> Samples:
    """Yield the losses of the versions in use, and those they were compared with."""
    for one in snapshot.lineages:
        for of, loss in _losses(one).items():
            yield (one.lineage_id, of), loss


def waiting_partitions(snapshot: Snapshot) -> Samples:
    """Yield how many partitions wait for a run."""
    if (waiting := snapshot.installation.waiting) is not None:
        yield (), len(waiting)


def waiting_partition_oldest(snapshot: Snapshot) -> Samples:
    """Yield since when the first partition waits for a run."""
    if waiting := snapshot.installation.waiting:
        yield (), min(one.since.timestamp() for one in waiting)


def corpus_grown(snapshot: Snapshot) -> Samples:
    """Yield when the corpus last grew."""
    if (corpus := snapshot.installation.corpus) is not None:
        yield (), corpus.grown.timestamp()


def watch_pass(snapshot: Snapshot) -> Samples:
    """Yield when the watch's last pass finished."""
    if (watch := snapshot.installation.watch) is not None:
        yield (), watch.finished.timestamp()


def watch_problems(snapshot: Snapshot) -> Samples:
    """Yield the number of problems of the watch's last pass."""
    if (watch := snapshot.installation.watch) is not None:
        yield (), len(watch.problems)


def reaper_pass(snapshot: Snapshot) -> Samples:
    """Yield when the last pass of each reaper finished."""
    for one in snapshot.installation.reapers:
        yield (one.owner, one.project_id), one.finished.timestamp()


def reaper_problems(snapshot: Snapshot) -> Samples:
    """Yield the number of problems of each reaper's last pass."""
    for one in snapshot.installation.reapers:
        yield (one.owner, one.project_id), len(one.problems)


def alerts_open(snapshot: Snapshot) -> Samples:
    """Yield the number of open alerts; for each known cause without a lineage even if it is 0."""
    if (found := snapshot.installation.alerts) is not None:
        for kind in sorted({*(AlertKind(str(cause)) for cause in Cause), *found}):
            # The severity of a newer program's cause is not known here.
            known = severity(kind.cause) if kind.cause in set(Cause) else Severity.WARNING
            yield (kind.cause, str(known), kind.lineage_id, kind.dag_id), found[kind]


def read_errors(snapshot: Snapshot) -> Samples:
    """Yield the number of read errors since the exporter started, by source."""
    for source, count in snapshot.errors.items():
        yield (str(source),), count


def unreadable(snapshot: Snapshot) -> Samples:
    """Yield the number of read errors of this snapshot, by source."""
    for source, count in snapshot.failures.items():
        yield (str(source),), count


def read_duration(snapshot: Snapshot) -> Samples:
    """Yield how long reading the store took, in seconds."""
    yield (), snapshot.seconds


def read_time(snapshot: Snapshot) -> Samples:
    """Yield when reading the store began."""
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
    """Return the newest manifest of each partition, that of the newest run last."""
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
