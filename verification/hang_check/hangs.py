"""The eight hangs: each must be found in time and explained on every host, and the job resume."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from pipeline_alerts.causes import Cause
from pipeline_alerts.findings import Finding
from pipeline_alerts.running import RunningRun
from pipeline_config.rental_schema import HangConfig
from pipeline_store.formats import ExitKind, HangReport, PhaseName, TrainingResult
from verification.hang_check.prepared import SETTINGS, Prepared, config_of
from verification.hang_check.results import Result
from verification.hang_check.trial import Trial

LATE_SECONDS = 30.0
"""Maximum time between its phase's limit and the detection of a hang."""
STEP = 15
"""Earliest step of a hang in the loops: one checkpoint exists by then."""


def _act(point: str, how: str = "hang", *, call: int = 1, start: int = 1) -> dict[str, Any]:
    return {"point": point, "how": how, "call": call, "start": start}


def _wait_until_acted(trial: Trial) -> float:
    return trial.wait_until_acted()


def _stop(host: int) -> Callable[[Trial], float]:
    def inflict(trial: Trial) -> float:
        trial.wait_for_loops(STEP)
        trial.signal(signal.SIGSTOP, host)
        return time.time()

    return inflict


def _kill_then_wait(trial: Trial) -> float:
    trial.wait_for_loops(STEP)
    trial.signal(signal.SIGKILL)
    return trial.wait_until_acted()


@dataclass(frozen=True)
class Injected:
    """An injected hang.

    :ivar inflict: causes it, and returns when it happened, in seconds since the epoch.
    :ivar phases: phases in which it may be found.
    :ivar shown: text that the stacks of each host must contain.
    :ivar intervals_lost: maximum number of checkpoint intervals that are repeated. Training
        continues while a checkpoint is uploaded, up to the next one, which makes it two there.
    """

    name: str
    phases: tuple[PhaseName, ...]
    inflict: Callable[[Trial], float] = _wait_until_acted
    acts: Sequence[dict[str, Any]] = ()
    shown: Sequence[str] = ("in run_job",)
    hosts: int = 1
    evaluates: bool = False
    intervals_lost: int = 1
    settings: dict[str, Any] = field(default_factory=dict)


_LOOPS = (PhaseName.LOOP, PhaseName.SAVE)
HANGS = (
    Injected(
        "trainer-stopped",
        _LOOPS,
        inflict=_stop(0),
        # The only hang with the default limit of an installation.
        settings={"hang.loop_floor_seconds": HangConfig().loop_floor_seconds},
    ),
    Injected(
        "input-blocked",
        (PhaseName.LOOP,),
        acts=[_act("input", call=40)],
        shown=["in _run_loop", "in _hang"],
    ),
    Injected(
        "read-never-returns",
        (PhaseName.DATA,),
        acts=[_act("read", "read-for-ever", call=2)],
        shown=["in _read_for_ever"],
    ),
    Injected("one-of-two-hosts-stopped", (*_LOOPS, PhaseName.MEETING), inflict=_stop(1), hosts=2),
    Injected(
        "gil-held",
        (PhaseName.LOOP,),
        acts=[_act("loop", "hold-the-gil", call=12)],
        shown=["in _hold_the_gil"],
    ),
    Injected(
        "save-hangs",
        (PhaseName.SAVE,),
        acts=[_act("commit", call=2)],
        shown=["in _commit", "in _hang"],
        intervals_lost=2,
    ),
    Injected(
        "evaluation-hangs",
        (PhaseName.EVALUATION,),
        acts=[_act("evaluation")],
        shown=["in evaluate", "in _hang"],
        evaluates=True,
    ),
    Injected(
        "right-after-resume",
        (PhaseName.FIRST_LOOP,),
        inflict=_kill_then_wait,
        acts=[_act("loop", start=2)],
        shown=["in _run_loop", "in _hang"],
    ),
)


def run_hang(hang: Injected, folder: Path, prepared: Prepared, *, slower: float) -> Result:
    """Inject a hang and return the result.

    :raises TrialError: the trial did not get that far.
    """
    config = config_of(times=slower, hosts=hang.hosts, **hang.settings)
    weights = _weights(hang, folder, prepared, slower)
    with Trial(folder, prepared, config, hosts=hang.hosts, acts=hang.acts) as trial:
        output = trial.run.evaluation(None)
        if hang.evaluates:
            trial.begin("training.evaluate", prepared.evaluate(output))
        else:
            trial.train()
        happened = hang.inflict(trial)
        status = trial.end()
        hangs = trial.hangs()
        said = list(RunningRun.read(trial.run, trial.run_record).findings(timedelta(days=9)))
        problems = [] if hangs else ["it was not found"]
        if status.exit_kind is not ExitKind.OK:
            problems.append(f"the job ended as {status.exit_kind}: {status.message}")
        elif hang.evaluates:
            if prepared.scores(output) != prepared.scores():
                problems.append("the scores are not those of an undisturbed evaluation")
        else:
            result = TrainingResult.load(trial.run.training.result)
            problems += _training_problems(hang, result, weights, hangs)
        if len(hangs) > 1:
            problems.append(f"it was found {len(hangs)} times")
    numbers = {}
    if hangs:
        found = next((one for one in hangs[0] if one.limit_seconds is not None), hangs[0][0])
        late = found.found.timestamp() - happened - (found.limit_seconds or 0.0)
        numbers = {
            "phase": str(found.phase.name),
            "limit_seconds": found.limit_seconds,
            "seconds_after_limit": round(late, 1),
            "top": found.top,
        }
        problems += _report_problems(hang, hangs[0], late)
        problems += _alert_problems(said, found)
    return Result("hang", hang.name, not problems, problems, numbers)


def _weights(hang: Injected, folder: Path, prepared: Prepared, slower: float) -> str:
    """Return the weights of an undisturbed training on as many hosts, which is done once."""
    if hang.hosts == 1:
        return prepared.weights_sha256
    kept = prepared.folder / f"weights-of-{hang.hosts}-hosts"
    if not kept.exists():
        config = config_of(times=100 * slower, hosts=hang.hosts)
        with Trial(folder, prepared, config, hosts=hang.hosts) as trial:
            trial.train()
            trial.end()
            kept.write_text(TrainingResult.load(trial.run.training.result).weights_sha256)
    return kept.read_text()


def _training_problems(
    hang: Injected, result: TrainingResult, weights: str, hangs: Sequence[Sequence[HangReport]]
) -> Iterator[str]:
    if result.weights_sha256 != weights:
        yield "the weights are not those of an undisturbed training"
    steps = [one.step for one in hangs[0] if one.step is not None] if hangs else []
    resumed = result.resumed_from[-1] if result.resumed_from else 0
    lost, interval = max(steps, default=0) - resumed, SETTINGS["training.checkpoint_interval"]
    if lost > hang.intervals_lost * interval:
        yield f"{lost} steps were lost; checkpoints are {interval} apart"


def _report_problems(hang: Injected, reports: Sequence[HangReport], late: float) -> Iterator[str]:
    if late > LATE_SECONDS:
        yield f"it was found {late:.0f} s after its limit; {LATE_SECONDS:.0f} s are allowed"
    if (phase := reports[0].phase.name) not in hang.phases:
        yield f"it was found in phase {phase}, not in one of {', '.join(hang.phases)}"
    if (workers := [one.worker for one in reports]) != list(range(hang.hosts)):
        yield f"there are stacks of the workers {workers} of {hang.hosts}"
    for report in reports:
        missing = [text for text in hang.shown if text not in report.stacks]
        if missing:
            yield f"the stacks of worker {report.worker} do not show {missing}"


def _alert_problems(said: Sequence[Finding], found: HangReport) -> Iterator[str]:
    told = [one for one in said if one.cause is Cause.JOB_HUNG]
    step = "no step" if found.step is None else f"step {found.step}"
    for text in (f"phase {found.phase.name}", step, *found.top):
        if not any(text in one.reason for one in told):
            yield f"no alert says {text!r}"
