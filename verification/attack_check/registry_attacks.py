"""Attacks on the registry: crashes, kills, concurrent changes, retention at the wrong moment."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from model_registry import lease, production, registry
from model_registry.consistency import check
from model_registry.retention import pruning, sweep
from model_registry.retention.items import Item
from pipeline_store import formats, local, uris
from pipeline_store.formats import (
    Answer,
    FormatError,
    ProductionPointer,
    RunApproval,
    RunRecord,
    StoredFile,
    base,
)
from tests.model_registry.finetunings import FinetuningRun
from tests.model_registry.retained import POLICY, age, finished, hold, line_of_models
from tests.model_registry.runs import NOW, FinishedRun
from tests.model_registry.smaller_models import put_child
from verification.attack_check.crashes import (
    at_once,
    count_changes,
    die_at,
    in_child,
    kill_at_random,
)
from verification.attack_check.rows import Row, Tally


@dataclass(frozen=True)
class Stage:
    """A prepared store, and the work that is about to be done in it."""

    run: FinishedRun
    work: Callable[[], object]
    wanted: str | None = None
    """The version that must be in use when it is done; None: any."""


def promotion(path: str) -> Stage:
    """Return a store with a candidate to publish and promote."""
    runs = line_of_models(path, 2)
    run = finished(path, "next", runs[-1].version_id)

    def work() -> None:
        registry.publish(run.store, run.run)
        registry.promote(
            run.lineage, run.version_id, expected_baseline=runs[-1].version_id, reason="better"
        )

    return Stage(run, work, run.version_id)


def rollback(path: str) -> Stage:
    """Return a store whose first version is to be rolled back to."""
    runs = line_of_models(path, 3)
    wanted = runs[0].version_id
    return Stage(
        runs[-1], lambda: registry.rollback(runs[-1].lineage, wanted, reason="bad answers"), wanted
    )


def retention(path: str) -> Stage:
    """Return a store with versions that retention can remove."""
    runs = line_of_models(path, 4)
    age(path)
    return Stage(runs[-1], lambda: pruning.prune(runs[-1].store, POLICY), runs[-1].version_id)


def leasing(path: str) -> Stage:
    """Return a store whose lineage is to be claimed and released."""
    [run] = line_of_models(path, 1)
    record = RunRecord.load(run.run.record)

    def work() -> None:
        until = datetime.now(UTC) + timedelta(hours=1)
        lease.acquire(run.lineage, record, expires=until, poll_seconds=1, has_ended=lambda _: False)
        lease.extend(run.lineage, record.run_key, until + timedelta(hours=1))
        lease.release(run.lineage, record.run_key)

    return Stage(run, work)


STAGES = (promotion, rollback, retention, leasing)


def problems(run: FinishedRun) -> list[str]:
    """Return the problems of a lineage: of its records, or of the version in use."""
    try:
        found = list(check(run.lineage).problems)
        pointer = ProductionPointer.load_or_none(run.lineage.production)
        if pointer is not None:
            registry.verify(run.lineage, pointer.version_id)
    except (registry.RegistryError, FormatError, OSError) as error:
        return [f"{type(error).__name__}: {error}"]
    return found


def after(stage: Stage) -> list[str]:
    """Return the problems after an accident, and after the work was repeated."""
    found = problems(stage.run)
    if in_child(stage.work):
        found.append("doing it again fails")
    found += problems(stage.run)
    pointer = ProductionPointer.load_or_none(stage.run.lineage.production)
    if stage.wanted and (pointer is None or pointer.version_id != stage.wanted):
        found.append("the work was done, and its version is not in use")
    return found


def crash_points(folder: Path, times: int) -> Tally:
    """Crash before or after changes of the file system, spread over all changes of all stages."""
    tally, points = Tally(), list[tuple[Callable[[str], Stage], int, bool]]()
    for prepare in STAGES:
        changes = count_changes(prepare(str(folder / f"{prepare.__name__}-count")).work)
        numbers = range(1, changes + 1)
        points += [(prepare, number, late) for number in numbers for late in (False, True)]
    # Each point once if there are fewer than requested.
    times = min(times, len(points))
    for place in range(times):
        path = folder / str(place)
        begin, number, late = points[place * len(points) // times]
        stage = begin(str(path))
        die_at(stage.work, number, after=late)
        tally.add(*after(stage))
        shutil.rmtree(path)
    return tally


def random_kills(folder: Path, times: int) -> Tally:
    """Kill promotions and retention passes at random moments."""
    tally, chance = Tally(), random.Random(1)  # noqa: S311 - drawn by seed
    for number in range(times):
        prepare, seconds = ((promotion, 0.1), (retention, 0.4))[number % 2]
        path = folder / str(number)
        stage = prepare(str(path))
        kill_at_random(stage.work, seconds, chance)
        tally.add(*after(stage))
        shutil.rmtree(path)
    return tally


def several_at_once(folder: Path, times: int) -> Tally:
    """Promote two children of one model concurrently: one wins, the other gets an error."""
    tally = Tally()
    for number in range(times):
        path = str(folder / str(number))
        runs = line_of_models(path, 2)
        parent = runs[-1].version_id
        rivals = [finished(path, name, parent) for name in ("a", "b")]
        for run in rivals:
            registry.publish(run.store, run.run)

        def promotes(run: FinishedRun, baseline: str = parent) -> Callable[[], object]:
            return lambda: registry.promote(
                run.lineage, run.version_id, expected_baseline=baseline, reason="better"
            )

        codes = at_once([promotes(run) for run in rivals])
        found = problems(rivals[0])
        if codes.count(0) != 1:
            found.append(f"{codes.count(0)} of two rivals were promoted")
        tally.add(*found)
        shutil.rmtree(path)
    return tally


def changes_at_once(folder: Path, times: int) -> Tally:
    """Change the model in use, or prune old ones, from two processes concurrently.

    Each may fail because the other was first; a change that reports success must have happened.
    """
    tally = Tally()
    for number in range(times):
        path = str(folder / str(number))
        runs = line_of_models(path, 4)
        lineage, parent = runs[-1].lineage, runs[-1].version_id
        rival = finished(path, "rival", parent)
        registry.publish(rival.store, rival.run)
        age(path)
        back = [partial(registry.rollback, lineage, one.version_id, reason="x") for one in runs[:2]]
        promotes = partial(
            registry.promote, lineage, rival.version_id, expected_baseline=parent, reason="better"
        )
        prunes = partial(pruning.prune, rival.store, POLICY)
        pairs = ((back[0], back[1]), (promotes, back[0]), (prunes, back[0]), (prunes, prunes))
        kind = _KINDS[number % len(_KINDS)]
        before = ProductionPointer.load(lineage.production).sequence
        codes = at_once([*pairs[kind]])
        found = problems(rival)
        done = sum(
            not code for work, code in zip(pairs[kind], codes, strict=True) if work is not prunes
        )
        changed = ProductionPointer.load(lineage.production).sequence - before
        if changed != done:
            found.append(f"{done} changes are done, {changed} are there")
        if prunes in pairs[kind] and codes[0]:
            found.append("a pass of retention fails")
        tally.add(*found, lost=bool(found))
        shutil.rmtree(path)
    return tally


# Two rollbacks, a promotion and a rollback, retention and a rollback, two retention passes.
_KINDS = (*((0, 1, 2, 2) * 6), 2, 2, 2, 3, 3)


def looking(
    read: Callable[..., Any], looked: threading.Event, moved: threading.Event
) -> Callable[..., Any]:
    """Return a wrapped read of retention that waits once it has read what protects a version."""

    def reads(*arguments: Any) -> Any:
        found = read(*arguments)
        # No rollback in progress protects nothing: then the pointer is read.
        if found is not False and not looked.is_set():
            looked.set()
            moved.wait(20)
        return found

    return reads


def retention_and_rollback(folder: Path, times: int) -> Tally:
    """Let retention read the pointer between a rollback's verification and its pointer change."""
    tally = Tally()
    for number in range(times):
        path = str(folder / str(number))
        runs = line_of_models(path, 4)
        age(path)
        lineage, target = runs[-1].lineage, runs[0].version_id
        verified, looked, moved = threading.Event(), threading.Event(), threading.Event()
        verify = production.verify

        def verifies(
            *arguments: Any, call: Any = verify, done: Any = verified, go: Any = looked
        ) -> Any:
            model = call(*arguments)
            done.set()
            go.wait(20)
            return model

        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(production, "verify", verifies))
            for name in ("_is_rolled_back_to", "_in_use"):
                reads = looking(getattr(sweep, name), looked, moved)
                stack.enter_context(mock.patch.object(sweep, name, reads))
            pool = stack.enter_context(ThreadPoolExecutor())
            rolled = pool.submit(registry.rollback, lineage, target, reason="bad answers")
            rolled.add_done_callback(lambda _, done=moved: done.set())  # type: ignore[misc]
            verified.wait(20)
            pruning.prune(runs[-1].store, POLICY)
        found = problems(runs[-1])
        tally.add(*found, lost=bool(found))
        shutil.rmtree(path)
    return tally


def changed_digits(folder: Path, times: int) -> Tally:
    """Change one digit of a deciding record, so that it is still valid."""
    tally = Tally()
    path = str(folder / "store")
    _write_others_that_decide(line_of_models(path, 2)[-1])
    classes = [kind for kind in vars(formats).values() if isinstance(kind, type)]
    kinds = {c.kind: c for c in classes if issubclass(c, StoredFile) and c.has_checksum}
    records = [*_records(path, kinds)]
    for missing in sorted({*kinds.values()} - {kind for _, kind in records}, key=lambda k: k.kind):
        tally.add(f"no {missing.kind} was tried")
    for uri, kind in records:
        data = uris.read(uri)
        places = [place for place, sign in enumerate(data) if chr(sign).isdigit()]
        for place in places[:: max(1, len(places) // times)]:
            digit = b"%d" % ((data[place] - ord("0") + 1) % 10)
            try:
                kind.parse(data[:place] + digit + data[place + 1 :], uri)
            except FormatError:
                tally.add()
            else:
                tally.add(f"{uri.removeprefix(path)}: digit {place} is not noticed")
    return tally


def _write_others_that_decide(run: FinishedRun) -> None:
    """Write deciding records that a promotion does not create, next to those of a run."""
    hold(run.lineage, run.key)
    RunApproval(
        candidate_sha256="2" * 64,
        baseline=run.version_id,
        answer=Answer.APPROVED,
        asked=NOW,
        deadline=NOW + timedelta(hours=72),
        answered=NOW,
    ).write(run.run.approval)
    put_child(run, FinetuningRun(run.store, "labels").key)


def _records(store: str, kinds: dict[str, type[StoredFile]]) -> Iterator[tuple[str, Any]]:
    for uri in uris.list_files(store):
        if uri.endswith(".json"):
            head = uris.read(uri).partition(b'"format": "')[2].partition(b'"')[0].decode()
            if head in kinds:
                yield uri, kinds[head]


def bytes_before_commits() -> AbstractContextManager[Any]:
    """Let retention remove an item's bytes before its commit."""

    def remove(self: sweep.Sweep, item: Item) -> None:
        self._delete(item.files)
        self._delete(item.commits)

    return mock.patch.object(sweep.Sweep, "_remove", remove)


def without_preconditions() -> AbstractContextManager[Any]:
    """Let a compare-and-set write regardless of the current version."""

    def replace(self: local.LocalBackend, uri: str, data: bytes, version: str | None) -> str:
        # Long enough for another process to read the same version.
        time.sleep(0.05)
        self.write(uri, data)
        return local._version(data)

    return mock.patch.object(local.LocalBackend, "replace", replace)


ROWS = (
    Row("crash point before or after each change", crash_points, 304, bytes_before_commits, 120),
    Row("kill -9 at random", random_kills, 140, bytes_before_commits, 40),
    Row("two promotions at once", several_at_once, 60, without_preconditions, 20),
    Row("two other changes at once", changes_at_once, 290, without_preconditions, 20),
    Row(
        "retention between a rollback's two steps",
        retention_and_rollback,
        5,
        lambda: mock.patch.object(sweep, "_is_rolled_back_to", return_value=False),
    ),
    Row(
        "one changed digit in a record that decides",
        changed_digits,
        40,
        lambda: mock.patch.object(base, "require_unchanged"),
        5,
    ),
)
