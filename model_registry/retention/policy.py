"""What retention is about: how long things are kept, and the kinds of things that can go."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from model_registry.versions import list_commits, load_version, manifests
from pipeline_store import uris
from pipeline_store.formats import PartitionManifest, PrunedVersion, RunPlan
from pipeline_store.layout import LineageLayout, VersionLayout


def describe_pruned(lineage: LineageLayout, version_id: str, reason: str) -> PrunedVersion:
    """Return what is to stay of a version that is about to be removed.

    :raises FileNotFoundError: its plan or a manifest is missing.
    :raises FormatError: one of its records is damaged.
    """
    folder = VersionLayout(lineage.version(version_id))
    model = load_version(lineage, version_id)
    seen = manifests(lineage, model)
    return PrunedVersion(
        model=model,
        trained={
            partition: PartitionManifest.load(seen[partition]).content_sha256
            for partition in RunPlan.load(folder.plan).trained
        },
        pruned=datetime.now(UTC),
        reason=reason,
    )


def pruned_versions(lineage: LineageLayout) -> dict[str, PrunedVersion]:
    """Return what is left of every removed version, by version id.

    :raises FormatError: a record is damaged.
    """
    found = [PrunedVersion.load(uri) for uri in uris.list_files(lineage.pruned)]
    there = {commit.uri.split("/")[-2] for commit in list_commits(lineage)}
    # A pass that was killed, or overtaken by a rollback, leaves the version and this record.
    return {p.model.version_id: p for p in found if p.model.version_id not in there}


LEAST_AGE = timedelta(days=2)
"""The margin for what no record says yet: a job that is writing, a run that is about to name."""

ALERT_AGE = timedelta(days=30)
"""Of alerts: longer than they are delivered again, so that a removed one is not raised anew."""


MOST_JUMP = timedelta(days=1)
"""Between the store's clock and its newest record. With more, a clock may be wrong, and all old."""

MOST_VERSIONS = 0.5
"""Share of the model versions that may go in one pass without a person who has confirmed it."""


@dataclass(frozen=True)
class RetentionPolicy:
    """How much is kept besides what is needed.

    :param keep_versions: nearest ancestors of the model in use, and newest versions of a lineage,
        that stay as targets of a rollback.
    :param older_than: nothing that was written within this time is touched.
    :param pinned: model versions and training folders of runs that stay, by URI.
    :param confirmed: a person has looked at what would go, so that doubts stop nothing.
    """

    keep_versions: int = 5
    older_than: timedelta = timedelta(days=14)
    pinned: tuple[str, ...] = ()
    confirmed: bool = False

    def __post_init__(self) -> None:
        """Refuse what would not be safe.

        :raises ValueError: no version is kept, or things are too young.
        """
        if self.keep_versions < 1:
            raise ValueError(
                f"keep-versions is {self.keep_versions}: keep at least 1, or a model that turns "
                "out bad could not be rolled back."
            )
        if self.older_than < LEAST_AGE:
            raise ValueError(
                f"older-than-days is {self.older_than / timedelta(days=1):g}: give at least "
                f"{LEAST_AGE.days}. What is younger may be in use by a job that has not said so."
            )


class Kind(StrEnum):
    """A kind of thing that can go, in the order of removal: what names before what is named.

    What nothing names comes first: of a version a record is kept, for which there has to be room.
    """

    SCRATCH = "scratch files"
    ALERT = "alerts"
    TRAINING = "checkpoints of ended runs"
    EXPORTS = "exports of ended runs"
    TRIAL = "checkpoints of trials"
    CHILD = "smaller models"
    BUNDLE = "code bundles"
    VERSION = "model versions"
    TASK = "prepared tasks"
    MANIFEST = "manifests of partitions"
    SHARD = "shards of records"
    SIGNATURE = "signatures"
    DECISION = "decisions on duplicates"


_NAMES_NEXT = {
    # Children stay with the version or the classifier that they are made of.
    Kind.TRIAL: {Kind.CHILD},
    Kind.VERSION: {Kind.MANIFEST, Kind.CHILD},
    Kind.MANIFEST: {Kind.SHARD},
    Kind.SHARD: {Kind.SIGNATURE, Kind.DECISION},
}


def and_what_they_name(kinds: Iterable[Kind]) -> set[Kind]:
    """Return kinds with all that things of these kinds name: who cannot tell one, cannot others."""
    found, new = set[Kind](), set(kinds)
    while new:
        found |= new
        new = {named for kind in new for named in _NAMES_NEXT.get(kind, ())} - found
    return found
