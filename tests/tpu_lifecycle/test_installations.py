"""Installations that share project, owner and ids of runs leave each other's TPUs alone."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipeline_store import uris
from pipeline_store.formats import AttemptEvent, Installation, Reservation
from pipeline_store.layout import RunLayout, StoreLayout
from tests.tpu_lifecycle.world import OWNER, ZONE, World, write_run
from tpu_lifecycle.__main__ import main
from tpu_lifecycle.control import reaper
from tpu_lifecycle.control.provisioning import TpuConflictError
from tpu_lifecycle.control.reaper import NotReapedError, Reaper
from tpu_lifecycle.records.installation import NewIdentity, establish, new_identity
from tpu_lifecycle.records.reservation import (
    OpenReservation,
    ReservationError,
    open_reservation,
)
from tpu_lifecycle.service.labels import INSTALLATION

RUN_ID = "scheduled__2026-01-01"


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaper, "PAUSE_SECONDS", 0.0)


@pytest.fixture
def other(world: World, tmp_path: Path) -> World:
    """Another installation in the same project, under the same owner."""
    return replace(world, store=StoreLayout(str(tmp_path / "other")))


def reserve(world: World) -> OpenReservation:
    return world.reserve(run=write_run(world.store, run_id=RUN_ID))


def reaper_of(world: World) -> Reaper:
    place = (world.backend, world.store, world.emulator.project, OWNER)
    return Reaper(*place, zones=[ZONE], patience=timedelta(0))


def overdue(reservation: OpenReservation, hours: float) -> OpenReservation:
    past = datetime.now(UTC) - timedelta(hours=hours)
    return replace(reservation, record=reservation.record.model_copy(update={"expires_at": past}))


def without_label(world: World) -> OpenReservation:
    """Return a reservation as a program that set no such label has written it."""
    reservation = reserve(world)
    record = reservation.record.model_copy(update={"installation": None})
    record.write(reservation.layout.record)
    return open_reservation(reservation.run.root)


def test_runs_of_equal_ids_rent_side_by_side(world: World, other: World) -> None:
    theirs, ours = reserve(world), reserve(other)
    assert theirs.record.run_key == ours.record.run_key
    first, second = world.obtain_ready(theirs), other.obtain_ready(ours)
    assert first.name != second.name
    other.release(ours)
    assert world.backend.describe(first.name).is_ready
    # Their run is long over; ours of the same id goes on.
    assert reaper_of(other).reap().reaped == []
    assert world.backend.describe(first.name).is_ready
    world.release(theirs)


def test_a_store_has_one_identity_and_a_copy_of_it_another(world: World, tmp_path: Path) -> None:
    label = establish(world.store)
    assert establish(StoreLayout(f"{world.store.root}/")) == label
    copy = StoreLayout(str(tmp_path / "copy"))
    shutil.copytree(world.store.root, copy.root)
    assert establish(copy) != label
    assert Installation.load(copy.installation) == Installation.load(world.store.installation)
    uris.delete(world.store.installation)
    assert establish(world.store) != label


def test_a_lost_id_file_makes_no_tpu_foreign(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    reservation = reserve(world)
    record = world.obtain_ready(reservation)
    assert "NEW IDENTITY" not in caplog.text
    uris.delete(world.store.installation)
    another = world.reserve()
    assert "NEW IDENTITY" in caplog.text
    assert another.record.installation != reservation.record.installation
    reservation.release("test")
    [reaped] = reaper_of(world).reap().reaped
    assert reaped.name == record.name.resource_id
    world.release(reservation)


def identity_of(root: Path, *, moved_from: Path | None = None) -> NewIdentity | None:
    """Return what is told of a store, before and after it asks for a TPU again."""
    if moved_from is not None:
        shutil.copytree(moved_from, root)
    store = StoreLayout(str(root))
    before = new_identity(store)
    label = establish(store)
    after = new_identity(store)
    assert (before is None) == (after is None)
    if after is not None:
        assert after.label == label
    return after


def test_another_place_is_told_and_the_first_one_is_not(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert identity_of(first) is None
    moved = identity_of(second, moved_from=first)
    assert moved is not None
    assert f"asked for before from {first}" in moved.text
    shutil.rmtree(first)
    # Moved back, it is what it was; the first place knows its TPUs.
    assert identity_of(first, moved_from=second) is None


def test_a_lost_id_is_told_also_where_no_identity_was_noted(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = StoreLayout(str(root))
    assert identity_of(root) is None
    uris.delete(store.installation)
    lost = identity_of(root)
    assert lost is not None
    assert "Who deleted the file?" in lost.text
    # As an earlier program left it.
    shutil.rmtree(root)
    uris.write(store.tpu_place("project", ZONE), b"{}")
    earlier = identity_of(root)
    assert earlier is not None
    assert "Who deleted the file?" in earlier.text


def test_a_copied_run_neither_adopts_nor_gives_back_the_originals_tpu(
    world: World, tmp_path: Path
) -> None:
    original = reserve(world)
    record = world.obtain_ready(original)
    copy = replace(world, store=StoreLayout(str(tmp_path / "copy")))
    shutil.copytree(world.store.root, copy.store.root)
    copied = open_reservation(copy.store.run(original.record.run_key).root)
    with pytest.raises(ReservationError, match="Clear the reserve task"):
        copy.provisioner(copied).obtain()
    with pytest.raises(ReservationError, match=f"{record.name}.*{original.record.installation}"):
        copy.release(copied)
    assert reaper_of(copy).reap().reaped == []
    # Its next generation has TPUs of its own, and leaves the books of the copied one open.
    again = copy.reserve(run=RunLayout(copied.run.root))
    assert copy.obtain_ready(again).name != record.name
    copy.release(again)
    assert world.backend.describe(record.name).is_ready
    assert AttemptEvent.GONE not in copied.attempt(1).marks
    assert not uris.exists(copied.layout.ledger)
    world.release(original)
    copy.release(again)
    assert uris.exists(copied.layout.ledger)


def test_what_was_found_not_to_be_ours_is_not_deleted(world: World, other: World) -> None:
    theirs, ours = without_label(world), without_label(other)
    record = world.obtain_ready(theirs)
    ours = replace(ours, record=ours.record.model_copy(update={"owner": "another-team"}))
    with pytest.raises(TpuConflictError, match="left alone"):
        other.provisioner(ours).obtain()
    assert world.backend.describe(record.name).is_ready
    world.release(theirs)


def test_a_tpu_that_runs_during_the_upgrade_stays_ours(world: World, other: World) -> None:
    old = without_label(world)
    record = world.obtain_ready(old)
    assert INSTALLATION not in world.backend.describe(record.name).labels
    assert world.provisioner(old).obtain().name == record.name
    old.release("test")
    assert reaper_of(other).reap().reaped == []
    [reaped] = reaper_of(world).reap().reaped
    assert reaped.name == record.name.resource_id
    # The next generation has the label, and gives back the old one's TPU first.
    new = world.reserve(run=old.run)
    assert world.obtain_ready(new).name.resource_id.startswith(f"bert-{new.record.installation}-")
    assert not world.backend.describe(record.name).exists
    world.release(new)


@pytest.mark.parametrize("hours", [0.5, 2.0])
def test_a_foreign_tpu_that_is_long_expired_is_told_and_deleted_by_name_only(
    world: World, other: World, hours: float, capsys: pytest.CaptureFixture[str]
) -> None:
    reservation = overdue(reserve(world), hours)
    name = reservation.new_attempt(1, ZONE).name
    world.backend.create(world.request(reservation, reservation.attempt(1)))
    report = reaper_of(other).reap()
    assert report.reaped == []
    assert world.backend.describe(name).exists
    command = ["reap-foreign", name.resource_id, "--zone", ZONE, "--owner", OWNER]
    command += ["--project", world.emulator.project, "--store", other.store.root]
    command += ["--endpoint", world.emulator.endpoint, "--insecure"]
    if hours < 1:
        assert report.problems == []
        assert main(command) == 1
        assert "wanted until" in capsys.readouterr().err
        world.sweeper().delete([name])
    else:
        [problem] = report.problems
        assert f"reap-foreign {name.resource_id}" in problem
        assert main(command) == 0
        world.sweeper().delete([name])
        assert main(command) == 1


def test_a_foreign_tpu_that_is_named_leaves_no_bill_with_a_run_of_equal_id(
    world: World, other: World
) -> None:
    theirs, ours = overdue(reserve(world), 2.0), reserve(other)
    own = other.obtain_ready(ours)
    name = theirs.new_attempt(1, ZONE).name
    world.backend.create(world.request(theirs, theirs.attempt(1)))
    reaper_of(other).reap_foreign(name.resource_id, ZONE)
    assert not uris.exists(own.layout.bill)
    world.sweeper().delete([name])
    other.release(ours)


def test_what_is_named_wrongly_is_not_deleted(world: World) -> None:
    with pytest.raises(NotReapedError, match="no TPU bert-absent"):
        reaper_of(world).reap_foreign("bert-absent", ZONE)


def test_while_the_id_cannot_be_read_the_stores_place_decides(world: World, other: World) -> None:
    ours, theirs = overdue(reserve(world), 0.1), overdue(reserve(other), 0.1)
    for one in (ours, theirs):
        world.backend.create(world.request(one, one.new_attempt(1, ZONE)))
    uris.write(world.store.installation, b"not json")
    report = reaper_of(world).reap()
    assert [item.name for item in report.reaped] == [ours.attempt(1).name.resource_id]
    assert "installation.json" in report.problems[0]
    world.sweeper().delete([ours.attempt(1).name, theirs.attempt(1).name])


def test_a_reservation_of_an_earlier_program_is_read(world: World) -> None:
    reservation = without_label(world)
    assert Reservation.load(reservation.layout.record).installation is None
    assert reservation.new_attempt(1, ZONE).name.resource_id == (
        f"bert-{reservation.record.run_key}-g1-a1"
    )
