"""Runs many schedules, several at a time, each in its own process; can be resumed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.commands import import_path, run_module
from pipeline_config import load_preset, with_overrides
from pipeline_store import uris
from pipeline_store.formats import TrainingResult
from pipeline_store.layout import StoreLayout
from tpu_emulator import processes
from verification.chaos.code_tree import copy_tree
from verification.chaos.real import PARTITION, SETTINGS
from verification.chaos.schedule import draw
from verification.chaos.world import FAST
from verification.checks import write_corpus

FAKE_SECONDS = 480.0
REAL_SECONDS = 1800.0
"""Timeouts after which a schedule counts as hung."""

REAL_AT_ONCE = 2
"""Maximum number of concurrent real trainings: each keeps a core busy, and starving ones prove
nothing."""

SUMS = (
    "leaks",
    "lost_beyond_interval",
    "unclear_failures",
    "unexpected_failures",
    "wrong_weights",
    "attempts",
    "resumptions",
    "steps_lost",
)


@dataclass(frozen=True)
class Item:
    """One schedule of a campaign."""

    seed: int
    real: bool

    @property
    def name(self) -> str:
        """Return the name of the schedule's folder."""
        return f"{'real' if self.real else 'fake'}-{self.seed:03d}"


@dataclass
class Campaign:
    """Schedules and the folder that records which are done.

    :param parallel: number of concurrent schedules.
    :param worker: module that runs one schedule, with the arguments of the default one.
    """

    folder: Path
    parallel: int
    worker: str = "verification.chaos.worker"

    def run(self, items: Iterable[Item]) -> list[dict[str, Any]]:
        """Run the schedules that are not done yet and return all reports, in order."""
        items = list(items)
        self.folder.mkdir(parents=True, exist_ok=True)
        if any(item.real for item in items):
            prepare(self._prepared)
        waiting = [item for item in items if self._report(item) is None]
        running: dict[Item, tuple[subprocess.Popen[bytes], float]] = {}
        try:
            while waiting or running:
                while len(running) < self.parallel and (item := next_item(waiting, running)):
                    waiting.remove(item)
                    running[item] = self._start(item), time.monotonic()
                for item, (process, began) in list(running.items()):
                    limit = REAL_SECONDS if item.real else FAKE_SECONDS
                    is_hanging = time.monotonic() - began > limit
                    if not (is_hanging or _has_ended(process)):
                        continue
                    self._end(item, process, is_hanging=is_hanging)
                    del running[item]
                time.sleep(0.2)
        finally:
            for item, (process, _) in running.items():
                _kill(self._folder(item), process)
        return [self._report(item) or {} for item in items]

    def code(self, *, real: bool) -> Path:
        """Return the folder of the code that schedules run, with the real or the fake trainer."""
        name = "code-real" if real else "code-fake"
        return copy_tree(self.folder / name, real=real)

    @property
    def _prepared(self) -> Path:
        return self.folder / "prepared"

    def _folder(self, item: Item) -> Path:
        return self.folder / item.name

    def _report(self, item: Item) -> dict[str, Any] | None:
        path = self._folder(item) / "report.json"
        if not path.exists():
            return None
        report: dict[str, Any] = json.loads(path.read_text())
        return report

    def _start(self, item: Item) -> subprocess.Popen[bytes]:
        folder = self._folder(item)
        arguments = ["--seed", str(item.seed)]
        if item.real:
            arguments += ["--prepared", str(self._prepared)]
        return self._start_worker(folder, arguments, real=item.real)

    def run_one_more(self, folder: Path, arguments: Sequence[str]) -> None:
        """Run the worker once, in an empty folder, with arguments outside any schedule."""
        process = self._start_worker(folder, arguments, real=False)
        try:
            process.wait(FAKE_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            _kill(folder, process)

    def _start_worker(
        self, folder: Path, arguments: Sequence[str], *, real: bool
    ) -> subprocess.Popen[bytes]:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        code = self.code(real=real)
        command = [sys.executable, "-m", self.worker, "--folder", str(folder), *arguments]
        with (folder / "worker.log").open("wb") as log:
            return subprocess.Popen(
                command,
                cwd=code,
                env=os.environ | {"PYTHONPATH": import_path(code)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _end(self, item: Item, process: subprocess.Popen[bytes], *, is_hanging: bool) -> None:
        folder = self._folder(item)
        _kill(folder, process)
        report = self._report(item)
        if report is None:
            why = "hangs" if is_hanging else f"ended with exit code {process.returncode}"
            report = {
                "seed": item.seed,
                "real": item.real,
                "state": "broken",
                "problems": [f"the schedule {why}; see {folder / 'worker.log'}"],
                "caused": [str(fault) for fault in draw(item.seed, real=item.real).faults],
            }
            (folder / "report.json").write_text(json.dumps(report, indent=2))
        print(line(item, report), flush=True)
        if not report["problems"]:
            _keep_only_report(folder)


def _kill(folder: Path, process: subprocess.Popen[bytes]) -> None:
    """Kill all processes that may be left of a schedule."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    state = str(folder / "tpu-emulator")
    processes.kill(lambda: [p for found in processes.find(state, {}).values() for p in found])


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether a process has ended; it stays a zombie, so its group id is not reused."""
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, process.pid, flags) is not None


def next_item(waiting: Iterable[Item], running: Iterable[Item]) -> Item | None:
    """Return the schedule to start next, if one may start now."""
    real = sum(1 for item in running if item.real)
    return next((item for item in waiting if not item.real or real < REAL_AT_ONCE), None)


def _keep_only_report(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name == "report.json":
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def line(item: Item, report: dict[str, Any]) -> str:
    """Return one line about a schedule."""
    parts = [
        item.name,
        "PROBLEM" if report["problems"] else "ok",
        report["state"],
        f"{report.get('seconds', 0.0):.0f} s",
        f"{len(report.get('caused', []))} faults",
        f"{report.get('attempts', 0)} TPUs",
        f"{report.get('resumptions', 0)} resumptions, {report.get('steps_lost', 0)} steps lost",
    ]
    return "  ".join([*parts, *report["problems"]])


def summary(reports: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the totals of a campaign."""
    reports = list(reports)
    fake = [report for report in reports if not report["real"]]
    real = [report for report in reports if report["real"]]
    return {
        "schedules": len(fake),
        "real": len(real),
        **{name: sum(report.get(name, 0) for report in reports) for name in SUMS},
        "succeeded": sum(1 for report in reports if report["state"] == "success"),
        "clear_failures": sum(
            1 for report in reports if report["state"] == "failed" and not report["problems"]
        ),
        "broken": sum(1 for report in reports if report["state"] == "broken"),
        "faults": sum(len(report.get("caused", [])) for report in reports),
        "failing_seeds": [
            f"{'real-' if report['real'] else ''}{report['seed']}"
            for report in reports
            if report["problems"]
        ],
    }


def prepare(folder: Path) -> Path:
    """Make records of this repository's documentation and train once, undisturbed.

    :returns: the folder; an existing one is reused.
    :raises subprocess.CalledProcessError: a step failed.
    """
    if (folder / "prepared.json").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    store = StoreLayout(str(folder / "store"))
    write_corpus(Path(store.root) / "corpus" / PARTITION)
    run = store.run("0" * 12)
    config = with_overrides(load_preset("smoke"), FAST | SETTINGS)
    uris.write(run.config, config.to_bytes())
    common = ["--config", run.config, "--store", store.root, "--partition", PARTITION]
    run_module("beam_jobs.train_vocabulary", *common)
    manifest = json.loads(run_module("beam_jobs.prepare_corpus", *common))["manifest"]
    arguments = ["--run", run.root, "--store", store.root, "--manifest", manifest]
    run_module("training.train", *arguments)
    prepared = {
        "store": store.root,
        "manifest": manifest,
        "weights_sha256": TrainingResult.load(run.training.result).weights_sha256,
    }
    (folder / "prepared.json").write_text(json.dumps(prepared))
    return folder
