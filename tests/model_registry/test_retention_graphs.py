"""Whatever the graph: nothing that a model in use or a running run leads to is removed.

What must stay is found here by walking the files, in another way than retention itself does.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model_registry.retention import pruning
from model_registry.retention.pruning import RetentionPolicy
from pipeline_store import identity
from pipeline_store.formats import (
    FileDigest,
    LineageLease,
    ModelVersion,
    OutcomeKind,
    PartitionManifest,
    ProductionPointer,
    Reservation,
    RunOutcome,
    RunPlan,
    ShardManifest,
    Split,
    StoredFile,
)
from pipeline_store.layout import RunLayout, StoreLayout, VersionLayout
from tests.model_registry.retained import NO_STATISTICS, age, objects
from tests.model_registry.runs import CONFIG, NOW, sha256

PARTITIONS = ("day-1", "day-2", "day-3")
SHARDS = tuple(sha256(f"shard {number}".encode())[:32] for number in range(5))

manifests = st.tuples(st.sampled_from(PARTITIONS), st.sets(st.sampled_from(SHARDS), min_size=1))


@dataclass(frozen=True)
class DrawnRun:
    """A run as it is drawn: numbers stand for earlier runs."""

    parent: int | None
    trained: list[tuple[str, set[str]]]
    replayed: list[tuple[str, set[str]]]
    has_plan: bool
    has_outcome: bool
    is_published: bool
    has_copies: bool
    """Of manifests, as versions had once; the others name those of the lineage."""
    waits: bool
    is_young: bool
    has_reservation: bool
    has_ledger: bool


runs = st.builds(
    DrawnRun,
    parent=st.none() | st.integers(0, 5),
    trained=st.lists(manifests, min_size=1, max_size=2),
    replayed=st.lists(manifests, max_size=1),
    has_plan=st.sampled_from([True, True, True, False]),
    has_outcome=st.sampled_from([True, True, False]),
    is_published=st.booleans(),
    has_copies=st.booleans(),
    waits=st.sampled_from([False, False, False, True]),
    is_young=st.sampled_from([False, False, False, True]),
    has_reservation=st.booleans(),
    has_ledger=st.booleans(),
)


class DrawnStore:
    """A store with the files of drawn runs, as small as they can be."""

    def __init__(self, root: str, drawn: list[DrawnRun], in_use: int, holder: int | None) -> None:
        self.layout = StoreLayout(root)
        self.lineage = self.layout.lineage("default")
        self.drawn = drawn
        self.keys = [identity.run_key("dag", str(number)) for number in range(len(drawn))]
        self.published: list[str] = []
        for key in SHARDS:
            self._shard(key)
        for number, run in enumerate(drawn):
            self._run(self.keys[number], run)
        if self.published:
            self.in_use = self.published[in_use % len(self.published)]
            self._write(
                self.lineage.production,
                ProductionPointer(sequence=1, version_id=self.in_use, changed=NOW, reason="test"),
            )
        age(root)
        for key, run in zip(self.keys, drawn, strict=True):
            if run.is_young:
                Path(self.layout.run(key).record).touch()
        self.holder = None if holder is None else self.keys[holder % len(drawn)]
        if self.holder is not None:
            self._hold(self.holder)
            age_one = Path(self.lineage.lease)
            age_one.touch()

    def _hold(self, key: str) -> None:
        lease = LineageLease(
            sequence=1,
            run_key=key,
            dag_id="dag",
            run_id="run",
            partition="day-1",
            acquired=NOW,
            expires=NOW,
        )
        self._write(self.lineage.lease, lease)

    @staticmethod
    def _write(uri: str, content: StoredFile | bytes) -> None:
        path = Path(uri)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.to_bytes())

    def _shard(self, key: str) -> None:
        self._write(f"{self.layout.shard(key)}/try-1/x", b"1")
        shard = ShardManifest(
            shard_key=key,
            input_uri="x",
            input_sha256="x",
            input_bytes=1,
            vocabulary_sha256="v",
            config_sha256="c",
            decisions_sha256="d",
            files=[],
            documents=1,
            dropped={},
            dead_letter=FileDigest(path="try-1/x", bytes=1, sha256=sha256(b"1")),
            statistics=NO_STATISTICS,
            libraries={},
        )
        self._write(self.layout.shard_manifest(key), shard)

    def _manifest(self, partition: str, shards: set[str]) -> tuple[str, PartitionManifest]:
        manifest = PartitionManifest(
            partition=partition,
            lineage_id="default",
            vocabulary_sha256="v",
            config_sha256="c",
            packing="doc_sentences",
            masked=True,
            max_seq_length=128,
            max_predictions_per_seq=20,
            extra_max_seq_length=None,
            extra_max_predictions_per_seq=None,
            shards=[self.layout.shard_manifest(key) for key in sorted(shards)],
            documents=1,
            records={Split.TRAIN: 1},
            tokens={Split.TRAIN: 1},
            dropped={},
            duplicate_index=None,
            statistics=NO_STATISTICS,
        )
        manifest_id = identity.manifest_id(partition, sorted(shards))
        uri = self.lineage.manifest(partition, manifest_id)
        self._write(uri, manifest)
        return uri, manifest

    def _run(self, key: str, drawn: DrawnRun) -> None:
        run = self.layout.run(key)
        self._write(run.record, b"{}")
        self._write(run.config, CONFIG.to_bytes())
        self._write(f"{run.training.root}/attempts/t/x", b"1")
        self._write(run.training.checkpoint(1), b"{}")
        self._write(run.exports.record, b"{}")
        parent = None
        if drawn.parent is not None and self.published:
            parent = self.published[drawn.parent % len(self.published)]
        trained = {name: self._manifest(name, shards) for name, shards in drawn.trained}
        replayed = {name: self._manifest(name, shards)[0] for name, shards in drawn.replayed}
        plan = RunPlan(
            partition="day-1",
            parent_version=parent,
            trained={name: uri for name, (uri, _) in trained.items()},
            replayed=replayed,
            not_replayed={},
            evaluated={},
            lease_sequence=1,
            created=NOW,
        )
        if drawn.has_plan:
            self._write(run.plan, plan)
        if drawn.waits:
            self._write(self.lineage.ticket(key), b"{}")
        if drawn.has_outcome:
            outcome = RunOutcome(
                outcome=OutcomeKind.FAILED, reason="test", written_by="test", time=NOW
            )
            self._write(run.outcome, outcome)
        if drawn.has_reservation:
            self._reserve(run, key, has_ledger=drawn.has_ledger)
        if drawn.is_published:
            own = [manifest for _, manifest in trained.values()]
            self._publish(key, parent, plan, own, has_copies=drawn.has_copies)

    def _reserve(self, run: RunLayout, key: str, *, has_ledger: bool) -> None:
        bundle = sha256(key.encode())
        self._write(self.layout.bundle(bundle), b"zip")
        reservation = Reservation(
            run_key=key,
            generation=1,
            project_id="p",
            zones=["z"],
            owner="o",
            dag_id="d",
            accelerator_type="a",
            bundle_sha256=bundle,
            created=NOW,
            expires_at=NOW,
            delete_grace_seconds=1,
            price_per_chip_hour=1,
            currency="USD",
            price_date="x",
        )
        self._write(run.reservation(1).record, reservation)
        if has_ledger:
            self._write(run.reservation(1).ledger, b"{}")

    def _publish(
        self,
        key: str,
        parent: str | None,
        plan: RunPlan,
        own: list[PartitionManifest],
        *,
        has_copies: bool,
    ) -> None:
        version = identity.version_id(key)
        folder = VersionLayout(self.lineage.version(version))
        seen = {manifest.partition: manifest for manifest in own}
        if parent is not None:
            for path in self._manifests_of(parent):
                manifest = PartitionManifest.load(path)
                seen.setdefault(manifest.partition, manifest)
        content: dict[str, StoredFile | bytes] = {
            folder.plan: plan,
            folder.config: CONFIG.to_bytes(),
            f"{folder.root}/checkpoint/model": b"1",
        }
        named = {}
        for name, manifest in seen.items():
            if has_copies:
                content[folder.manifest(name)] = manifest
            else:
                keys = [uri.split("/")[-2] for uri in manifest.shards]
                original = self.lineage.manifest(name, identity.manifest_id(name, keys))
                path = original.removeprefix(f"{self.lineage.root}/")
                named[name] = FileDigest.of(path, manifest.to_bytes())
        for uri, data in content.items():
            self._write(uri, data)
        model = ModelVersion(
            version_id=version,
            lineage_id="default",
            parent=parent,
            run_key=key,
            partitions_seen=sorted(seen),
            manifests=named,
            files=[
                FileDigest(path=uri.removeprefix(f"{folder.root}/"), bytes=1, sha256=sha256(b"1"))
                for uri in content
            ],
            checkpoint_prefix="checkpoint/model",
            vocabulary_sha256="v",
            train_steps_total=len(self.published) + 1,
            metrics={},
            created=NOW + timedelta(minutes=len(self.published)),
        )
        self._write(folder.model, model)
        self.published.append(version)

    # What must stay, by walking

    def needed(self) -> set[str]:
        """Return every object, relative to the root, that is in use, and every record."""
        kept = {
            path
            for path in objects(self.layout.root)
            if path.startswith("runs/")
            and not any(part in path for part in ("/attempts/t/", "/checkpoints/", "/exports/"))
        }
        if self.published:
            kept |= self._version(self.in_use)
        for key, run in zip(self.keys, self.drawn, strict=True):
            is_open = not run.has_outcome or run.waits or run.is_young or key == self.holder
            if is_open:
                kept |= self._open_run(key)
            if run.has_reservation and (is_open or not run.has_ledger):
                kept.add(f"bundles/{sha256(key.encode())}.zip")
        return kept

    def _open_run(self, key: str) -> set[str]:
        run = self.layout.run(key)
        kept = self._below(run.root)
        if Path(run.plan).exists():
            plan = RunPlan.load(run.plan)
            kept |= self._version(plan.parent_version) if plan.parent_version else set()
            for uri in (*plan.trained.values(), *plan.replayed.values()):
                kept |= {self._path(uri)} | self._records(uri)
        return kept | self._version(identity.version_id(key))

    def _version(self, version: str) -> set[str]:
        kept = self._below(self.lineage.version(version))
        for path in self._manifests_of(version):
            kept |= {self._path(path)} | self._records(path)
        return kept

    def _manifests_of(self, version: str) -> list[str]:
        """Return the manifests that a version has or names; of an unfinished one there are none."""
        folder = Path(self.lineage.version(version))
        model = ModelVersion.load_or_none(str(folder / "model.json"))
        named = [] if model is None else [file.path for file in model.manifests.values()]
        copies = sorted(str(path) for path in (folder / "manifests").glob("*.json"))
        return [*copies, *(f"{self.lineage.root}/{path}" for path in named)]

    def _records(self, manifest_uri: str) -> set[str]:
        found: set[str] = set()
        for uri in PartitionManifest.load(manifest_uri).shards:
            found |= self._below(uri.rpartition("/")[0])
        return found

    def _below(self, folder: str) -> set[str]:
        return {self._path(str(path)) for path in Path(folder).rglob("*") if path.is_file()}

    def _path(self, uri: str) -> str:
        return uri.removeprefix(f"{self.layout.root}/")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    drawn=st.lists(runs, min_size=1, max_size=6),
    in_use=st.integers(0, 5),
    holder=st.none() | st.integers(0, 5),
    keep_versions=st.integers(1, 2),
)
def test_nothing_that_is_reachable_goes(
    drawn: list[DrawnRun], in_use: int, holder: int | None, keep_versions: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = DrawnStore(f"{folder}/store", drawn, in_use, holder)
        needed = store.needed()
        # All that was drawn is old; that a person confirms that is another rule than this one.
        policy = RetentionPolicy(keep_versions=keep_versions, confirmed=True)
        report = pruning.prune(store.layout, policy)
        left = objects(store.layout.root)
        assert needed - left == set()
        assert report.left == {}
        gone: set[Any] = {path for item in report.removed for path in item.paths}
        assert not gone & left
