"""Surveys a whole store: sorts every object by what it belongs to, from a single listing."""

from __future__ import annotations

import re
import uuid
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from pipeline_store import uris
from pipeline_store.details import ObjectDetails
from pipeline_store.layout import StoreLayout

_KEPT = (
    *("arrivals", "backfills", "cooldowns", "corpora", "corpus", "identities", "places", "reaper"),
    "installation.json",
)
"""Text and records below the root that retention ignores: folders and a file."""

_TRIAL = r"((trials|probes/[^/]+)/[^/]+|children/[^/]+/student_training)"
_RUN_RECORDS = re.compile(
    r"[a-z_]+\.(json|html)|(evaluations|verdicts|probes|prepared(/tasks)?)/[^/]+\.json|reservations/.+"
    rf"|({_TRIAL}/)?training/((events|metrics)/.+|(initial_weights|result)\.json)"
    rf"|{_TRIAL}/(result\.json|outputs/.+)|(predictions|children)/.+"
)
_RUN_BYTES = re.compile(
    rf"runs/[^/]+/(training/(attempts|checkpoints)|exports|{_TRIAL}/training/(attempts|checkpoints))/."
)
_LINEAGE_RECORDS = re.compile(r"[a-z_]+\.json|(vocabulary|waiting|pruned|attempts)/[^/]+")

Files = dict[str, ObjectDetails]
"""Objects by path relative to the store's root."""


@dataclass
class PartitionFiles:
    """The files of one partition of a lineage, by path."""

    manifests: Files = field(default_factory=dict)
    others: Files = field(default_factory=dict)


@dataclass
class Survey:
    """The objects of a store, sorted by what they belong to. Keys are names, values are objects."""

    root: str
    taken: datetime
    files: Files = field(default_factory=dict)
    runs: dict[str, Files] = field(default_factory=lambda: defaultdict(dict))
    versions: dict[tuple[str, str], Files] = field(default_factory=lambda: defaultdict(dict))
    partitions: dict[tuple[str, str], PartitionFiles] = field(
        default_factory=lambda: defaultdict(PartitionFiles)
    )
    lineages: set[str] = field(default_factory=set)
    shards: dict[str, Files] = field(default_factory=lambda: defaultdict(dict))
    signatures: Files = field(default_factory=dict)
    decisions: Files = field(default_factory=dict)
    bundles: Files = field(default_factory=dict)
    job_keys: dict[str, Files] = field(default_factory=lambda: defaultdict(dict))
    """By run key; left by a release that was cut short."""
    alerts: dict[str, Files] = field(default_factory=lambda: defaultdict(dict))
    tasks: dict[tuple[str, str], Files] = field(default_factory=lambda: defaultdict(dict))
    """Prepared labeled tasks, by name and key."""
    scratch: Files = field(default_factory=dict)
    leftovers: Files = field(default_factory=dict)
    """Partial files that a killed write left next to where the file would be."""
    unknown: list[str] = field(default_factory=list)

    def uri(self, path: str) -> str:
        """Return the URI of an object of the survey."""
        return uris.join(self.root, path)

    def path(self, uri: str) -> str:
        """Return the path below the root; a URI outside of it is returned unchanged."""
        return uris.for_library(uri).removeprefix(self.root + "/")


def survey(store: StoreLayout) -> Survey:
    """List a store once and sort its objects; none of them is read."""
    root = uris.for_library(store.root).rstrip("/")
    found = Survey(root, uris.now(StoreLayout(root).probe(f"clock-{uuid.uuid4().hex}")))
    for details in uris.list_details(root):
        path = details.uri.removeprefix(root + "/")
        if path.partition("/")[0] in _KEPT:
            continue
        found.files[path] = details
        if not _sort_in(found, path, details):
            found.unknown.append(path)
    leftovers = uris.list_leftovers(root)
    found.leftovers = {file.uri.removeprefix(root + "/"): file for file in leftovers}
    return found


def _sort_in(found: Survey, path: str, details: ObjectDetails) -> bool:
    """Assign an object to what it belongs to; return whether its place is known."""
    match path.split("/"):
        case ["runs", key, *rest] if rest:
            found.runs[key][path] = details
            return is_run_bytes(path) or bool(_RUN_RECORDS.fullmatch("/".join(rest)))
        case ["lineages", lineage, *rest] if rest:
            found.lineages.add(lineage)
            return _sort_in_lineage(found, lineage, rest, path, details)
        case ["tasks", name, *rest] if rest:
            _sort_in_task(found, name, rest, path, details)
        case ["shards", key, "shard.json"] | ["shards", key, _, _]:
            found.shards[key][path] = details
        case ["signatures", name] if re.fullmatch(r"[0-9a-f]+\.(json|npz)", name):
            found.signatures[path] = details
        case ["decisions", name] if re.fullmatch(r"[0-9a-f]+\.json", name):
            found.decisions[path] = details
        case ["bundles", name] if re.fullmatch(r"[0-9a-f]+\.zip", name):
            found.bundles[path] = details
        case ["alerts" | "job_keys" as folder, scope, name] if name.endswith(".json"):
            of_runs = found.alerts if folder == "alerts" else found.job_keys
            of_runs[scope][path] = details
        case ["scratch" | "preflight", _]:
            found.scratch[path] = details
        case _:
            return False
    return True


def _sort_in_task(
    found: Survey, name: str, rest: list[str], path: str, details: ObjectDetails
) -> None:
    match rest:
        case ["prepared", key, *inside] if inside:
            found.tasks[name, key][path] = details
        case _:
            pass  # a task's description and examples belong to people


def _sort_in_lineage(
    found: Survey, lineage: str, rest: list[str], path: str, details: ObjectDetails
) -> bool:
    match rest:
        case ["versions", version, *inside] if inside:
            found.versions[lineage, version][path] = details
            return True
        case ["rollbacks", _]:
            found.scratch[path] = details
            return True
        case ["partitions", partition, name]:
            return _sort_in_partition(found.partitions[lineage, partition], name, path, details)
        case _:
            return bool(_LINEAGE_RECORDS.fullmatch("/".join(rest)))


def _sort_in_partition(files: PartitionFiles, name: str, path: str, details: ObjectDetails) -> bool:
    if re.fullmatch(r"[0-9a-f]+\.json", name):
        files.manifests[path] = details
    elif re.fullmatch(r"[0-9a-f]+\.html|documents-[0-9a-f]+\.npz", name):
        files.others[path] = details
    else:
        return False
    return True


def is_run_bytes(path: str) -> bool:
    """Return whether an object is one of a run's large ones, which an ended run can do without.

    :param path: relative to the store's root.
    """
    return bool(_RUN_BYTES.match(path))


def newest(files: Iterable[ObjectDetails]) -> datetime:
    """Return when the newest of some objects was written."""
    return max(details.modified for details in files)
