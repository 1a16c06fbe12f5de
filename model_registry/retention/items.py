"""Finds what can be removed from a store: everything old that nothing needs, commits first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from model_registry.retention.keeping import Needs
from model_registry.retention.policy import ALERT_AGE, LEAST_AGE, Kind, RetentionPolicy
from model_registry.retention.survey import Files, Survey, is_run_bytes, newest

_TRIAL = re.compile(
    r"(runs/[^/]+/(?:(?:trials|probes/[^/]+)/[^/]+|children/[^/]+/student_training))/training/"
)
_CHILD = re.compile(r"(runs/[^/]+/children/[^/]+/(?!student_training/)[^/]+)/.+")


@dataclass(frozen=True)
class Item:
    """One thing that can be removed as a whole.

    ``commits`` are removed one by one before anything else: if the pass is killed, no reader trusts
    the rest, and a later pass removes it. Paths are relative to the root.
    """

    kind: Kind
    name: str
    why: str
    commits: tuple[str, ...]
    files: tuple[str, ...]
    bytes: int

    @property
    def paths(self) -> tuple[str, ...]:
        """Return all its objects, in the order of removal."""
        return (*self.commits, *self.files)


def find_items(survey: Survey, needs: Needs, policy: RetentionPolicy) -> list[Item]:
    """Return what can be removed, in the order of removal."""
    finder = _Finder(survey, needs, policy)
    found = chain(
        finder.versions(),
        finder.runs(),
        finder.tasks(),
        finder.manifests(),
        finder.shards(),
        finder.signatures(),
        finder.decisions(),
        finder.bundles(),
        finder.alerts(),
        finder.scratch(),
    )
    order = list(Kind)
    allowed = [item for item in found if not needs.blocked.get(item.kind)]
    return sorted(allowed, key=lambda item: (order.index(item.kind), item.name))


class _Finder:
    def __init__(self, survey: Survey, needs: Needs, policy: RetentionPolicy) -> None:
        self._survey = survey
        self._needs = needs
        self._cutoff = survey.taken - policy.older_than
        self._alert_cutoff = survey.taken - max(policy.older_than, ALERT_AGE)

    def versions(self) -> Iterator[Item]:
        for (lineage, version), files in self._survey.versions.items():
            is_needed = bool(self._needs.versions.get((lineage, version)))
            if is_needed or (lineage, version) in self._needs.unlisted:
                continue
            commit = f"lineages/{lineage}/versions/{version}/model.json"
            why = "no rollback target, and no run names it"
            if commit not in files:
                why = "never finished, or removed in part"
            yield from self._old(Kind.VERSION, f"{lineage}/{version}", why, [commit], files)

    def runs(self) -> Iterator[Item]:
        for key, files in self._survey.runs.items():
            # A folder without an outcome belongs to a run in progress, or was made by hand.
            if key in self._needs.open_runs or f"runs/{key}/outcome.json" not in files:
                continue
            if newest(files.values()) >= self._cutoff:
                continue
            large = {path: found for path, found in files.items() if is_run_bytes(path)}
            training = _below(large, f"runs/{key}/training/")
            commits = [path for path in training if path.startswith(f"runs/{key}/training/check")]
            # The newest last: a trainer that reads in between still finds the newest checkpoint.
            if training and key not in self._needs.trainings:
                yield from self._old(Kind.TRAINING, key, "it ended", sorted(commits), training)
            for folder in sorted({found[1] for path in large if (found := _TRIAL.match(path))}):
                yield from self._trial(key, folder, large)
            yield from self._children(key, files)
            exports = _below(large, f"runs/{key}/exports/")
            if exports and key not in self._needs.exports:
                commit = f"runs/{key}/exports/exports.json"
                yield from self._old(Kind.EXPORTS, key, "it ended", [commit], exports)

    def _trial(self, key: str, folder: str, large: Files) -> Iterator[Item]:
        """Yield the checkpoints of a trial of a fine-tuning run or of a probe."""
        name = folder.removeprefix(f"runs/{key}/")
        if f"{key}/{name}" in self._needs.trials:
            return
        training = _below(large, f"{folder}/training/")
        commits = [path for path in training if path.startswith(f"{folder}/training/check")]
        why = "its run ended, and a newer one has classifiers of its task"
        if name.startswith("probes/"):
            why = "it was a probe"
        yield from self._old(Kind.TRIAL, f"{key}/{name}", why, sorted(commits), training)

    def _children(self, key: str, files: Files) -> Iterator[Item]:
        """Yield the smaller models of a run's classifiers; their measurements stay."""
        for folder in sorted({found[1] for path in files if (found := _CHILD.match(path))}):
            inside, commit = _below(files, f"{folder}/"), f"{folder}/child.json"
            # A refused one consists of its record only.
            if folder in self._needs.children or inside.keys() == {commit}:
                continue
            why = "a newer run has classifiers of its task, and its version is no rollback target"
            name = f"{key}/{folder.removeprefix(f'runs/{key}/')}"
            yield from self._old(Kind.CHILD, name, why, [commit], inside)

    def tasks(self) -> Iterator[Item]:
        for (task, key), files in self._survey.tasks.items():
            if (task, key) in self._needs.tasks:
                continue
            commit = f"tasks/{task}/prepared/{key}/manifest.json"
            why = "no run names it" if commit in files else "never finished"
            yield from self._old(Kind.TASK, f"{task}/{key}", why, [commit], files)

    def manifests(self) -> Iterator[Item]:
        kept = self._needs.manifests | self._needs.records_only
        for partition in self._survey.partitions.values():
            stems = {path.removesuffix(".json") for path in partition.manifests if path in kept}
            loose = {
                path: found
                for path, found in partition.others.items()
                if path not in self._needs.indexes and path.rpartition(".")[0] not in stems
            }
            for path, found in partition.manifests.items():
                if path in kept:
                    continue
                report = path.replace(".json", ".html")
                files = {path: found}
                if report in loose:
                    files[report] = loose.pop(report)
                yield from self._old(Kind.MANIFEST, path, "superseded", [path], files)
            for path, found in loose.items():
                yield from self._old(Kind.MANIFEST, path, "no manifest names it", [], {path: found})

    def shards(self) -> Iterator[Item]:
        for key, files in self._survey.shards.items():
            commit = f"shards/{key}/shard.json"
            if key not in self._needs.shards:
                why = "no manifest names it" if commit in files else "never finished"
                yield from self._old(Kind.SHARD, key, why, [commit], files)
            elif shard := self._needs.shards[key]:
                paths = (digest.path for digest in shard.digests())
                named = {commit, *(f"shards/{key}/{path}" for path in paths)}
                spare = {path: found for path, found in files.items() if path not in named}
                if spare:
                    yield from self._old(Kind.SHARD, f"{key}: spare", "another try won", [], spare)

    def signatures(self) -> Iterator[Item]:
        for path, found in self._survey.signatures.items():
            if path not in self._needs.signatures:
                why = "no shard is of this file"
                yield from self._old(Kind.SIGNATURE, path, why, [], {path: found})

    def decisions(self) -> Iterator[Item]:
        for path, found in self._survey.decisions.items():
            if path not in self._needs.decisions:
                yield from self._old(Kind.DECISION, path, "no shard is of it", [], {path: found})

    def bundles(self) -> Iterator[Item]:
        for path, found in self._survey.bundles.items():
            if path.removeprefix("bundles/").removesuffix(".zip") not in self._needs.bundles:
                why = "no open reservation names it"
                yield from self._old(Kind.BUNDLE, path, why, [], {path: found})

    def alerts(self) -> Iterator[Item]:
        for scope, files in self._survey.alerts.items():
            is_young = newest(files.values()) >= self._alert_cutoff
            if scope not in self._needs.open_runs and not is_young:
                yield from self._old(Kind.ALERT, scope, "its run has ended", [], files)

    def scratch(self) -> Iterator[Item]:
        for key, files in self._survey.job_keys.items():
            if key not in self._needs.open_runs:
                yield from self._old(
                    Kind.SCRATCH, f"job_keys/{key}", "its run has ended", [], files
                )
        for path, found in self._survey.scratch.items():
            yield from self._old(Kind.SCRATCH, path, "left by a killed job", [], {path: found})
        # They are in use only while one file is copied, and a full disk needs their space.
        cutoff = self._survey.taken - LEAST_AGE
        for path, found in self._survey.leftovers.items():
            if found.modified < cutoff:
                yield Item(Kind.SCRATCH, path, "left by a killed write", (), (path,), found.bytes)

    def _old(
        self, kind: Kind, name: str, why: str, commits: Iterable[str], files: Files
    ) -> Iterator[Item]:
        """Yield the item unless any part of it is young."""
        if newest(files.values()) >= self._cutoff:
            return
        first = tuple(path for path in commits if path in files)
        rest = tuple(path for path in files if path not in first)
        yield Item(kind, name, why, first, rest, sum(found.bytes for found in files.values()))


def _below(files: Files, folder: str) -> Files:
    return {path: found for path, found in files.items() if path.startswith(folder)}
