"""Finds what retention keeps: from records that are read, never by a guess.

If a record cannot be read, everything that it could name stays, and the report names the record.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from model_registry.retention.policy import Kind, RetentionPolicy, and_what_they_name
from model_registry.retention.survey import Files, Survey, newest
from pipeline_config import ConfigError, RentalConfig, parse_rental_config
from pipeline_store import identity, uris
from pipeline_store.details import ObjectDetails
from pipeline_store.formats import FormatError, PartitionManifest, ShardManifest, StoredFile
from pipeline_store.layout import StoreLayout

_PARALLEL_READS = 16
_VERSION = re.compile(r"lineages/[^/]+/versions/(v-[^/]+)")
_TRAINING = re.compile(r"runs/([^/]+)/training")
MANIFEST = re.compile(
    r"lineages/[^/]+/(?:partitions/[^/]+/[0-9a-f]+\.json|versions/[^/]+/manifests/[^/]+\.json)$"
)
"""End of the URI of a PartitionManifest, among the partitions or in a version."""

File = TypeVar("File", bound=StoredFile)
Found = TypeVar("Found")


@dataclass
class Needs:
    """What must stay, and why; of the kinds in ``blocked`` nothing may be removed."""

    open_runs: dict[str, str] = field(default_factory=dict)
    versions: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    unlisted: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """Objects in the folder of a version that its record does not name, by path."""
    trainings: set[str] = field(default_factory=set)
    trials: set[str] = field(default_factory=set)
    """Trials whose trained classifiers stay, as ``<run key>/trials/<trial id>``."""
    children: set[str] = field(default_factory=set)
    """Folders of smaller models that stay, by path."""
    exports: set[str] = field(default_factory=set)
    """Runs whose exports are in no version, and stay."""
    tasks: set[tuple[str, str]] = field(default_factory=set)
    """Prepared tasks, by name and key."""
    manifests: set[str] = field(default_factory=set)
    records_only: set[str] = field(default_factory=set)
    """Manifests that stay without their shards, as a record of what was trained on."""
    indexes: set[str] = field(default_factory=set)
    """Duplicate indexes of the manifests that stay, by path."""
    shards: dict[str, ShardManifest | None] = field(default_factory=dict)
    signatures: set[str] = field(default_factory=set)
    decisions: set[str] = field(default_factory=set)
    bundles: set[str] = field(default_factory=set)
    blocked: dict[Kind, list[str]] = field(default_factory=lambda: defaultdict(list))

    def block(self, kinds: Iterable[Kind], reason: str) -> None:
        """Keep everything of some kinds, and everything that things of these kinds name."""
        for kind in and_what_they_name(kinds):
            if reason not in self.blocked[kind]:
                self.blocked[kind].append(reason)


class Keeper:
    """Reads records of a store and notes what must stay because of them.

    :ivar cutoff: objects written since then stay.
    :ivar settings_in_use: hashes of the data settings of runs and versions that stay.
    """

    def __init__(self, store: StoreLayout, survey: Survey, policy: RetentionPolicy) -> None:
        self.store = store
        self.survey = survey
        self.policy = policy
        self.cutoff = survey.taken - policy.older_than
        self.needs = Needs()
        self.settings_in_use: set[str] = set()

    @property
    def files(self) -> Files:
        """Return all objects, by path."""
        return self.survey.files

    def read(self, kind: type[File], path: str, could_name: Iterable[Kind]) -> File | None:
        """Read a record of the survey; if it cannot be read, keep everything it could name."""
        return self._try(path, could_name, lambda: kind.load(self.survey.uri(path)))

    def read_all(
        self, kind: type[File], paths: Iterable[str], could_name: Iterable[Kind]
    ) -> dict[str, File]:
        """Read records in parallel; return those that can be read, by path."""
        wanted = sorted(paths)
        with ThreadPoolExecutor(_PARALLEL_READS) as pool:
            found = pool.map(lambda path: self.read(kind, path, could_name), wanted)
            return {path: file for path, file in zip(wanted, found, strict=True) if file}

    def config(self, path: str, could_name: Iterable[Kind]) -> RentalConfig | None:
        """Read a configuration of either kind, as :meth:`read` does."""
        uri = self.survey.uri(path)
        return self._try(path, could_name, lambda: parse_rental_config(uris.read(uri), uri))

    def _try(
        self, path: str, could_name: Iterable[Kind], read: Callable[[], Found]
    ) -> Found | None:
        try:
            return read()
        except (FormatError, ConfigError, FileNotFoundError) as error:
            text = " ".join(str(error).split())
            self.needs.block(could_name, f"{path} cannot be read: {text[:300]}")
            return None

    def by_run(self, kind: type[File], name: str, could_name: Iterable[Kind]) -> dict[str, File]:
        """Read a record of every run that has it, by run key."""
        paths = [path for key in self.survey.runs if (path := f"runs/{key}/{name}") in self.files]
        found = self.read_all(kind, paths, could_name)
        return {path.split("/")[1]: file for path, file in found.items()}

    def is_old(self, files: Iterable[ObjectDetails]) -> bool:
        """Return whether all of some objects are old enough to go."""
        return newest(files) < self.cutoff

    def need_version(self, version_id: str, reason: str) -> None:
        """Keep a version, in any lineage."""
        for lineage, known in self.survey.versions:
            if known == version_id and reason not in self.needs.versions[lineage, known]:
                self.needs.versions[lineage, known].append(reason)

    def pin(self, uri: str, reason: str) -> None:
        """Keep the version or the training folder that a URI leads to."""
        path = self.survey.path(self.store.resolve(uri))
        if found := _VERSION.match(path):
            self.need_version(found[1], reason)
        if found := _TRAINING.match(path):
            self.needs.trainings.add(found[1])

    def need_manifest(self, uri: str, user: str) -> None:
        """Keep the manifest at a URI, its original among the partitions, and its shards."""
        found = MANIFEST.search(uris.for_library(self.store.resolve(uri)))
        path = found[0] if found else uri
        if path in self.needs.manifests:
            return
        if path not in self.survey.files:
            self.needs.block({Kind.SHARD}, f"{user} names {uri}, which is not in the store")
            return
        manifest = self.read(PartitionManifest, path, {Kind.SHARD})
        if manifest is not None:
            self.keep_manifest(path, manifest)

    def keep_manifest(self, path: str, manifest: PartitionManifest) -> None:
        """Keep a manifest, its original among the partitions, and its shards."""
        keys = [uri.split("/")[-2] for uri in manifest.shards]
        original = identity.manifest_id(manifest.partition, keys)
        folder = f"lineages/{manifest.lineage_id}/partitions/{manifest.partition}"
        self.needs.manifests |= {path, f"{folder}/{original}.json"}
        self.needs.shards |= dict.fromkeys(keys)
