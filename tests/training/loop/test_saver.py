"""Saving in a thread: what goes on meanwhile, and how it ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pipeline_store import uris
from pipeline_store.formats import Holder
from pipeline_store.layout import RunLayout
from tests.training.checkpoint_folder import open_store, state, writer
from tests.training.jobs import committed_steps
from trained_models.errors import LostHolderError
from training.loop.saver import Saver


@pytest.fixture
def run(tmp_path: Path) -> RunLayout:
    return RunLayout(str(tmp_path / "run"))


class SlowStore:
    """The store's uploads, held up until they are let through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.let_through = threading.Event(), threading.Event()
        upload = uris.upload

        def held_up(path: str, uri: str) -> None:
            self.begun.set()
            assert self.let_through.wait(60)
            upload(path, uri)

        monkeypatch.setattr(uris, "upload", held_up)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowStore]:
    store = SlowStore(monkeypatch)
    yield store
    store.let_through.set()


def test_training_goes_on_while_a_checkpoint_is_uploaded(run: RunLayout, slow: SlowStore) -> None:
    with Saver(open_store(run)) as saver:
        saver.save(writer(b"as it was at step 4"), state(4))
        assert slow.begun.wait(60)
        assert saver.collect(wait=False) is None
        assert committed_steps(run) == []
        slow.let_through.set()
        commit = saver.collect(wait=True)
    assert commit is not None
    assert commit.is_ours
    assert committed_steps(run) == [4]
    (file,) = commit.manifest.files
    assert Path(run.training.root, file.path).read_bytes() == b"as it was at step 4"


def test_each_checkpoint_is_collected_once(run: RunLayout) -> None:
    with Saver(open_store(run)) as saver:
        assert saver.collect(wait=True) is None
        saver.save(writer(), state(4))
        commit = saver.collect(wait=True)
        assert commit is not None
        assert commit.manifest.step == 4
        assert saver.collect(wait=True) is None


def test_files_of_this_machine_are_gone_when_it_is_committed(run: RunLayout) -> None:
    folders = []

    def write(folder: Path) -> list[Path]:
        folders.append(folder)
        return writer()(folder)

    with Saver(open_store(run)) as saver:
        saver.save(write, state(4))
        saver.collect(wait=True)
    assert not folders[0].exists()


def test_what_fails_in_the_thread_fails_where_it_is_collected(
    run: RunLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: str, uri: str) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(uris, "upload", fail)
    with Saver(open_store(run)) as saver:
        saver.save(writer(), state(4))
        with pytest.raises(OSError, match="disk full"):
            saver.collect(wait=True)
    assert committed_steps(run) == []


def test_leaving_waits_for_the_checkpoint_under_way(run: RunLayout, slow: SlowStore) -> None:
    def leave() -> None:
        with suppress(RuntimeError), Saver(open_store(run)) as saver:
            saver.save(writer(), state(4))
            raise RuntimeError("the training failed meanwhile")

    thread = threading.Thread(target=leave)
    thread.start()
    assert slow.begun.wait(60)
    assert thread.is_alive()
    slow.let_through.set()
    thread.join(60)
    assert committed_steps(run) == [4]


def test_leaving_says_what_was_not_saved(
    run: RunLayout, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    holder_uri, token = run.holder, "first"
    holder = Holder(sequence=1, generation=1, attempt=1, token="second")  # noqa: S106
    holder.write(holder_uri)
    monkeypatch.setenv("REPRETRAIN_HOLDER_URI", holder_uri)
    monkeypatch.setenv("REPRETRAIN_TOKEN", token)
    with caplog.at_level(logging.WARNING), Saver(open_store(run)) as saver:
        saver.save(writer(), state(4))
    assert "Checkpoint 4 was not saved" in caplog.text
    assert "not this process" in caplog.text
    with Saver(open_store(run)) as saver:
        saver.save(writer(), state(8))
        with pytest.raises(LostHolderError):
            saver.collect(wait=True)
    assert committed_steps(run) == []
