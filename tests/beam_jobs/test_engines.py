"""Which engine runs the job, how work is shared out, and that nothing outlives a stopped run."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions
from hypothesis import given
from hypothesis import strategies as st

from beam_jobs.job import progress
from beam_jobs.job.engines import (
    Engine,
    _worker_command,
    is_local,
    local_engine,
    processes_for,
    spread,
)
from beam_jobs.job.progress import Pass, ProgressLines, ProgressMeter, announce_plan
from beam_jobs.job.run_folder import run_folder
from corpus.errors import BadDataError, UserError, failure_of, raise_failures
from pipeline_store import request_paths
from pipeline_store.formats import FormatError
from pipeline_store.request_paths import RequestRoots
from tests.beam_jobs.workspace import PARTITION, Workspace, as_text, documents

REPOSITORY = Path(__file__).parents[2]
MEGABYTE = 1_000_000


def test_workers_are_held_to_what_the_request_may_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In the place of Python: says by which roots it would work.
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nenv\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    roots = RequestRoots.of("/store", ["corpus"])
    with request_paths.limited_to(roots):
        said = subprocess.run(
            ["sh", "-c", _worker_command(tmp_path)], capture_output=True, text=True, check=True
        ).stdout
    [(name, value)] = request_paths.variables(roots).items()
    assert f"{name}={value}" in said.splitlines()


@given(st.lists(st.integers(0, 1000), max_size=30), st.integers(1, 5))
def test_work_is_shared_out_evenly(sizes: list[int], slots: int) -> None:
    shared = list(spread(range(len(sizes)), sizes, slots))
    assert sorted(item for _, item in shared) == list(range(len(sizes)))
    assert [sizes[item] for _, item in shared] == sorted(sizes, reverse=True)
    loads = [0] * slots
    for slot, item in shared:
        loads[slot] += sizes[item]
    # No more than a fair share and the item that was added last.
    assert max(loads) <= sum(sizes) / slots + max(sizes, default=0)
    # An engine gives its first worker the first key, and so on.
    firsts = list(dict.fromkeys(slot for slot, _ in shared))
    assert firsts == list(range(min(slots, len(sizes))))


@pytest.mark.parametrize(
    ("sizes", "max_num_workers", "expected"),
    [
        ([], 2, 1),
        ([500], 2, 1),
        ([MEGABYTE] * 16, 2, 1),
        ([8 * MEGABYTE] * 16, 2, 2),
        ([8 * MEGABYTE] * 16, 1, 1),
        ([8 * MEGABYTE] * 16, 12, 12),
        ([50 * MEGABYTE] * 3, 12, 3),
        # One file is nearly all there is, so the others would wait for it.
        ([500 * MEGABYTE, MEGABYTE, MEGABYTE], 2, 1),
    ],
)
def test_worker_processes_are_started_where_they_pay(
    sizes: list[int], max_num_workers: int, expected: int
) -> None:
    uris = [f"{number}.txt" for number in range(len(sizes))]
    assert processes_for(uris, sizes, max_num_workers) == expected


def test_compressed_files_are_more_work_than_their_size() -> None:
    sizes = [2 * MEGABYTE] * 16
    assert processes_for([f"{n}.txt" for n in range(16)], sizes, 2) == 1
    assert processes_for([f"{n}.TXT.gz" for n in range(16)], sizes, 2) == 2


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], True),
        (["--runner=DirectRunner"], True),
        (["--runner=FnApiRunner"], True),
        (["--runner=DataflowRunner"], False),
        (["--runner=PortableRunner"], False),
    ],
)
def test_only_the_pinned_engine_is_local(flags: list[str], expected: bool) -> None:
    assert is_local(PipelineOptions(flags)) is expected


@pytest.mark.parametrize(
    ("flags", "processes", "slots", "description"),
    [
        ([], 1, 1, "in this process"),
        ([], 3, 3, "in 3 worker processes"),
        (
            ["--direct_running_mode=multi_processing", "--direct_num_workers=2"],
            1,
            2,
            "in 2 worker processes",
        ),
        (
            ["--direct_running_mode=multi_threading", "--direct_num_workers=4"],
            2,
            4,
            "in 4 threads",
        ),
    ],
)
def test_local_engine_is_pinned(
    flags: list[str], processes: int, slots: int, description: str, tmp_path: Path
) -> None:
    engine = local_engine(PipelineOptions(flags), tmp_path, processes)
    assert (engine.slots, engine.description) == (slots, description)
    assert engine.options.view_as(StandardOptions).runner == "FnApiRunner"
    assert engine.options.view_as(DirectOptions).direct_num_workers == slots


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        children = psutil.Process(process.pid).children(recursive=True)
        return [child for child in children if "beam_jobs.job.worker_process" in child.cmdline()]
    except psutil.Error:
        return []


def run_folders(folder: Path) -> list[Path]:
    return list(folder.glob("prepare-corpus-*"))


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.thorough)]
)
def test_no_worker_process_outlives_the_job(
    number: signal.Signals, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = documents(60)
    workspace.put("a.txt", as_text(texts))
    workspace.prepare()
    for name in ("b.txt", "c.txt"):
        # More than can be read between seeing that a worker has begun and the signal.
        workspace.put(name, as_text(texts) * 150)
    config = tmp_path / "config.json"
    config.write_bytes(workspace.config.to_bytes())
    command = [sys.executable, "-m", "beam_jobs.prepare_corpus", f"--config={config}"]
    command += [f"--store={workspace.store.root}", f"--partition={PARTITION}"]
    command += ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    process = subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env=os.environ | {"TMPDIR": str(scratch)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    # Both: one can have begun before the other is to be seen.
    eventually(lambda: len(workers_of(process)) == 2)
    eventually(lambda: bool(list(scratch.glob("prepare-corpus-*/progress/signing-*"))))
    workers = workers_of(process)
    assert len(workers) == 2
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == (143 if number == signal.SIGTERM else -signal.SIGKILL)
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert alive == []
    if number == signal.SIGTERM:
        assert "stopped by SIGTERM; what is done is kept" in errors
        assert run_folders(scratch) == []
        return
    # A killed process removes nothing; the next run does.
    assert len(run_folders(scratch)) == 1
    for name in ("b.txt", "c.txt"):
        (workspace.corpus / name).unlink()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    workspace.prepare()
    assert run_folders(scratch) == []


def test_folders_of_runs_that_go_on_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / "prepare-corpus-left"
    left.mkdir()
    (left / "records").write_bytes(b"half")
    others = tmp_path / "somebody-elses"
    others.mkdir()
    with run_folder() as first:
        assert not left.exists()
        with run_folder() as second:
            assert first.exists()
            assert second.exists()
            assert first != second
        assert not second.exists()
        assert first.exists()
    assert list(tmp_path.iterdir()) == [others]


class Submitted:
    """Stands for a job of a service, as there is none here to cancel."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def cancel(self) -> None:
        self._file.write_text("cancelled")

    def wait_until_finish(self) -> str:
        time.sleep(60)
        return "DONE"


class Pipeline:
    """Stands for a pipeline that takes its time to be submitted."""

    def __init__(self, file: Path, seconds: float) -> None:
        self._file = file
        self._seconds = seconds

    def run(self) -> Submitted:
        print("submitting", flush=True)
        end = time.monotonic() + self._seconds
        while time.monotonic() < end:
            time.sleep(0.01)
        return Submitted(self._file)


@pytest.mark.parametrize("seconds", [0.0, 1.5], ids=["running", "being submitted"])
def test_a_job_elsewhere_is_cancelled_on_sigterm(seconds: float, tmp_path: Path) -> None:
    program = f"""
        from pathlib import Path
        from apache_beam.options.pipeline_options import PipelineOptions
        from beam_jobs.job.engines import Engine
        from beam_jobs.job.running import when_stopped
        from tests.beam_jobs.test_engines import Pipeline

        engine = Engine(PipelineOptions([]))
        with when_stopped(engine.cancel):
            engine.run(
                Pipeline(Path({str(tmp_path / "seen")!r}), {seconds}),
                lambda result: print("submitted", flush=True),
            )
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    awaited = "submitting" if seconds else "submitted"
    for line in process.stdout:
        if line.strip() == awaited:
            break
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143, errors
    assert (tmp_path / "seen").read_text() == "cancelled"


def test_a_pipeline_that_fails_is_an_error() -> None:
    class Failed(Pipeline):
        def run(self) -> Submitted:
            class Result(Submitted):
                def wait_until_finish(self) -> str:
                    return "FAILED"

            return Result(self._file)

    with pytest.raises(RuntimeError, match="ended as FAILED"):
        Engine(PipelineOptions([])).run(Failed(Path(), 0))


def test_failures_of_workers_reach_the_launcher() -> None:
    raise_failures([])
    bad, wrong = failure_of(BadDataError("bad data")), failure_of(FormatError("wrong format"))
    with pytest.raises(UserError, match=r"^wrong format$"):
        raise_failures([wrong])
    with pytest.raises(BadDataError, match=r"^bad data \(2 more failures\)$"):
        raise_failures([wrong, bad, wrong])


def test_progress_of_all_processes_is_added_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "beam_jobs")
    lines = ProgressLines(tmp_path, shards=3, size=3 * MEGABYTE)
    with lines.running():
        for number in range(2):
            meter = ProgressMeter(str(tmp_path), Pass.SIGN)
            meter.update("a", documents=1, bytes=5)
            meter.finish("a", bytes=MEGABYTE)
            meter.update("b", documents=20, bytes=MEGABYTE // 2)
            if number:
                meter.finish("b", documents=30, bytes=MEGABYTE)
            meter.flush()
        announce_plan(str(tmp_path), shards=2, size=2 * MEGABYTE, reused=1)
        meter = ProgressMeter(str(tmp_path), Pass.CONVERT)
        meter.finish("a", documents=7, bytes=MEGABYTE, tokens=1234)
        meter.flush()
    messages = [record.message for record in caplog.records]
    assert messages == [
        "signing: 3 of 3 shards, 52 documents, 3.5 of 3.0 MB",
        "2 shards to convert, 2.0 MB; 1 are done already",
        "converting: 1 of 2 shards, 7 documents, 1.0 of 2.0 MB, 1,234 tokens",
    ]


def test_a_pass_is_as_old_as_its_first_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LOOKS", 0.01)
    monkeypatch.setattr(progress, "_SECONDS_FOR_A_RATE", 0.3)
    caplog.set_level(logging.INFO, "beam_jobs")
    announce_plan(str(tmp_path), shards=2, size=2 * MEGABYTE, reused=0)
    with ProgressLines(tmp_path, shards=2, size=2 * MEGABYTE).running():
        meter = ProgressMeter(str(tmp_path), Pass.CONVERT)
        eventually(lambda: "converting: 0 of 2 shards" in caplog.text)
        time.sleep(0.5)
        meter.finish("a", documents=7, bytes=MEGABYTE, tokens=1234)
        meter.flush()
    last = caplog.records[-1].message
    assert re.search(r"1,234 tokens, [\d,]+ tokens/s, \d+:\d\d left$", last), last


def test_progress_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    meter = ProgressMeter(str(folder), Pass.CONVERT)
    meter.finish("a", documents=7)
    shutil.rmtree(folder)
    meter.finish("b", documents=7)
    meter.flush()
    announce_plan(str(folder), shards=1, size=1, reused=0)


def test_progress_without_a_folder_is_no_error() -> None:
    meter = ProgressMeter(None, Pass.CONVERT)
    meter.update("a", documents=1)
    meter.finish("a")
    meter.flush()
    announce_plan(None, shards=1, size=1, reused=0)
