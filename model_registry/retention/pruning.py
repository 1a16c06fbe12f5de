"""Retention: removes what is old and no longer needed, and nothing else.

:func:`plan` says what would be removed and why the rest stays; :func:`prune` removes it. Both can
be repeated at any time, also after having been killed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain, pairwise
from typing import Any

from model_registry.errors import UnconfirmedError
from model_registry.retention.data import DataNeeds
from model_registry.retention.finetuning import FinetuningNeeds
from model_registry.retention.items import Item, find_items
from model_registry.retention.keeping import Keeper, Needs
from model_registry.retention.policy import MOST_JUMP, MOST_VERSIONS, Kind, RetentionPolicy
from model_registry.retention.runs import RunNeeds
from model_registry.retention.survey import Survey, newest, survey
from model_registry.retention.sweep import Progress, Sweep
from model_registry.retention.versions import VersionNeeds
from pipeline_store.layout import StoreLayout

_NO_TIME = timedelta()

__all__ = ["Kind", "PrunePlan", "PruneReport", "RetentionPolicy", "plan", "prune"]


@dataclass(frozen=True)
class PrunePlan:
    """What can be removed, and why the rest stays.

    ``kept_versions``: reasons by ``lineage/version``. ``running``: reasons by run key. ``blocked``:
    kinds of which nothing is removed for now, with the reasons. ``unknown``: objects, by path, that
    no part of the project writes; they are never removed. ``doubts``: why nothing is removed before
    a person has confirmed it.
    """

    items: list[Item]
    kept_versions: dict[str, list[str]]
    running: dict[str, str]
    blocked: dict[Kind, list[str]]
    unknown: list[str]
    doubts: list[str] = field(default_factory=list)

    def totals(self) -> dict[Kind, tuple[int, int]]:
        """Return the number of things that can be removed and their bytes, by kind."""
        return _totals(self.items)


@dataclass(frozen=True)
class PruneReport:
    """Result of :func:`prune`; ``left`` has what was planned but not removed, and why."""

    plan: PrunePlan
    removed: list[Item] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        plan = self.plan
        return {
            "can_go": _json_totals(plan.items),
            "removed": _json_totals(self.removed),
            "items": [
                {"kind": item.kind.value, "name": item.name, "why": item.why, "bytes": item.bytes}
                for item in plan.items
            ],
            "left": self.left,
            "kept_versions": plan.kept_versions,
            "running": plan.running,
            "blocked": {kind.value: reasons for kind, reasons in plan.blocked.items()},
            "unknown": plan.unknown,
            "doubts": plan.doubts,
        }


def _totals(items: list[Item]) -> dict[Kind, tuple[int, int]]:
    totals: dict[Kind, tuple[int, int]] = {}
    for item in items:
        count, size = totals.get(item.kind, (0, 0))
        totals[item.kind] = (count + 1, size + item.bytes)
    return totals


def _json_totals(items: list[Item]) -> dict[str, dict[str, int]]:
    totals = _totals(items).items()
    return {kind.value: {"count": count, "bytes": size} for kind, (count, size) in totals}


def plan(store: StoreLayout, policy: RetentionPolicy) -> PrunePlan:
    """Survey a store and return what can be removed. Changes nothing."""
    found = survey(store)
    needs = _find_needs(store, found, policy)
    items = find_items(found, needs, policy)
    return PrunePlan(
        items=items,
        doubts=list(_doubts(found, items, policy)),
        kept_versions={
            "/".join(version): reasons
            for version, reasons in sorted(needs.versions.items())
            if reasons
        },
        running=needs.open_runs,
        blocked={kind: needs.blocked[kind] for kind in Kind if needs.blocked.get(kind)},
        unknown=sorted([*found.unknown, *chain.from_iterable(needs.unlisted.values())]),
    )


def _doubts(found: Survey, items: list[Item], policy: RetentionPolicy) -> Iterator[str]:
    """Yield reasons to suspect that things only look old or unused."""
    if found.files and items:
        newest = max(details.modified for details in found.files.values())
        if abs(found.taken - newest) > MOST_JUMP:
            yield (
                f"it is {found.taken:%F %T} UTC by the store's clock, but its newest object is of "
                f"{newest:%F %T} UTC: either nothing was written for more than a day, or a clock "
                "is wrong and young things look old"
            )
    yield from _silences(found, items, policy)
    going = sum(item.kind is Kind.VERSION for item in items)
    if going > MOST_VERSIONS * len(found.versions):
        yield (
            f"{going} of {len(found.versions)} model versions would go, more than "
            f"{MOST_VERSIONS:.0%} in one pass"
        )


def _silences(found: Survey, items: list[Item], policy: RetentionPolicy) -> Iterator[str]:
    """Yield a doubt if things are old only because of a long time in which nothing was written.

    A clock that has jumped leaves such a silence, and objects written afterwards agree with the
    clock: so each silence counts for at most half of the age that is required for removal. Scratch
    files are left out: they are removed after two days, and can all be made again.
    """
    most = policy.older_than / 2
    times = sorted({details.modified for details in found.files.values()})
    silences = [(begun, end) for begun, end in pairwise(times) if end - begun > most]
    if not silences:
        return
    doubtful = []
    for item in items:
        if item.kind is Kind.SCRATCH:
            continue
        written = newest(found.files[path] for path in item.paths)
        passed = found.taken - written
        passed -= sum((end - begun - most for begun, end in silences if begun >= written), _NO_TIME)
        if passed < policy.older_than:
            doubtful.append(item)
    if doubtful:
        begun, end = max(silences, key=lambda silence: silence[1] - silence[0])
        yield (
            f"{len(doubtful)} things, such as {doubtful[0].kind} {doubtful[0].name}, are old only "
            f"if {(end - begun).days} days passed between {begun:%F %T} and {end:%F %T} UTC, "
            "between which nothing was written: either that is so, or a clock has jumped and "
            "young things look old"
        )


def prune(
    store: StoreLayout,
    policy: RetentionPolicy,
    progress: Progress = lambda done, total, size: None,
    **options: float,
) -> PruneReport:
    """Remove what can be removed.

    :param progress: called after each thing.
    :param options: of :class:`model_registry.retention.sweep.Sweep`.
    :raises UnconfirmedError: there are doubts, and ``policy.confirmed`` is off; nothing is removed.
    """
    planned = plan(store, policy)
    if planned.doubts and not policy.confirmed:
        raise UnconfirmedError(
            f"Nothing was removed from {store.root}, as a person has to look first: "
            f"{'; '.join(planned.doubts)}. If that is right, do it again with --confirm (in the "
            "form: confirm)."
        )
    sweep = Sweep(store, lambda: plan(store, policy).items, progress, **options)
    removed, left = sweep.remove(planned.items)
    return PruneReport(planned, removed, left)


def _find_needs(store: StoreLayout, found: Survey, policy: RetentionPolicy) -> Needs:
    """Follow the records of a store and return all that must stay."""
    keeper = Keeper(store, found, policy)
    finetunings = FinetuningNeeds(keeper)
    runs = RunNeeds(keeper, finetunings)
    runs.keep()
    for uri in policy.pinned:
        keeper.pin(uri, "it is pinned")
    finetunings.keep_newest()
    VersionNeeds(keeper).keep()
    finetunings.keep_children()
    # Last: which data stay follows from everything that names manifests.
    DataNeeds(keeper, list(runs.plans.values())).keep()
    return keeper.needs
