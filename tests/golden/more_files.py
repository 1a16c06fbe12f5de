"""Stored files that the builders of other tests do not write, or not with all of their keys."""

from __future__ import annotations

import types
from collections.abc import Iterator
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel

from pipeline_store import formats as f
from pipeline_store import identity, uris
from pipeline_store.layout import StoreLayout, VersionLayout
from tests.model_registry.finetunings import FinetuningRun
from tests.model_registry.runs import NOW, TOKEN, FinishedRun

OLD, LATER, NEWEST = "v-000000000000", "v-000000000001", "v-000000000002"
UNPUBLISHED = "v-000000000003"
TOTALED = "v-" + "7" * 12
PANELED = "v-" + "8" * 12
CORPUS = "0a1b2c3d4e5f"
JOB = "010-train"
CAUSE = "task-failed.tpu.train"
REFUSED = "task-failed.validate"
VALUES: dict[str, Any] = {
    "accelerator_type": "v5litepod-8",
    "answered_by": "Ada",
    "attempt": 1,
    "cause": CAUSE,
    "compared_by": "accuracy",
    "currency": "USD",
    "dag_id": "bert_repretraining",
    "entry_point": "training.train",
    "exit_code": 0,
    "generation": 1,
    "host": "t1v-n-0a1b2c3d-w-0",
    "job_id": JOB,
    "lineage_id": "default",
    "owner": "owner",
    "partition": "day-2",
    "pattern": "corpus/{partition}/*",
    "price_date": "2026-01-01",
    "project_id": "my-project",
    "provisioning_model": "spot",
    "run_id": "manual__1",
    "task": "weather",
    "token": TOKEN,
    "version_id": OLD,
    "worker": 0,
    "zone": "us-central1-a",
}
"""Values as they can be, by key, where a made-up one would not be understood."""

Model = TypeVar("Model", bound=BaseModel)
Files = Iterator[tuple[str, f.StoredFile]]


def full(model: type[Model], /, *, option: int = 0, **given: Any) -> Model:
    """Return a file with a value for each key, also below it.

    :param option: which one to take where a value may be of several classes.
    :param given: values that it must have; of others :data:`VALUES` has some.
    """
    known = VALUES | given
    values = {
        name: known[name] if name in known else _value(name, field.annotation, option)
        for name, field in model.model_fields.items()
    }
    return model.model_validate(values)


def _value(name: str, kind: Any, option: int) -> Any:
    """Return a value of a type."""
    outer, inner = get_origin(kind) or kind, get_args(kind)
    if outer in (types.UnionType, Union):
        choices = [one for one in inner if one is not type(None)]
        return _value(name, choices[min(option, len(choices) - 1)], option)
    if outer in (Annotated, list):
        value = _value(name, inner[0], option)
        return [value] if outer is list else value
    if outer is dict:
        return {_value("name", inner[0], option): _value(name, inner[1], option)}
    if isinstance(outer, type) and issubclass(outer, BaseModel):
        return full(outer, option=option)
    return inner[0] if outer is Literal else _simple(name, outer)


def _simple(name: str, kind: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind))
    text = "a" * 64 if name.endswith("sha256") else f"a {name}"
    return {str: text, int: 7, float: 1.5, bool: True, datetime: NOW}.get(kind, "anything")


def files(store: StoreLayout, run: FinishedRun, tuned: FinetuningRun) -> Files:
    """Yield every further file with its place."""
    yield from _tpu(run)
    yield from _installation(store)
    yield from _alerts(store, run)
    yield from _lineages(store, run)
    yield from _runs(run, tuned)
    yield from _backfills(store, run)
    yield from _data(store, tuned)


def texts(run: FinishedRun) -> Iterator[tuple[str, str]]:
    """Yield files that are no records: a log, numbers of a training."""
    yield run.run.reservation(1).attempt(1).log_chunk(0, JOB, 0), "step 400 of 400\n"
    line = '{"kind": "loop", "step": 400, "time": "2026-01-31T12:00:00+00:00", "loss": 5.25}\n'
    yield uris.join(run.run.training.metrics, "0000_0a1b2c3d-000000.jsonl"), line


def _tpu(run: FinishedRun) -> Files:
    reservation = run.run.reservation(1)
    mailbox = reservation.attempt(1)
    installation = identity.installation_label(run.store.root, "0" * 32)
    name = identity.resource_id(run.key, 1, 1, installation)
    names = {"run_key": run.key, "queued_resource_id": name, "node_id": name}
    yield mailbox.record, full(f.Attempt, **names)
    for event in f.AttemptEvent:
        yield mailbox.mark(event), full(f.AttemptMark, event=event, cause="taken")
    yield run.run.holder, full(f.Holder)
    yield reservation.released, full(f.Released, run_key=run.key)
    yield reservation.ledger, full(f.Ledger, run_key=run.key)
    earlier = (run.parent or "").removeprefix("v-")
    yield run.store.run(earlier).reservation(1).ledger, full(f.Ledger, run_key=earlier)
    yield mailbox.lease, full(f.Lease)
    yield mailbox.log_cursor(JOB, "try1"), full(f.LogCursor)
    yield mailbox.job(JOB), full(f.JobSpec, holder_uri=run.run.holder)
    yield mailbox.limits(JOB), full(f.JobLimits)
    yield mailbox.signature(JOB, "a" * 64), full(f.JobSignature)
    yield run.store.job_key(run.key, 1), full(f.JobKey, run_key=run.key)
    yield mailbox.hang(JOB, 1, 0), full(f.HangReport)
    yield mailbox.hello(0), full(f.AgentHello)
    yield mailbox.heartbeat(0), full(f.Heartbeat)
    # Of a later format, which says what the job does.
    yield mailbox.heartbeat(1), full(f.Heartbeat, worker=1)
    yield mailbox.status(0, JOB), full(f.JobStatus)
    yield mailbox.bill, full(f.AttemptBill, run_key=run.key)
    # Of later formats, which say what the time was spent on.
    yield mailbox.hello(1), full(f.AgentHello, worker=1)
    yield mailbox.heartbeat(2), full(f.Heartbeat, worker=2)
    yield mailbox.status(1, JOB), full(f.JobStatus, worker=1)
    # And since they say what is lost by where training goes on.
    yield mailbox.heartbeat(3), full(f.Heartbeat, worker=3)
    yield mailbox.status(2, JOB), full(f.JobStatus, worker=2)
    yield run.run.reservation(2).ledger, full(f.Ledger, run_key=run.key, generation=2)


def _installation(store: StoreLayout) -> Files:
    yield store.installation, full(f.Installation)
    identity = full(f.StoreIdentity)
    yield store.identity(identity.label), identity
    place, cooldown = full(f.TpuPlace), full(f.ZoneCooldown)
    yield store.tpu_place(place.project_id, place.zone), place
    kind = cooldown.accelerator_type, cooldown.provisioning_model
    yield store.zone_cooldown(place.project_id, place.zone, *kind), cooldown
    yield store.reaper_pass("owner", place.project_id), full(f.ReaperPass)
    # Of a later format, with TPUs that nobody looks after.
    yield store.reaper_pass("owner", "another-project"), full(f.ReaperPass)
    # Of a later one, which notes in which phase they are.
    yield store.reaper_pass("owner", "third-project"), full(f.ReaperPass)
    yield store.first_look(CORPUS), full(f.FirstLook)
    yield store.arrival(CORPUS, "day-2"), full(f.PartitionArrival)


def _alerts(store: StoreLayout, run: FinishedRun) -> Files:
    yield store.alert(run.key, CAUSE), full(f.Alert, scope=run.key)
    yield store.alert_delivery(run.key, CAUSE, "alerts_mail"), full(f.AlertDelivery)
    yield store.alert_sending(run.key, CAUSE, "alerts_mail"), full(f.AlertSending)
    yield store.alert_cleared(run.key, CAUSE), full(f.AlertCleared)
    yield store.watched_run(run.key), full(f.WatchedRun)
    yield store.renting_run(run.key), full(f.RentingRun)
    yield store.watch_pass, full(f.WatchPass)
    yield store.corpus_seen, full(f.CorpusSeen)
    # Of a later format, which says what helps; nobody needs to be told of it any more.
    refused = full(f.Alert, scope=run.key, cause=REFUSED)
    yield store.alert(run.key, REFUSED), refused


def _lineages(store: StoreLayout, run: FinishedRun) -> Files:
    yield run.lineage.lease, full(f.LineageLease, run_key=run.key)
    yield run.lineage.ticket(CORPUS), full(f.WaitingTicket, run_key=CORPUS, partition="day-3")
    old = full(f.ModelVersion)
    yield run.lineage.pruned_version(OLD), full(f.PrunedVersion, model=old)
    shards = [store.shard_manifest("b" * 32)]
    manifest = full(f.PartitionManifest, partition="day-0", shards=shards)
    yield run.lineage.manifest("day-0", "1" * 16), manifest
    # Of a later format, as below.
    later = {"shards": [store.shard_manifest("c" * 32)], "split_by": "file"}
    yield run.lineage.manifest("day-0", "2" * 16), manifest.model_copy(update=later)
    other = store.lineage("medicine")
    yield other.vocabulary_info, full(f.VocabularyInfo)
    yield other.production, full(f.ProductionPointer)
    # Of a later format, which keeps the versions before and a checksum.
    yield store.lineage("statutes").production, full(f.ProductionPointer)
    # Of one that keeps who rolled back, too.
    yield store.lineage("drugs").production, full(f.ProductionPointer)
    # It knows by which run a person asked.
    yield store.lineage("poems").production, full(f.ProductionPointer)
    for version in (OLD, LATER, UNPUBLISHED, TOTALED, PANELED):
        yield VersionLayout(other.version(version)).best_scores, full(f.BestScores)
    for version in (OLD, UNPUBLISHED):
        yield VersionLayout(other.version(version)).plan, full(f.RunPlan)
    # Of a later format, which names its manifests.
    newest = full(f.ModelVersion, version_id=NEWEST, lineage_id="medicine")
    yield other.model(NEWEST), newest
    yield other.pruned_version(LATER), full(f.PrunedVersion, model=newest)


def _runs(run: FinishedRun, tuned: FinetuningRun) -> Files:
    """Yield what is in runs; a folder of another kind of run is a place that nothing else uses."""
    spare = tuned.rentals[1]
    trial = tuned.plan.trials[0].trial_id
    yield run.run.estimate, full(f.RunEstimate)
    yield run.run.approval, full(f.RunApproval, baseline=run.parent)
    yield run.run.prepared_partition, f.PreparedInput(manifest=run.manifest_uri)
    # Of later formats, which have keys that the files before them have not.
    yield spare.approval, full(f.RunApproval)
    yield spare.verdict(OLD), full(f.Verdict)
    yield spare.verdict(LATER), full(f.Verdict)
    yield spare.verdict(TOTALED), full(f.Verdict)
    for version in (LATER, NEWEST, None):
        yield spare.evaluation(version), full(f.EvaluationReport)
    yield spare.probe(run.parent), full(f.ProbeReport)
    yield spare.training_summary, full(f.FinetuningReport)
    yield spare.reservation(1).record, full(f.Reservation, run_key="0" * 12)
    yield spare.reservation(2).record, full(f.Reservation, run_key="0" * 12, generation=2)
    later = spare.training.attempt_files("e" * 32)
    for step in ("0000000600", "0000000700"):
        yield uris.join(later, step, "inputs.json"), full(f.TrainingInputs)
    yield run.run.evaluation(OLD), full(f.EvaluationReport)
    yield run.run.verdict(OLD), full(f.Verdict)
    yield run.run.training.initial_weights, full(f.InitialWeights)
    folder = run.run.training.attempt_files("e" * 32)
    yield uris.join(folder, "0000000600", "inputs.json"), full(f.TrainingInputs)
    yield spare.plan, full(f.RunPlan)
    yield spare.outcome, full(f.RunOutcome)
    yield spare.training.result, full(f.TrainingResult)
    yield spare.finetuning_plan, full(f.FinetuningPlan, manifests=tuned.plan.manifests)
    for option, one in enumerate((spare.training, spare.trial(trial).training)):
        yield one.checkpoint(7), full(f.CheckpointManifest, option=option)
        yield one.result, full(f.TrainingResult, option=option)
        exports = full(f.ModelExports, option=option)
        yield spare.trial_exports(f"{trial}{option}").record, exports
    yield spare.trial_exports(f"{trial}2").record, full(f.ModelExports, option=2)
    yield spare.trial(trial).result, full(f.TrialResult)
    children = spare.children(trial)
    yield children.child("student+trim").record, full(f.CompressedModel)
    # Of a later format, from text to text.
    yield spare.trial(f"{trial}0").result, full(f.TrialResult)
    yield spare.probe(OLD), full(f.ProbeReport)
    yield tuned.run.training_summary, full(f.FinetuningReport, run_key=tuned.key)


def _backfills(store: StoreLayout, run: FinishedRun) -> Files:
    """Yield what came with backfills: their runs, what these tried, and what was refused."""
    name = "7-0a1b2c3d4e5f"
    yield store.backfill(name), full(f.BackfillRuns, name=name)
    yield run.lineage.attempt(run.key), full(f.LineageAttempt, run_key=run.key)
    record = full(f.RunRecord, run_id="backfill__1", backfill=name, rental_of=None, tpu_number=0)
    key = identity.run_key(record.dag_id, record.run_id)
    ended = store.run(key)
    yield ended.record, record.model_copy(update={"run_key": key})
    yield ended.plan, full(f.RunPlan)
    yield ended.outcome, full(f.RunOutcome)
    refused = full(f.RunRefusal, run_id="backfill__2", backfill=name)
    place = store.run(identity.run_key(refused.dag_id, refused.run_id))
    yield place.refusal, refused


def _data(store: StoreLayout, tuned: FinetuningRun) -> Files:
    decisions = full(f.ShardDecisions)
    yield store.decisions(decisions.sha256), decisions
    yield store.shard_manifest("b" * 32), full(f.ShardManifest, shard_key="b" * 32)
    yield store.shard_manifest("c" * 32), full(f.ShardManifest, shard_key="c" * 32)
    # Of later formats, with counts of tokens, and then with groups.
    yield store.shard_manifest("d" * 32), full(f.ShardManifest, shard_key="d" * 32)
    yield store.shard_manifest("e" * 32), full(f.ShardManifest, shard_key="e" * 32)
    yield store.scratch("0a1b2c3d"), full(f.ShardOutcomes)
    yield store.scratch("0a1b2c3e"), full(f.ShardOutcomes, split_by="file")
    task = tuned.plan.trials[0].task
    manifest = full(f.TaskManifest, name=task, key="b" * 16, task={"kind": "regression"})
    yield store.task(task).manifest("b" * 16), manifest
    overlap = full(f.TaskOverlap, task=task, manifest_id="1" * 16)
    names = overlap.lineage_id, overlap.partition, overlap.manifest_id
    yield store.task(task).overlap("b" * 16, *names), overlap
