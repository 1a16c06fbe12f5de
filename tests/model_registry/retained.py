"""Stores with a past: promoted and failed runs with real shards, signatures, decisions and code."""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from model_registry import registry
from model_registry.retention import pruning
from pipeline_store import identity, uris
from pipeline_store.formats import (
    DataStatistics,
    DuplicateIndex,
    FileDigest,
    LineageLease,
    OutcomeKind,
    PartitionManifest,
    RecordFile,
    Reservation,
    RunOutcome,
    ShardDecisions,
    ShardManifest,
    SignatureFile,
    Split,
    WaitingTicket,
)
from pipeline_store.layout import LineageLayout, StoreLayout
from tests.model_registry.runs import NOW, FinishedRun, sha256
from tests.pipeline_store.gcs_server import GcsState

NO_STATISTICS = DataStatistics(
    document_tokens={}, row_tokens={}, text_tokens=0, unknown_tokens=0, new_words={}
)
POLICY = pruning.RetentionPolicy(keep_versions=1, confirmed=True)
"""Stores are made old as a whole, which needs a confirmation."""


def write_shard(store: StoreLayout, text: str) -> ShardManifest:
    """Write a shard with everything around it; its names follow from the text."""
    decisions = ShardDecisions(duplicates=[len(text)], near_duplicates=[sum(text.encode())])
    decisions.write(store.decisions(decisions.sha256))
    data = f"signatures of {text}".encode()
    uris.write(store.signature_data(sha256(data)), data)
    SignatureFile(
        input_sha256=sha256(text.encode()),
        settings_sha256="s",
        data=FileDigest(path=f"{sha256(data)}.npz", bytes=len(data), sha256=sha256(data)),
        documents=1,
    ).write(store.signatures(sha256(text.encode())[:32]))
    key = sha256(f"shard {text}".encode())[:32]

    def written(name: str) -> FileDigest:
        content = f"{name} of {text}".encode() * 50
        uris.write(uris.join(store.shard(key), "try-1", name), content)
        return FileDigest(path=f"try-1/{name}", bytes=len(content), sha256=sha256(content))

    shard = ShardManifest(
        shard_key=key,
        input_uri=f"/corpus/{text}",
        input_sha256=sha256(text.encode()),
        input_bytes=len(text),
        vocabulary_sha256="v",
        config_sha256="c",
        decisions_sha256=decisions.sha256,
        files=[
            RecordFile(
                split=Split.TRAIN,
                max_seq_length=128,
                max_predictions_per_seq=20,
                masked=True,
                data=written("train-128.tfrecord"),
                index=written("train-128.idx"),
                records=1,
                documents=1,
                tokens=1,
                masked_tokens=1,
            )
        ],
        documents=1,
        dropped={},
        dead_letter=written("dead_letter.jsonl"),
        statistics=NO_STATISTICS,
        libraries={},
    )
    shard.write(store.shard_manifest(key))
    return shard


def write_manifest(run: FinishedRun, *texts: str, partition: str | None = None) -> str:
    """Write a manifest of new shards, with its index and its report; return its URI."""
    store, lineage, partition = run.store, run.lineage, partition or run.partition
    keys = [write_shard(store, text).shard_key for text in texts]
    manifest_id = identity.manifest_id(partition, keys)
    data = f"documents of {texts}".encode()
    uris.write(lineage.duplicate_index(partition, sha256(data)), data)
    uris.write(lineage.data_report(partition, manifest_id), b"<html>")
    digest = FileDigest(path=f"documents-{sha256(data)}.npz", bytes=9, sha256=sha256(data))
    uri = lineage.manifest(partition, manifest_id)
    PartitionManifest.load(run.manifest_uri).model_copy(
        update={
            "partition": partition,
            "shards": [store.shard_manifest(key) for key in keys],
            "duplicate_index": DuplicateIndex(data=digest, snapshot_sha256="0", snapshot=[]),
        }
    ).write(uri)
    return uri


def finished(store_uri: str, name: str, parent: str | None = None) -> FinishedRun:
    """Return a run that is trained and judged, on two shards of its own; it has no outcome yet."""
    run = FinishedRun(store_uri, name, parent=parent)
    first = run.manifest_uri
    run.manifest_uri = write_manifest(run, f"{name}-1", f"{name}-2")
    uris.delete(first)
    manifests = {run.partition: run.manifest_uri}
    replayed = {}
    if parent is not None:
        replayed = registry.manifests(run.lineage, registry.load_version(run.lineage, parent))
    run.plan(trained=manifests, replayed=replayed, evaluated=replayed | manifests)
    write_reservation(run, bundle=sha256(f"code of {name}".encode()))
    return run


def write_reservation(run: FinishedRun, bundle: str, created: datetime = NOW) -> None:
    uris.write(run.store.bundle(bundle), b"zip")
    reservation = run.run.reservation(1)
    Reservation(
        run_key=run.key,
        generation=1,
        project_id="project",
        zones=["zone"],
        owner="owner",
        dag_id="dag",
        accelerator_type="v5litepod-8",
        bundle_sha256=bundle,
        created=created,
        expires_at=created,
        delete_grace_seconds=1,
        price_per_chip_hour=1,
        currency="USD",
        price_date="2026-01-01",
    ).write(reservation.record)
    uris.write(reservation.ledger, b"{}")


def end(run: FinishedRun, outcome: OutcomeKind = OutcomeKind.FAILED) -> None:
    RunOutcome(outcome=outcome, reason="test", written_by="test", time=NOW).write(run.run.outcome)


def promoted(store_uri: str, name: str, parent: str | None = None) -> FinishedRun:
    """Return a run whose model is in use, and that has ended."""
    run = finished(store_uri, name, parent)
    registry.publish(run.store, run.run)
    registry.promote(run.lineage, run.version_id, expected_baseline=parent, reason="better")
    end(run, OutcomeKind.PROMOTED)
    return run


def line_of_models(store_uri: str, count: int) -> list[FinishedRun]:
    """Return that many promoted runs, each continuing the one before it, in a new store.

    Such a line is made once and then copied.
    """
    if uris.is_cloud(store_uri):
        return _line(store_uri, count)
    if count not in _MADE:
        # Forks inherit what was made before them; each makes the rest in a folder of its own.
        _MADE[count] = _line(f"{_FOLDER.name}/{os.getpid()}/{count}", count)
    runs = [copy.copy(run) for run in _MADE[count]]
    made = runs[0].store.root
    shutil.copytree(made, store_uri)
    for run in runs:
        run.store = StoreLayout(store_uri)
        run.lineage, run.run = run.store.lineage("default"), run.store.run(run.key)
        run.manifest_uri = run.manifest_uri.replace(made, store_uri)
    return runs


_FOLDER = tempfile.TemporaryDirectory()
_MADE: dict[int, list[FinishedRun]] = {}


def _line(store_uri: str, count: int) -> list[FinishedRun]:
    runs: list[FinishedRun] = []
    for number in range(1, count + 1):
        parent = runs[-1].version_id if runs else None
        runs.append(promoted(store_uri, str(number), parent))
    return runs


def hold(lineage: LineageLayout, run_key: str) -> None:
    LineageLease(
        sequence=1,
        run_key=run_key,
        dag_id="dag",
        run_id="run",
        partition="day-1",
        acquired=NOW,
        expires=NOW,
    ).write(lineage.lease)


def wait(lineage: LineageLayout, run_key: str) -> None:
    WaitingTicket(
        run_key=run_key,
        dag_id="dag",
        run_id="run",
        partition="day-1",
        since=NOW,
        renewed=NOW,
        valid_seconds=1,
    ).write(lineage.ticket(run_key))


def age(store_uri: str, days: float = 100, cloud: GcsState | None = None) -> None:
    """Let everything in a store be that old."""
    then = datetime.now(UTC) - timedelta(days=days)
    if cloud is not None:
        for name, stored in list(cloud.objects.items()):
            changed = type(stored)(stored.data, stored.generation, stored.metadata, then)
            cloud.objects[name] = changed
        return
    for path in Path(store_uri).rglob("*"):
        if path.is_file():
            os.utime(path, (then.timestamp(), then.timestamp()))


def objects(store_uri: str) -> set[str]:
    """Return every object, relative to the store."""
    return {uri.removeprefix(f"{store_uri}/") for uri in uris.list_files(store_uri)}
