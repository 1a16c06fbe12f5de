"""What is particular to a store on a file system: leftovers, full disks, no right to write."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline_store import local, uris

Write = Callable[[str, Path], Any]

WRITES: dict[str, Write] = {
    "write": lambda uri, _: uris.write(uri, b"12345"),
    "upload": lambda uri, source: uris.upload(str(source), uri),
    "create": lambda uri, _: uris.create_if_absent(uri, b"12345"),
    "replace": lambda uri, _: uris.compare_and_set(uri, b"12345", None),
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(b"12345")
    return path


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_full_disk_is_told_with_path_need_and_remedy(
    tmp_path: Path, source: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path / "store" / "runs" / "x.json")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(local.UnwritableError, match=r"x\.json") as caught:
        write(uri, source)
    assert caught.value.errno == errno.ENOSPC
    assert "are free on this disk" in str(caught.value)
    assert "python -m model_registry prune --delete" in str(caught.value)
    monkeypatch.undo()
    assert uris.list_leftovers(str(tmp_path)) == []
    assert uris.list_files(str(tmp_path / "store")) == []


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_store_that_cannot_be_written_is_told_with_path_and_remedy(
    tmp_path: Path, source: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "store").mkdir()

    def opened(self: Path, mode: str = "r", *more: Any, **options: Any) -> Any:
        if "w" in mode:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self))
        return open(self, mode, *more, **options)

    monkeypatch.setattr(Path, "open", opened)
    monkeypatch.setattr(local.shutil, "copyfile", lambda _, aside: aside.open("wb"))
    with pytest.raises(local.UnwritableError, match=r"x\.json") as caught:
        write(str(tmp_path / "store" / "x.json"), source)
    assert caught.value.errno == errno.EROFS
    assert "mount the store for writing" in str(caught.value)


def test_what_a_killed_write_left_is_no_object_but_can_be_found_and_removed(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    left = folder / f"{local.ASIDE_MARK}{'0' * 32}"
    left.write_bytes(b"half")
    (folder / f"{local.ASIDE_MARK}mine").write_bytes(b"a person's")
    assert uris.list_files(str(tmp_path)) == []
    [found] = uris.list_leftovers(str(tmp_path))
    assert (found.uri, found.bytes) == (str(left), 4)
    uris.delete(found.uri)
    assert uris.list_leftovers(str(tmp_path)) == []


def test_the_stores_clock_is_that_of_its_files(tmp_path: Path) -> None:
    probe = str(tmp_path / "preflight" / "clock")
    before = uris.now(probe)
    assert before <= uris.now(probe)
    assert uris.list_files(str(tmp_path)) == []


def test_without_a_place_to_write_the_clock_is_this_machines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert uris.now(str(tmp_path / "file" / "clock")).tzinfo is not None
    assert "this machine's is used" in caplog.text
