"""What the data jobs say and store of files that cannot be used: nothing of what they hold."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from beam_jobs import prepare_corpus, prepare_task, train_vocabulary
from corpus.errors import UnforeseenError
from pipeline_store import uris
from pipeline_store.formats import ExitKind, TaskManifest
from pipeline_store.layout import StoreLayout
from tests import marked_files
from tests.beam_jobs.labelled.tasks import make_bench
from tests.beam_jobs.workspace import PARTITION, Workspace, as_text, documents, make_config
from tests.marked_files import MARK, files_with_the_mark, heard

USER_ERROR, BAD_DATA = ExitKind.USER_ERROR.exit_code, ExitKind.BAD_DATA.exit_code


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    """Return what returns all that was printed and logged, by libraries too."""
    # Beam's own debug log has every element; no command of ours switches that on.
    caplog.set_level(logging.INFO)

    def everything() -> str:
        captured = capfd.readouterr()
        return captured.out + captured.err + caplog.text

    return everything


def command(workspace: Workspace, folder: Path) -> list[str]:
    config = folder / "config.json"
    config.write_bytes(workspace.config.to_bytes())
    return [f"--config={config}", f"--store={workspace.store.root}"]


def test_a_partition(tmp_path: Path, said: Callable[[], str]) -> None:
    store = StoreLayout(str(tmp_path / "store"))
    workspace = Workspace(store, make_config(corpus__max_bad_fraction=1.0))
    for number, (name, content) in enumerate(marked_files.CORPUS.values()):
        workspace.put(f"{number}-{name}", content)
    workspace.put("good.txt", as_text(documents(60)))
    inputs = set(workspace.corpus.iterdir())
    arguments = [*command(workspace, tmp_path), f"--partition={PARTITION}"]
    assert [train_vocabulary.main(arguments), prepare_corpus.main(arguments)] == [0, 0]
    # And where so much of it is too much.
    command(Workspace(store, make_config()), tmp_path)
    assert prepare_corpus.main(arguments) == BAD_DATA
    command(Workspace(store, make_config(model__lineage_id="another")), tmp_path)
    assert train_vocabulary.main(arguments) == BAD_DATA
    assert not heard(said())
    assert files_with_the_mark(tmp_path, inputs) == []


@pytest.mark.parametrize("name", marked_files.VOCABULARIES)
def test_a_vocabulary(tmp_path: Path, said: Callable[[], str], name: str) -> None:
    file, content = marked_files.VOCABULARIES[name]
    kind = "sentencepiece" if file.endswith(".model") else "wordpiece"
    given = tmp_path / "store" / "imports" / file
    config = make_config(vocabulary__uri=f"imports/{file}", vocabulary__kind=kind)
    workspace = Workspace(StoreLayout(str(tmp_path / "store")), config)
    workspace.put("good.txt", as_text(documents(3)))
    uris.write(str(given), content)
    arguments = [*command(workspace, tmp_path), f"--partition={PARTITION}"]
    assert train_vocabulary.main(arguments) == USER_ERROR
    assert not heard(said())
    assert files_with_the_mark(tmp_path, {given}) == []


TASKS = marked_files.TASKS | marked_files.JOB_TASKS


@pytest.mark.parametrize("name", TASKS)
def test_a_labelled_task(tmp_path: Path, said: Callable[[], str], name: str) -> None:
    store = make_bench(tmp_path / "store").store
    folder = Path(store.task("moods").root)
    marked_files.write_all(folder, TASKS[name])
    inputs = set(folder.iterdir())
    arguments = [*command(Workspace(store, make_config()), tmp_path), "--task=moods"]
    # One of them with all that the job stores when it refuses a task.
    how = [] if name == "some of many" else ["--dry-run"]
    assert prepare_task.main([*arguments, *how]) in {USER_ERROR, BAD_DATA}
    assert not heard(said())
    assert files_with_the_mark(tmp_path, inputs) == []


def broken(*_: object, **__: object) -> Iterator[Any]:
    """Break on a file as nobody foresaw: Python's own error quotes what it broke on."""
    yield from {}[MARK]


def breaks(main: Callable[[list[str]], int], arguments: list[str]) -> str:
    """Run a command that breaks; return what Python prints then."""
    with pytest.raises(UnforeseenError) as caught:
        main(arguments)
    return "".join(traceback.format_exception(caught.value))


def test_what_nobody_foresaw_in_a_partition(
    tmp_path: Path, said: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(StoreLayout(str(tmp_path / "store")), make_config())
    workspace.put("good.txt", as_text(documents(60)))
    arguments = [*command(workspace, tmp_path), f"--partition={PARTITION}"]
    assert train_vocabulary.main(arguments) == 0
    monkeypatch.setattr("corpus.text.shard_contents.parse_documents", broken)
    printed = breaks(prepare_corpus.main, arguments)
    command(Workspace(workspace.store, make_config(model__lineage_id="another")), tmp_path)
    for text in (printed, breaks(train_vocabulary.main, arguments)):
        assert "good.txt: reading it ends with KeyError in test_nothing_quoted.py:" in text
        assert not heard(text)
    assert not heard(said())


def test_what_nobody_foresaw_in_a_task(
    tmp_path: Path, said: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_bench(tmp_path / "store").store
    marked_files.write_all(Path(store.task("moods").root), {"task.toml": b"", "train.tsv": b"x"})
    monkeypatch.setattr("corpus.labelled.reading._read", broken)
    arguments = [*command(Workspace(store, make_config()), tmp_path), "--task=moods"]
    printed = breaks(prepare_task.main, arguments)
    assert "train.tsv: reading it ends with KeyError in test_nothing_quoted.py:" in printed
    assert not heard(printed + said())


def test_labels_are_in_the_manifest_and_in_no_message(
    tmp_path: Path, said: Callable[[], str]
) -> None:
    """The line between them: a manifest is what a classifier's labels are read from."""
    store = make_bench(tmp_path / "store").store
    common = [f"some text {number}\tcommon\n" for number in range(300)]
    rare = [f"other text {number}\t{MARK}\n" for number in range(12)]
    uris.write(store.task("moods").description, b"min_examples_per_label = 1\n")
    table = "text\tlabel\n" + "".join(common + rare) + f"\t{MARK}\n"
    uris.write(f"{store.task('moods').root}/train.tsv", table.encode())
    arguments = [*command(Workspace(store, make_config()), tmp_path), "--task=moods"]
    assert prepare_task.main(arguments) == 0
    assert not heard(said())
    [manifest] = Path(store.task("moods").root).rglob("manifest.json")
    found = TaskManifest.load(str(manifest))
    assert found.labels == ["common", MARK]
    assert "labels are unbalanced" in "".join(found.warnings)
    assert not heard("".join(found.warnings))
