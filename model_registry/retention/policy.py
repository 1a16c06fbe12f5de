"""The retention policy: how long things are kept, and the kinds of things that can be removed."""

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
    """Return the record that stays of a version that is about to be removed.

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
    """Return the records of all removed versions, by version id.

    :raises FormatError: a record is damaged.
    """
    found = [PrunedVersion.load(uri) for uri in uris.list_files(lineage.pruned)]
    there = {commit.uri.split("/")[-2] for commit in list_commits(lineage)}
    # A pass that was killed, or overtaken by a rollback, leaves the version and this record.
    return {p.model.version_id: p for p in found if p.model.version_id not in there}


LEAST_AGE = timedelta(days=2)
"""Margin for uses that no record shows yet: a job that is writing, a run that has yet to name."""

ALERT_AGE = timedelta(days=30)
"""Least age of alerts: longer than their redelivery, so that a removed one is not raised again."""


MOST_JUMP = timedelta(days=1)
"""Between the store's clock and its newest object. With more, a clock may be wrong, and all old."""

MOST_VERSIONS = 0.5
"""Share of the model versions that one pass may remove without a person's confirmation."""


@dataclass(frozen=True)
class RetentionPolicy:
    """Rules for how much is kept besides what is needed.

    :param keep_versions: nearest ancestors of the model in use, and newest versions of a lineage,
        that stay as targets of a rollback.
    :param older_than: nothing that was written within this time is touched.
    :param pinned: model versions and training folders of runs that stay, by URI.
    :param confirmed: a person has checked what would be removed, so that doubts stop nothing.
    """

    keep_versions: int = 5
    older_than: timedelta = timedelta(days=14)
    pinned: tuple[str, ...] = ()
    confirmed: bool = False

    def __post_init__(self) -> None:
        """Refuse an unsafe policy.

        :raises ValueError: no version would be kept, or too young things removed.
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
    """A kind of thing that can be removed, in the order of removal: referrers before referents.

    Kinds that nothing names come first: a removed version leaves a record, which needs space.
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
    # Children stay with the version or the classifier that they are made from.
    Kind.TRIAL: {Kind.CHILD},
    Kind.VERSION: {Kind.MANIFEST, Kind.CHILD},
    Kind.MANIFEST: {Kind.SHARD},
    Kind.SHARD: {Kind.SIGNATURE, Kind.DECISION},
}


def and_what_they_name(kinds: Iterable[Kind]) -> set[Kind]:
    """Return kinds and those that they name, directly or not: if one is unknown, so are these."""
    found, new = set[Kind](), set(kinds)
    while new:
        found |= new
        new = {named for kind in new for named in _NAMES_NEXT.get(kind, ())} - found
    return found
