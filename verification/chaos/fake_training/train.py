"""Counts steps instead of training; everything else, above all checkpoints, is as in the trainer.

``python -m training.train --run STORE/runs/KEY --trace FILE``
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import PhaseName, Progress, TrainingInputs, TrainingResult
from pipeline_store.layout import RunLayout
from trained_models.checkpoint_store import CheckpointStore
from trained_models.commit import CommitGuard
from trained_models.errors import PreemptedError
from trained_models.state import TrainingState
from training.runtime.job import StopRequest, load_config, on_sigterm, run_job
from training.runtime.phases import begins, looped, phase, saved, saving, write_for_agent

from .chain import FIRST, after

STEP_SECONDS = 0.1
ALIVE_SECONDS = 0.1
"""Interval of heartbeats in the trace."""
STORE_SECONDS = 60.0
"""Time for which the client of a store retries, as that of Google Cloud Storage does."""

_Result = TypeVar("_Result")


def main() -> int:
    """Run the command line and return the process exit code."""
    parser = argparse.ArgumentParser(prog="python -m training.train")
    parser.add_argument("--run", required=True, help="run folder")
    parser.add_argument("--trace", required=True, type=Path, help="file of what was done, by all")
    parser.add_argument("--step-seconds", type=float, default=STEP_SECONDS)
    arguments = parser.parse_args()
    stop, trace = StopRequest(), Trace(arguments.trace)
    threading.Thread(target=trace.live, daemon=True).start()
    with on_sigterm(stop.on_signal):
        return run_job(lambda: _train(RunLayout(arguments.run), trace, stop, arguments))


class Trace:
    """The events of all trainers of a run, one line each; not affected by faults of the store."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, event: str, step: int, **known: float) -> None:
        """Append a line; an append of a few bytes is atomic."""
        token = os.environ.get("REPRETRAIN_TOKEN", "")
        line = {"time": time.time(), "pid": os.getpid(), "token": token} | known
        with self._path.open("a") as file:
            file.write(json.dumps(line | {"event": event, "step": step}) + "\n")

    def live(self) -> None:
        """Write heartbeats forever: a killed process cannot record when it ended."""
        while True:
            self.note("alive", 0)
            time.sleep(ALIVE_SECONDS)


def patiently(call: Callable[[], _Result]) -> _Result:
    """Retry a call for a while when the store fails."""
    end = time.monotonic() + STORE_SECONDS
    while True:
        try:
            return call()
        except FileNotFoundError:
            raise
        except OSError as error:
            if time.monotonic() > end:
                raise
            print(f"{error}; trying again", flush=True)
            time.sleep(0.2)


def _process_began() -> float:
    """Return when this process was created, in epoch seconds."""
    ticks = float(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    began = ticks / os.sysconf("SC_CLK_TCK")
    # Not by the kernel's boot time, which is in whole seconds.
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - began)


def _train(run: RunLayout, trace: Trace, stop: StopRequest, arguments: argparse.Namespace) -> None:
    trace.note("process", 0, time=_process_began())
    config = patiently(lambda: load_config(run.config))
    store = CheckpointStore(
        run.training,
        CommitGuard.from_environment(),
        config,
        inputs=TrainingInputs(settings={}, vocabulary_sha256="", records={}),
        data_sha256="",
    )
    if patiently(lambda: TrainingResult.load_or_none(run.training.result)) is not None:
        trace.note("end", config.training.steps)
        return
    moment = time.time()
    with phase(PhaseName.RESTORE):
        trace.note("restore", 0, time=moment)
        state, weights = patiently(lambda: _resume(run, store))
        trace.note("start", state.step)
    begins(state.step)
    first = state.step
    print(f"starting at step {state.step}", flush=True)
    while state.step < config.training.steps:
        step = state.step + 1
        compiles = state.step == first
        moment, began = time.time(), time.monotonic()
        with phase(PhaseName.FIRST_LOOP if compiles else PhaseName.LOOP):
            trace.note("begin", state.step, time=moment)
            time.sleep(arguments.step_seconds)
            weights = after(weights, step)
            seconds = time.monotonic() - began
            looped(1, seconds, compiled=compiles)
            trace.note("step", step, time=moment + seconds)
        state = TrainingState(step=step, loss=1.0 / step, resumed_from=state.resumed_from)
        if stop.requested or _is_due(config, step):
            state, weights = _save(store, state, weights, trace)
        _report(state, config)
        if stop.requested:
            raise PreemptedError(f"stopped at step {step}, checkpoint saved")
    patiently(lambda: _finish(run, state, weights))
    trace.note("end", state.step)


def _is_due(config: PipelineConfig, step: int) -> bool:
    settings = config.training
    return step % settings.checkpoint_interval == 0 or step == settings.steps


def _resume(run: RunLayout, store: CheckpointStore) -> tuple[TrainingState, bytes]:
    found = store.newest()
    if found is None:
        return TrainingState(), FIRST
    weights = bytes.fromhex(uris.read(uris.join(run.training.root, found.files[0].path)).decode())
    state = TrainingState.of(found)
    return TrainingState(step=state.step, resumed_from=(*state.resumed_from, state.step)), weights


def _save(
    store: CheckpointStore, state: TrainingState, weights: bytes, trace: Trace
) -> tuple[TrainingState, bytes]:
    moment = time.time()
    with phase(PhaseName.SAVE):
        trace.note("save", state.step, time=moment)
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch) / "weights.data"
            file.write_text(weights.hex())
            saving(state.step)
            patiently(lambda: store.commit([file], state))
            saved(state.step)
        trace.note("commit", state.step)
    return state, weights


def _report(state: TrainingState, config: PipelineConfig) -> None:
    progress = Progress(
        step=state.step, train_steps=config.training.steps, loss=round(state.loss, 4)
    )
    write_for_agent("REPRETRAIN_PROGRESS_FILE", progress)


def _finish(run: RunLayout, state: TrainingState, weights: bytes) -> None:
    CommitGuard.from_environment().check()
    TrainingResult(
        train_steps=state.step,
        tokens=0,
        final_loss=state.loss,
        checkpoint=run.training.checkpoint(state.step).removeprefix(f"{run.training.root}/"),
        weights_sha256=weights.hex(),
        seconds=0.0,
        resumed_from=list(state.resumed_from),
    ).create(run.training.result)


if __name__ == "__main__":
    sys.exit(main())
