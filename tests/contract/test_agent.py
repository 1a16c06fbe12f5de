"""Code gets onto a TPU VM, reports, resumes on the next one, and stops at the tombstone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from google.api_core import exceptions

from pipeline_config import load_preset
from pipeline_store import uris
from pipeline_store.formats import AttemptEvent, Heartbeat, PartitionManifest, TrainingResult
from pipeline_store.layout import RunLayout, StoreLayout
from tests.contract.cloud import Cloud
from tests.contract.conftest import option
from tpu_lifecycle.boot.bundle import build_bundle
from tpu_lifecycle.boot.launcher import boot_metadata
from tpu_lifecycle.control.mailbox import LogReader, submit_job
from tpu_lifecycle.control.observe import JobWatch, ReadyWatch
from tpu_lifecycle.control.provisioning import Provisioner
from tpu_lifecycle.control.release import become_holder, give_up, release
from tpu_lifecycle.control.verdict import Outcome, Verdict
from tpu_lifecycle.records.attempts import AttemptRecord
from tpu_lifecycle.records.reservation import OpenReservation, reserve
from verification.first_tpu.steps import SUITE_SECONDS

SILENT_BEATS = 20
"""So many heartbeats without a new one, and the agent has stopped. Of an emulated TPU fewer: its
files are on this machine, and none of them comes late."""
EMULATED_SILENT_BEATS = 6


class Rented:
    """A reservation, its TPU, and jobs on it."""

    def __init__(self, cloud: Cloud, store: StoreLayout, run: RunLayout) -> None:
        self.cloud, self.store = cloud, store
        self.reservation: OpenReservation = reserve(
            store,
            run.root,
            project_id=cloud.project_id,
            owner=cloud.owner,
            bundle_sha256=build_bundle(store).sha256,
        )

    def obtain(self) -> AttemptRecord:
        provisioner = Provisioner(
            reservation=self.reservation,
            store=self.store,
            backend=self.cloud.backend,
            launcher=boot_metadata,
            sweeper=self.cloud.sweeper,
        )
        record = provisioner.obtain()
        watch = ReadyWatch(
            self.cloud.backend, self.reservation, record, self.reservation.wait_deadline
        )
        verdict = self.final(watch)
        assert verdict.outcome is Outcome.READY, verdict.reason
        become_holder(self.reservation.run, record.attempt)
        return watch.record

    def submit(self, record: AttemptRecord, job_id: str, *command: str) -> JobWatch:
        entry_point, *arguments = command
        submit_job(
            self.reservation, record, job_id=job_id, entry_point=entry_point, arguments=arguments
        )
        return JobWatch(
            self.cloud.backend,
            self.reservation,
            record,
            job_id,
            self.reservation.wait_deadline,
            LogReader(record.layout, job_id, "contract"),
        )

    def final(self, watch: ReadyWatch | JobWatch) -> Verdict:
        def look() -> Verdict | None:
            verdict = watch.look().verdict
            return verdict if verdict.is_final else None

        # A training takes as long as it takes; the suite's own deadline ends it.
        return self.cloud.until(look, patience=SUITE_SECONDS)


@pytest.fixture
def rented(cloud: Cloud, store: StoreLayout) -> Iterator[Rented]:
    rented = Rented(cloud, store, cloud.write_run(store))
    yield rented
    release(rented.reservation, cloud.sweeper, reason="the test is over")


def test_it_runs_a_job_and_stops_at_the_tombstone(cloud: Cloud, rented: Rented) -> None:
    record = rented.obtain()
    verdict = rented.final(rented.submit(record, "010-help", "training.train", "--help"))
    assert verdict.outcome is Outcome.SUCCEEDED, verdict.reason
    rented.reservation.release("test")
    beats: list[datetime] = []

    def is_silent() -> bool:
        beats.append(Heartbeat.load(record.layout.heartbeat(0)).time)
        silence = (datetime.now(UTC) - beats[-1]).total_seconds()
        interval = rented.reservation.config.tpu.heartbeat_interval_seconds
        return silence > (SILENT_BEATS if cloud.is_real else EMULATED_SILENT_BEATS) * interval

    cloud.until(is_silent)
    rented.submit(record, "020-never", "training.train", "--help")
    assert not uris.exists(record.layout.status(0, "020-never"))


def training_length(cloud: Cloud, preset: str) -> dict[str, int | str]:
    """Return the settings by which a training is still under way when its first TPU is lost.

    The 20 steps of a preset for the emulator would end while the TPU goes. A tiny model takes some
    milliseconds a step on a real one (an estimate). A preset for real TPUs is taken as it is, with
    as many steps as it may have where a plan would decide them.
    """
    training = load_preset(preset).training
    if training.distribution_strategy == "tpu":
        is_auto = training.train_steps == "auto"
        return {"training__train_steps": training.max_train_steps} if is_auto else {}
    steps = 50_000 if cloud.is_real else 100
    # Most CPUs have no bfloat16, and take seconds a step to imitate it.
    numbers = ("mixed_precision_dtype", "residual_dtype")
    on_a_cpu = {} if cloud.is_real else {f"training__{name}": "float32" for name in numbers}
    return on_a_cpu | {
        "training__train_steps": steps,
        "training__checkpoint_interval": steps // 10,
        "training__steps_per_loop": steps // 50,
    }


@pytest.fixture
def training(
    pytestconfig: pytest.Config, cloud: Cloud, store: StoreLayout
) -> Iterator[tuple[Rented, list[str]]]:
    manifest = option(pytestconfig, "--tpu-manifest")
    if not (manifest and option(pytestconfig, "--tpu-store")):
        pytest.skip("trains on a TPU: needs --tpu-store and --tpu-manifest, a prepared partition")
    preset = str(option(pytestconfig, "--tpu-preset"))
    overrides = {"model__lineage_id": PartitionManifest.load(str(manifest)).lineage_id}
    run = cloud.write_run(store, preset, **overrides, **training_length(cloud, preset))
    arguments = ["--run", run.root, "--store", store.root, "--manifest", str(manifest)]
    rented = Rented(cloud, store, run)
    yield rented, arguments
    release(rented.reservation, cloud.sweeper, reason="the test is over")


def test_a_training_resumes_on_the_next_tpu(
    cloud: Cloud, training: tuple[Rented, list[str]]
) -> None:
    rented, arguments = training
    layout = rented.reservation.run.training
    first = rented.obtain()
    watch = rented.submit(first, "010-train", "training.train", *arguments)
    cloud.until(
        lambda: uris.list_files(layout.checkpoints) or watch.look().verdict.is_final,
        patience=SUITE_SECONDS,
    )
    # The node alone: so it also goes when the service takes it.
    try:
        cloud.client.delete_node(name=cloud.node(first.name))
    except exceptions.FailedPrecondition as error:
        cloud.backend.delete(first.name)
        print(f"a node of a queued resource cannot be deleted by itself: {error}")
    lost = rented.final(watch)
    assert lost.outcome is Outcome.LOST, lost.reason
    give_up(rented.reservation, first, cloud.sweeper, event=AttemptEvent.LOST, reason=lost.reason)
    verdict = rented.final(
        rented.submit(rented.obtain(), "010-train", "training.train", *arguments)
    )
    assert (verdict.outcome, verdict.exit_kind) == (Outcome.SUCCEEDED, None), verdict.reason
    result = TrainingResult.load(layout.result)
    assert result.resumed_from
    print(json.dumps({"resumed_from": result.resumed_from, "seconds": result.seconds}))
