"""What a run makes of a slice of several hosts, and of a TPU that is taken away again and again."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from operators.tpu import (
    TpuCreateOperator,
    TpuDeleteOperator,
    TpuReserveOperator,
    TpuRunOperator,
)
from pipeline_config import parse_config
from pipeline_store import uris
from pipeline_store.formats import AttemptEvent, TrainingResult
from pipeline_store.layout import RunLayout
from tests.plugins.driver import Driver
from tests.tpu_lifecycle.world import OWNER
from tests.training.corpora import TINY, TinyStore
from tests.training.jobs import train_arguments
from tpu_emulator.testing import wait_for

REPOSITORY = str(Path(__file__).parents[2])
TICK_SECONDS = 0.02
TRAIN_STEPS = 2000

ONE_FAILS = """
import os, time
worker = os.environ["TPU_EMULATOR_VM"].rpartition("/")[2]
if worker == "w2":
    print("the last words of w2", flush=True)
    raise ValueError("its device is gone")
time.sleep(600)
"""


def rent(driver: Driver, **reserve: Any) -> None:
    operator = TpuReserveOperator(task_id="reserve", tpu_owner=OWNER, **reserve, **driver.arguments)
    operator.execute(driver.context())
    driver.finish(TpuCreateOperator(task_id="create", **driver.arguments))


def delete(driver: Driver) -> None:
    TpuDeleteOperator(task_id="delete", **driver.arguments).execute(driver.context())
    driver.world.assert_nothing_left()


@pytest.mark.thorough
def test_one_of_four_workers_fails_the_job_with_its_name_and_last_words(driver: Driver) -> None:
    driver.configure({"tpu.accelerator_type": "v5litepod-16"})
    (driver.source / "training" / "one_fails.py").write_text(ONE_FAILS)
    rent(driver)
    assert driver.reservation.attempt(1).marks[AttemptEvent.READY].workers == 4
    job = TpuRunOperator(
        task_id="train",
        job_id="010-train",
        entry_point="training.one_fails",
        arguments=[],
        **driver.arguments,
    )
    with pytest.raises(AirflowFailException) as failed:
        driver.finish(job)
    assert "failed on worker 2" in str(failed.value)
    assert "the last words of w2" in str(failed.value)
    assert "ValueError: its device is gone" in str(failed.value)
    delete(driver)


def test_a_tpu_that_is_taken_before_it_was_seen_ready_is_replaced(driver: Driver) -> None:
    # One zone, in which a stockout would end the task.
    reserve = TpuReserveOperator(task_id="reserve", tpu_owner=OWNER, **driver.arguments)
    reserve.execute(driver.context())
    create = TpuCreateOperator(task_id="create", **driver.arguments)
    deferred = driver.start(create)
    wait_for(lambda: [n for n in driver.world.nodes() if n["state"] == "READY"])
    driver.world.emulator.admin.preempt(driver.reservation.attempt(1).attempt.node_id)
    assert driver.finish(create, deferred) == 2
    assert driver.events[0]["outcome"] == "lost"
    delete(driver)


@contextmanager
def preempting(driver: Driver, run: RunLayout, times: int) -> Iterator[list[int]]:
    """Take the TPU away after each new checkpoint, so many times; yield after which steps."""
    steps: list[int] = []
    ended = threading.Event()
    saved: dict[str, int] = {}

    def watch() -> None:
        while len(steps) < times and not ended.wait(TICK_SECONDS):
            found = Path(run.training.checkpoints).glob("*.json")
            newest = max((int(path.stem) for path in found), default=0)
            for node in driver.world.nodes():
                # What was there when the node came is not its own work.
                if node["state"] == "READY" and newest > saved.setdefault(node["name"], newest):
                    driver.world.emulator.admin.preempt(node["name"])
                    saved[node["name"]] = TRAIN_STEPS
                    steps.append(newest)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield steps
    finally:
        ended.set()
        thread.join()


@pytest.mark.slow
def test_a_training_that_is_preempted_five_times_ends_with_equal_weights(driver: Driver) -> None:
    times = 5
    learning = {
        "training.train_steps": TRAIN_STEPS,
        "training.checkpoint_interval": 100,
        "training.steps_per_loop": 10,
        "budget.max_preemptions": times,
        "tpu.boot_timeout_seconds": 300,
        "tpu.heartbeat_timeout_seconds": 120,
    }
    driver.configure(TINY | learning)
    config = parse_config(uris.read(driver.run.config), driver.run.config)
    store = TinyStore.create(Path(driver.world.store.root), config)
    manifest = store.partition("2026-01-01")
    straight = store.run("straight")
    command = [sys.executable, "-m", "training.train"]
    subprocess.run(command + train_arguments(store, straight, manifest), check=True, cwd=REPOSITORY)

    rent(driver, code_root=REPOSITORY)
    job = TpuRunOperator(
        task_id="train",
        job_id="010-train",
        entry_point="training.train",
        arguments=train_arguments(store, driver.run, manifest),
        **driver.arguments,
    )
    with preempting(driver, driver.run, times) as steps:
        result = driver.finish(job)
    assert (result["attempts_lost"], len(steps)) == (times, times)
    ends = [TrainingResult.load(run.training.result) for run in (driver.run, straight)]
    assert ends[0].weights_sha256 == ends[1].weights_sha256
    delete(driver)
