"""Jobs are signed with a key that a reservation has from its first moment, and nobody is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_store import job_signatures, uris
from pipeline_store.formats import AttemptEvent, FormatError, JobKey
from pipeline_store.layout import StoreLayout
from tests.tpu_lifecycle.world import OWNER, ZONE, write_run
from tpu_lifecycle.control.mailbox import submit_job
from tpu_lifecycle.records.attempts import AttemptRecord
from tpu_lifecycle.records.reservation import OpenReservation, reserve
from tpu_lifecycle.service.backend import TpuName, TpuRequest

JOB = "010-train"


@pytest.fixture
def reservation(tmp_path: Path) -> OpenReservation:
    return reserved(StoreLayout(str(tmp_path / "store")))


def reserved(store: StoreLayout, run_uri: str = "") -> OpenReservation:
    run_uri = run_uri or write_run(store).root
    return reserve(store, run_uri, project_id="p", owner=OWNER, bundle_sha256="0" * 64)


def submitted(reservation: OpenReservation) -> tuple[AttemptRecord, bytes]:
    record = reservation.new_attempt(1, ZONE).mark_asked().mark(AttemptEvent.READY, workers=1)
    submit_job(reservation, record, job_id=JOB, entry_point="training.train", arguments=[])
    return record, uris.read(record.layout.job(JOB))


def test_a_submitted_job_is_signed_for_its_own_attempt(reservation: OpenReservation) -> None:
    record, spec = submitted(reservation)
    job_signatures.require_signed(record.layout, JOB, spec, reservation.job_key)
    other = reservation.layout.attempt(2)
    for mailbox, data in ((other, spec), (record.layout, spec + b" ")):
        with pytest.raises(FormatError, match="it is not signed"):
            job_signatures.require_signed(mailbox, JOB, data, reservation.job_key)


def test_each_generation_has_a_key_of_its_own(reservation: OpenReservation) -> None:
    store = StoreLayout(reservation.run.store_root)
    second = reserved(store, reservation.run.root)
    assert second.record.generation == 2
    assert len(str(second.job_key)) == 64
    assert second.job_key != reservation.job_key


def test_a_reservation_of_earlier_has_no_key_and_signs_nothing(
    reservation: OpenReservation,
) -> None:
    key = StoreLayout(reservation.run.store_root).job_key(reservation.record.run_key, 1)
    uris.delete(key)
    record, _ = submitted(reservation)
    assert reservation.job_key is None
    assert uris.list_files(uris.join(record.layout.root, "signatures")) == []


def test_a_key_is_in_no_text_that_a_log_could_show(reservation: OpenReservation) -> None:
    key = str(reservation.job_key)
    place = StoreLayout(reservation.run.store_root).job_key(reservation.record.run_key, 1)
    request = TpuRequest(
        name=TpuName(ZONE, "name"),
        accelerator_type="v5litepod-1",
        runtime_version="r",
        provisioning_model="spot",
        queue_timeout_seconds=1,
        labels={},
        metadata={"job-key": key},
    )
    for text in (repr(JobKey.load(place)), repr(reservation), repr(request)):
        assert key not in text
