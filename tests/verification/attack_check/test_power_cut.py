"""A power cut between any two changes leaves nothing that a commit names and that is not there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from unittest import mock

import pytest

from pipeline_store import local, uris
from verification.attack_check.power_cut import Disk
from verification.attack_check.rows import EnoughHarmError, Tally


def work(store: str, source: Path) -> None:
    """Store what a training does: bytes, records, a commit, a pointer; then remove all of it."""
    uris.upload(str(source), f"{store}/runs/x/attempts/1/weights")
    uris.write(f"{store}/runs/x/plan.json", b"the plan")
    with uris.together():
        uris.upload(str(source), f"{store}/runs/x/y/1/weights")
        uris.write(f"{store}/runs/x/y/1/index", b"an index")
        uris.create_if_absent(f"{store}/runs/x/y/2", b"a number")
    names = {
        "attempts/1/weights": "many weights",
        "plan.json": "the plan",
        "y/1/weights": "many weights",
        "y/1/index": "an index",
        "y/2": "a number",
    }
    uris.create_if_absent(f"{store}/runs/x/commit.json", json.dumps(names).encode())
    version = uris.compare_and_set(f"{store}/pointer.json", b'{"run": "x"}', None)
    uris.compare_and_set(f"{store}/pointer.json", b'{"run": null}', version)
    uris.delete(f"{store}/runs/x/commit.json")
    uris.delete(f"{store}/runs/x/attempts/1/weights")


def problems(store: Path) -> Iterator[str]:
    """Yield what is wrong with a store after a power cut."""
    commit, pointer = store / "runs" / "x" / "commit.json", store / "pointer.json"
    empty = [path.name for path in (commit, pointer) if path.exists() and not path.read_bytes()]
    if empty:
        yield f"{empty} are empty"
        return
    if commit.exists():
        for name, content in json.loads(commit.read_bytes()).items():
            path = commit.parent / name
            if not path.exists() or path.read_text() != content:
                yield f"{name} is not what the commit says"
    if pointer.exists() and json.loads(pointer.read_bytes())["run"] and not commit.exists():
        yield "the pointer names what is not there"


def cuts(folder: Path) -> tuple[int, list[str]]:
    """Return how many outcomes were looked at, and what was wrong with them."""
    store, target, source = folder / "store", folder / "cut", folder / "source"
    store.mkdir()
    source.write_text("many weights")
    disk, tried, found = Disk(store), list[int](), list[str]()

    def look() -> None:
        for outcome in disk.cut(target):
            tried.append(1)
            found.extend(problems(outcome))
        shutil.rmtree(target)

    with disk.watched(look):
        work(str(store), source)
    return len(tried), found


def test_no_power_cut_leaves_a_commit_without_its_bytes(tmp_path: Path) -> None:
    tried, found = cuts(tmp_path)
    assert tried > 100
    assert found == []


@pytest.mark.parametrize("left_out", ["bytes", "names"])
def test_without_syncing_it_would(tmp_path: Path, left_out: str) -> None:
    sync = local._sync

    def some(path: Path) -> None:
        if path.is_dir() != (left_out == "names"):
            sync(path)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(local, "_sync", some))
        _, found = cuts(tmp_path)
    assert found


@pytest.mark.parametrize("at_once", [False, True])
def test_a_kill_a_second_try_and_a_power_cut_leave_no_commit_without_its_bytes(
    tmp_path: Path, at_once: bool
) -> None:
    store, target = tmp_path / "store", tmp_path / "cut"
    store.mkdir()
    disk = Disk(store)

    def create() -> None:
        with uris.together() if at_once else nullcontext():
            uris.create_if_absent(f"{store}/part", b"a part")

    with disk.watched(lambda: None):
        killed = mock.patch.object(local, "_sync", side_effect=KeyboardInterrupt)
        with killed, pytest.raises(KeyboardInterrupt):
            create()
        create()
        uris.create_if_absent(f"{store}/commit", b"part")
        outcomes = list(disk.cut(target))
        assert outcomes
        for outcome in outcomes:
            if (outcome / "commit").exists():
                assert (outcome / "part").read_bytes() == b"a part"


def test_whoever_looks_may_end_the_work(tmp_path: Path) -> None:
    store, target = tmp_path / "store", tmp_path / "cut"
    store.mkdir()
    disk, looks = Disk(store), list[int]()

    def look() -> None:
        looks.append(1)
        # What it has written so far stays, as the next look would find it.
        for _ in disk.cut(target):
            raise EnoughHarmError(Tally())

    with pytest.raises(EnoughHarmError), disk.watched(look):
        uris.write(f"{store}/a", b"what is tidied up after an error changes the folder, too")
    assert len(looks) == 1
    assert list(store.iterdir()) == []


def test_what_was_synced_is_kept_and_nothing_else_for_sure(tmp_path: Path) -> None:
    root, target = tmp_path / "disk", tmp_path / "cut"
    (root / "old").mkdir(parents=True)
    (root / "old" / "a").write_text("synced")
    disk = Disk(root)
    with disk.watched(lambda: None):
        (root / "old" / "a").write_text("not synced")
        (root / "b").write_text("never synced")
        lost, names, _ = (
            {str(p.relative_to(outcome)): p.read_text() for p in outcome.rglob("*") if p.is_file()}
            for outcome in disk.cut(target)
        )
    assert lost == {"old/a": "synced"}
    assert names == {"old/a": "synced", "b": ""}
