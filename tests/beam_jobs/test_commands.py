"""The command lines: output, exit codes, and a process that is killed."""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from beam_jobs import prepare_corpus, train_vocabulary
from pipeline_store import local
from pipeline_store.formats import PartitionManifest
from tests.beam_jobs.workspace import PARTITION, Workspace, as_text, documents, make_config

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def arguments(workspace: Workspace, tmp_path: Path) -> list[str]:
    config = tmp_path / "config.json"
    config.write_bytes(workspace.config.to_bytes())
    return [f"--config={config}", f"--store={workspace.store.root}", f"--partition={PARTITION}"]


def last_json(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    return json.loads(lines[0])


def error_line(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()[-1]


def test_commands_print_one_line_of_json(
    workspace: Workspace,
    arguments: list[str],
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    workspace.put("a.txt", as_text(documents(30)))
    logging.getLogger("corpus").setLevel(logging.NOTSET)
    began = time.monotonic()
    assert train_vocabulary.main(arguments) == 0
    # What takes long says so.
    assert "merging pieces of words" in caplog.text
    made = last_json(capsys)
    assert made["created"] is True
    assert made["seconds"] <= round(time.monotonic() - began, 1)
    lineage = workspace.store.lineage(workspace.config.model.lineage_id)
    assert made["vocabulary"] == lineage.vocabulary
    assert made["size"] == len(Path(lineage.vocabulary).read_text().splitlines())
    assert prepare_corpus.main(arguments) == 0
    summary = last_json(capsys)
    manifest = PartitionManifest.load(summary["manifest"])
    assert summary["documents"] == manifest.documents == 30
    assert summary["records"] == {str(split): n for split, n in manifest.records.items()}
    assert summary["tokens"] == {str(split): n for split, n in manifest.tokens.items()}
    assert summary["dropped"] == {}
    assert (summary["shards_processed"], summary["shards_reused"]) == (1, 0)
    assert 0 < summary["row_fill"] <= 1
    assert summary["seconds"] > 0
    assert prepare_corpus.main(arguments) == 0
    assert last_json(capsys)["shards_reused"] == 1


def test_dry_run_lists_shards_and_does_nothing(
    workspace: Workspace, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    workspace.put("a.txt", as_text(documents(30)))
    workspace.prepare()
    new = workspace.put("b.txt", as_text(documents(30, first=50)))
    before = sorted(Path(workspace.store.root).rglob("*"))
    assert prepare_corpus.main([*arguments, "--dry-run"]) == 0
    listed = last_json(capsys)
    assert listed["shards"] == {str(workspace.corpus / "a.txt"): "done", str(new): "to do"}
    assert (listed["shards_to_process"], listed["shards_reused"]) == (1, 1)
    assert listed["bytes_to_process"] == new.stat().st_size
    assert listed["estimated"] is True
    assert sorted(Path(workspace.store.root).rglob("*")) == before


def test_dry_run_knows_the_copies_of_signed_files(
    workspace: Workspace, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    texts = documents(30)
    workspace.put("a.txt", as_text([*texts, texts[0]]))
    workspace.put("b.txt", as_text(texts[:7]))
    workspace.put("twin-of-b.txt", as_text(texts[:7]))
    workspace.prepare()
    assert prepare_corpus.main([*arguments, "--dry-run"]) == 0
    listed = last_json(capsys)
    assert (listed["duplicates"], listed["near_duplicates"]) == (8, 0)
    assert (listed["shards_to_process"], listed["shards_reused"]) == (0, 3)
    assert listed["estimated"] is False
    # The signatures stay, but all shards are to be made anew.
    changed = make_config(masking__random_seed=5)
    Path(arguments[0].removeprefix("--config=")).write_bytes(changed.to_bytes())
    assert prepare_corpus.main([*arguments, "--dry-run"]) == 0
    listed = last_json(capsys)
    assert (listed["shards_to_process"], listed["shards_reused"]) == (2, 0)
    assert listed["duplicates"] == 8


@pytest.mark.parametrize("duplicates", ["keep", "near"])
def test_dry_run_without_signatures_knows_no_copies(
    duplicates: str,
    workspace: Workspace,
    arguments: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    workspace.put("a.txt", as_text(documents(30)))
    workspace.prepare()
    changed = make_config(corpus__duplicates=duplicates)
    Path(arguments[0].removeprefix("--config=")).write_bytes(changed.to_bytes())
    assert prepare_corpus.main([*arguments, "--dry-run"]) == 0
    listed = last_json(capsys)
    assert (listed["duplicates"], listed["near_duplicates"]) == (0, 0)
    # Without copies the shard is the same one; but whether it has similar ones is not known yet.
    assert listed["estimated"] is (duplicates == "near")
    assert listed["shards_to_process"] == (1 if duplicates == "near" else 0)


@pytest.mark.parametrize("command", [prepare_corpus, train_vocabulary])
def test_missing_input_is_a_user_error(
    command: Any,
    workspace: Workspace,
    arguments: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command.main(arguments) == 40
    assert f"no file matches {workspace.corpus}/*" in error_line(capsys)
    assert command.main([*arguments, "--input=elsewhere/*.txt"]) == 40
    assert f"{workspace.store.root}/elsewhere/*.txt" in error_line(capsys)


def test_a_full_disk_is_one_line_with_path_and_remedy(
    workspace: Workspace,
    arguments: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workspace.put("a.txt", as_text(documents(30)))
    assert train_vocabulary.main(arguments) == 0
    capsys.readouterr()

    def full(aside: Path, data: bytes, path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(local, "_fill", full)
    assert prepare_corpus.main(arguments) == 45
    captured = capsys.readouterr()
    line = captured.err.splitlines()[-1]
    assert "no room to write" in line
    assert workspace.store.root in line
    monkeypatch.undo()
    assert prepare_corpus.main(arguments) == 0


def test_missing_vocabulary_is_a_user_error(
    workspace: Workspace, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    workspace.put("a.txt", as_text(documents(5)))
    for extra in ([], ["--dry-run"]):
        assert prepare_corpus.main([*arguments, *extra]) == 40
        assert "train_vocabulary" in error_line(capsys)


@pytest.mark.parametrize("command", [prepare_corpus, train_vocabulary])
def test_binary_input_is_bad_data(
    command: Any,
    workspace: Workspace,
    arguments: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    good = workspace.put("good.txt", as_text(documents(30)))
    workspace.prepare()
    good.unlink()
    if command is train_vocabulary:
        lineage = workspace.store.lineage(workspace.config.model.lineage_id)
        Path(lineage.vocabulary_info).unlink()
    bad = workspace.put("photo.jpg", b"\xff\xd8\xff\xe0" + bytes(range(32)) * 9)
    assert command.main(arguments) == 41
    message = error_line(capsys)
    assert message.startswith(f"{command.__name__.split('.')[1]}: bad_data: ")
    assert str(bad) in message


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("--partition=2026/01", "Partition '2026/01' is not a valid id"),
        ("--partition=", "missing --partition"),
        ("--config=/nowhere/config.json", "/nowhere/config.json does not exist"),
        ("--store=s3://bucket", "scheme 's3'"),
    ],
)
def test_wrong_arguments_are_user_errors(
    arguments: list[str], changed: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare_corpus.main([*arguments, changed]) == 40
    assert expected in error_line(capsys)


def test_wrong_configuration_is_a_user_error(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert prepare_corpus.main(arguments) == 40
    assert "config.json" in error_line(capsys)


def test_beams_options_are_passed_on(
    workspace: Workspace, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    workspace.put("a.txt", as_text(documents(30)))
    workspace.prepare()
    options = ["--direct_running_mode=multi_threading", "--direct_num_workers=2"]
    assert prepare_corpus.main([*arguments, *options, "--runner=DirectRunner"]) == 0
    assert last_json(capsys)["documents"] == 30


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("--dryrun", "unknown options --dryrun"),
        ("--no_such_option=1", "unknown options --no_such_option=1"),
        ("--label=a", "write KEY=VALUE"),
    ],
)
def test_unknown_options_are_user_errors(
    arguments: list[str], option: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare_corpus.main([*arguments, option]) == 40
    assert expected in error_line(capsys)


def run(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", *arguments],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("module", ["beam_jobs.prepare_corpus", "beam_jobs.train_vocabulary"])
def test_modules_explain_themselves(module: str) -> None:
    process = run(module, "--help")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert all(option in output for option in ("--config", "--store", "--partition", "--input"))


def test_killed_run_is_finished_by_the_next(
    workspace: Workspace,
    arguments: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    for number in range(12):
        workspace.put(f"{number:02d}.txt", as_text(documents(60, first=100 * number)))
    assert train_vocabulary.main(arguments) == 0
    shards = Path(workspace.store.root) / "shards"
    process = run("beam_jobs.prepare_corpus", *arguments)
    deadline = time.monotonic() + 120
    while not list(shards.glob("*/shard.json")) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    committed = len(list(shards.glob("*/shard.json")))
    assert committed >= 1

    capsys.readouterr()
    caplog.set_level(logging.INFO, "beam_jobs")
    assert prepare_corpus.main(arguments) == 0
    assert "12 of 12 shards" in caplog.text
    summary = last_json(capsys)
    assert summary["shards_reused"] == committed
    assert summary["shards_processed"] == 12 - committed

    undisturbed = Workspace(type(workspace.store)(str(tmp_path / "other")), workspace.config)
    vocabulary = workspace.store.lineage("default").vocabulary
    undisturbed.config = workspace.config.model_copy(
        update={"vocabulary": workspace.config.vocabulary.model_copy(update={"uri": vocabulary})}
    )
    for path in workspace.corpus.iterdir():
        undisturbed.put(path.name, path.read_bytes())
    expected = undisturbed.prepare().manifest
    found = PartitionManifest.load(summary["manifest"])
    assert found.model_copy(update={"shards": []}) == expected.model_copy(update={"shards": []})
    for mine, theirs in zip(workspace.shards(found), undisturbed.shards(expected), strict=True):
        digests = [[file.data.sha256 for file in shard.files] for shard in (mine, theirs)]
        assert digests[0] == digests[1]
