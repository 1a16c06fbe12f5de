"""Trainings that are slow but do not hang: none may be ended. With half the limits, most are."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from pipeline_store.formats import ExitKind, TrainingResult
from verification.hang_check.prepared import SETTINGS, Prepared, config_of
from verification.hang_check.results import Result
from verification.hang_check.trial import Trial, TrialError

OUTAGE_SECONDS = 300.0
SHARES = (0.6, 0.9)
"""Range of a pause as a share of its limit: the control's limits are half, and detection needs some
tenths of a second."""
_STEPS, _INTERVAL = SETTINGS["training.train_steps"], SETTINGS["training.checkpoint_interval"]
_ROWS_AT_ONCE = 4
"""Number of prefetched batches, which hide part of a slow one."""


class Kind(StrEnum):
    """The part of a run that is slow."""

    STOPPED = "stopped"
    """The process is suspended and resumed."""
    SLOW_INPUT = "slow-input"
    SLOW_SAVE = "slow-save"
    LONG_COMPILE = "long-compile"
    STORE_AWAY = "store-away"
    PLAIN = "plain"


PAUSED = (Kind.STOPPED, Kind.SLOW_INPUT, Kind.SLOW_SAVE)


def kind_of(number: int) -> Kind:
    """Return the kind of a run by its number from 0: three of each ten are paused."""
    if number in (3, 4):
        return (Kind.LONG_COMPILE, Kind.STORE_AWAY)[number - 3]
    return PAUSED[number % 10] if number % 10 < len(PAUSED) else Kind.PLAIN


@dataclass(frozen=True)
class Slow:
    """The slowness that is drawn for one run: its step, and its share of the limit."""

    kind: Kind
    step: int
    share: float

    @classmethod
    def draw(cls, number: int) -> Slow:
        """Return the slowness of the run with a number."""
        drawn = random.Random(number)  # noqa: S311 - a schedule
        steps = _STEPS - 2 * _INTERVAL
        return cls(kind_of(number), drawn.randrange(2, steps), drawn.uniform(*SHARES))

    def acts(self, limits: dict[str, float]) -> list[dict[str, Any]]:
        """Return the acts to inject into the trainer.

        :param limits: limits of a run that is not a control.
        """
        floor = limits["hang.loop_floor_seconds"]
        batch = self.step + _ROWS_AT_ONCE
        places: dict[Kind, tuple[str, int, str, float]] = {
            Kind.SLOW_INPUT: ("input", batch, "pause", floor * self.share + 0.5),
            Kind.SLOW_SAVE: (
                "write",
                1 + self.step // _INTERVAL,
                "pause",
                limits["hang.save_seconds"] * self.share,
            ),
            Kind.LONG_COMPILE: (
                "loop",
                1,
                "pause",
                limits["hang.first_loop_seconds"] * self.share / 2,
            ),
            Kind.STORE_AWAY: ("write", 2, "wait-for-the-store", 0.0),
        }
        if self.kind not in places:
            return []
        point, call, how, seconds = places[self.kind]
        return [{"point": point, "call": call, "how": how, "seconds": seconds, "start": 1}]


def run_healthy(
    number: int, folder: Path, prepared: Prepared, *, slower: float, is_control: bool
) -> Result:
    """Run a slow training and return whether it was reported as hung.

    :param is_control: whether its limits are half of those the pause was made for; the first alarm
        ends it.
    :raises TrialError: the trial did not get that far.
    """
    slow = Slow.draw(number)
    limits = {name: value * slower for name, value in SETTINGS.items() if name.startswith("hang.")}
    config = config_of(times=slower / 2 if is_control else slower)
    with Trial(folder, prepared, config, acts=slow.acts(limits)) as trial:
        trial.train()
        # A control may be ended, or be reported as hung, before it gets that far.
        with suppress(*((TrialError,) if is_control else ())):
            _DISTURB.get(slow.kind, _leave)(trial, slow, limits["hang.loop_floor_seconds"])
        if is_control:
            _wait_for_alarm(trial)
            hangs = trial.hangs()
        else:
            status = trial.end()
            hangs = trial.hangs()
    places = [f"{one.phase.name} after {one.still_seconds} s" for hang in hangs for one in hang]
    numbers = {"alarms": len(hangs), "share": round(slow.share, 2), "places": places}
    kind = "control" if is_control else "healthy"
    name = f"{slow.kind}-{number}"
    if is_control:
        return Result(kind, name, True, [], numbers)
    problems = [f"it was taken for one that hangs in {place}" for place in places]
    if status.exit_kind is not ExitKind.OK:
        problems.append(f"it ended as {status.exit_kind}: {status.message}")
    elif TrainingResult.load(trial.run.training.result).weights_sha256 != prepared.weights_sha256:
        problems.append("the weights are not those of an undisturbed training")
    return Result(kind, name, not problems, problems, numbers)


def _leave(trial: Trial, slow: Slow, floor: float) -> None:
    """Do nothing: the slowness is inside the trainer."""


def _stop_for_a_while(trial: Trial, slow: Slow, floor: float) -> None:
    limit = max(trial.wait_for_loops(slow.step), floor)
    trial.signal(signal.SIGSTOP)
    time.sleep(limit * slow.share)
    trial.signal(signal.SIGCONT)


def _take_the_store_away(trial: Trial, slow: Slow, floor: float) -> None:
    trial.wait_until_acted()
    with trial.store_away():
        time.sleep(OUTAGE_SECONDS)
    (trial.host_folder(0) / "store-is-back").touch()


_DISTURB: dict[Kind, Callable[[Trial, Slow, float], None]] = {
    Kind.STOPPED: _stop_for_a_while,
    Kind.STORE_AWAY: _take_the_store_away,
}


def _wait_for_alarm(trial: Trial) -> None:
    while not trial.hangs() and not trial.has_ended():
        time.sleep(0.2)
