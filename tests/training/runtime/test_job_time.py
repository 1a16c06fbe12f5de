"""What a process says that its time was spent on: each second once, and which steps were lost."""

from __future__ import annotations

import pytest

from pipeline_store.formats import PhaseName, Seconds, SpentOn
from training.runtime.job_time import TimeSheet


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sheet(clock: Clock) -> TimeSheet:
    return TimeSheet(clock)


def loop(sheet: TimeSheet, clock: Clock, steps: int = 10, wait: float = 0.0) -> None:
    """Do steps of a second each, and wait for some of their batches."""
    clock.wait(steps + wait)
    sheet.looped(steps, steps + wait, wait, compiled=False)


def first_loop(sheet: TimeSheet, clock: Clock, seconds: float, steps: int) -> None:
    sheet.enter(PhaseName.FIRST_LOOP)
    clock.wait(seconds)
    sheet.enter(PhaseName.LOOP)
    sheet.looped(steps, seconds, 0.0, compiled=True)


def told(sheet: TimeSheet) -> Seconds:
    return sheet.told().seconds


def test_every_second_has_one_name(sheet: TimeSheet, clock: Clock) -> None:
    for phase, seconds in (
        (PhaseName.DATA, 1.0),
        (PhaseName.RESTORE, 2.0),
        (PhaseName.OTHER, 3.0),
        (PhaseName.LOOP, 0.0),
    ):
        sheet.enter(phase)
        clock.wait(seconds)
    first_loop(sheet, clock, 40.0, 10)
    loop(sheet, clock, wait=2.0)
    clock.wait(0.5)
    sheet.enter(PhaseName.EVALUATION)
    clock.wait(4.0)
    sheet.enter(PhaseName.OTHER)
    clock.wait(5.0)
    sheet.enter(PhaseName.OTHER)
    found = told(sheet)
    assert found == {
        SpentOn.TRAINING_PREP: 1.0,
        SpentOn.RESTORE: 2.0,
        SpentOn.PROGRAM_STARTUP: 3.0,
        SpentOn.COMPILE: 30.0,
        SpentOn.STEP: 20.0,
        SpentOn.DATA_LOADING: 2.0,
        SpentOn.EVALUATION: 4.0,
        SpentOn.OTHER: 5.5,
    }
    assert sum(found.values()) == clock.now - 100.0


def test_steps_are_kept_once_a_checkpoint_has_them(sheet: TimeSheet, clock: Clock) -> None:
    sheet.begins(0)
    sheet.enter(PhaseName.LOOP)
    loop(sheet, clock)
    sheet.saving(10)
    loop(sheet, clock)
    assert sheet.told().unsaved_seconds == 20.0
    sheet.saved(10)
    assert sheet.told().unsaved_seconds == 10.0


def test_steps_of_the_first_loop_are_kept_by_a_checkpoint_after_it(
    sheet: TimeSheet, clock: Clock
) -> None:
    sheet.begins(0)
    first_loop(sheet, clock, 40.0, 10)
    # How many of the 40 seconds were steps is known when the next loop is done.
    sheet.saving(10)
    sheet.saved(10)
    loop(sheet, clock)
    assert told(sheet)[SpentOn.STEP] == 20.0
    assert sheet.told().unsaved_seconds == 10.0
    sheet.went_back(10)
    assert told(sheet) == {SpentOn.COMPILE: 30.0, SpentOn.STEP: 10.0, SpentOn.LOST_STEPS: 10.0}


def test_a_checkpoint_of_the_first_loop_may_be_committed_later(
    sheet: TimeSheet, clock: Clock
) -> None:
    sheet.begins(0)
    first_loop(sheet, clock, 40.0, 10)
    sheet.saving(10)
    loop(sheet, clock)
    assert sheet.told().unsaved_seconds == 20.0
    sheet.saved(10)
    assert sheet.told().unsaved_seconds == 10.0


def test_a_checkpoint_that_is_committed_after_the_last_word_keeps_its_steps(
    sheet: TimeSheet, clock: Clock
) -> None:
    sheet.begins(100)
    first_loop(sheet, clock, 40.0, 10)
    loop(sheet, clock)
    sheet.saving(120)
    loop(sheet, clock)
    told = sheet.told()
    assert (told.begun_at, told.last_step) == (100, 130)
    assert told.unsaved_after == {100: 30.0, 120: 10.0}
    lost = {None: 30.0, 100: 30.0, 110: 30.0, 120: 10.0, 130: 0.0, 140: 0.0}
    assert {step: told.lost(step) for step in lost} == lost
    sheet.saved(120)
    assert sheet.told().unsaved_after == {120: 10.0}


def test_steps_before_a_rollback_are_lost_once(sheet: TimeSheet, clock: Clock) -> None:
    sheet.begins(0)
    sheet.enter(PhaseName.LOOP)
    for step in (10, 20):
        loop(sheet, clock)
        sheet.saving(step)
        sheet.saved(step)
    loop(sheet, clock)
    sheet.went_back(10)
    assert told(sheet) == {SpentOn.STEP: 10.0, SpentOn.LOST_STEPS: 20.0}
    assert sheet.told().unsaved_seconds == 0.0
    loop(sheet, clock)
    sheet.went_back(10)
    assert told(sheet) == {SpentOn.STEP: 10.0, SpentOn.LOST_STEPS: 30.0}


def test_another_training_does_not_take_back_what_one_before_has_done(
    sheet: TimeSheet, clock: Clock
) -> None:
    sheet.begins(0)
    sheet.enter(PhaseName.LOOP)
    loop(sheet, clock)
    sheet.begins(0)
    loop(sheet, clock)
    sheet.went_back(0)
    assert told(sheet) == {SpentOn.STEP: 10.0, SpentOn.LOST_STEPS: 10.0}


def test_what_goes_on_is_said_and_not_counted_yet(sheet: TimeSheet, clock: Clock) -> None:
    sheet.enter(PhaseName.LOOP)
    clock.wait(7.0)
    assert (sheet.told().now, told(sheet)) == (SpentOn.STEP, {})
