from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipeline_store import uris
from pipeline_store.formats import (
    AttemptBill,
    AttemptEvent,
    Heartbeat,
    JobPhase,
    Lease,
    PhaseName,
    Progress,
    ReaperPass,
)
from tests.tpu_lifecycle.world import OTHER_ZONE, OWNER, ZONE, World, idle_launcher
from tpu_emulator.testing import wait_for
from tpu_lifecycle.__main__ import main
from tpu_lifecycle.control import reaper
from tpu_lifecycle.control.reaper import Reaper, ReaperReport, stored_places
from tpu_lifecycle.control.reaper_status import newest_pass, reaper_problem
from tpu_lifecycle.records.attempts import AttemptRecord
from tpu_lifecycle.records.installation import establish
from tpu_lifecycle.records.reservation import OpenReservation
from tpu_lifecycle.service.backend import TpuName, TpuRequest, TpuState

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaper, "PAUSE_SECONDS", 0.0)


def make_reaper(world: World, owner: str = OWNER, **changes: Any) -> Reaper:
    place = (world.backend, world.store, world.emulator.project, owner)
    return Reaper(*place, **{"zones": [ZONE], "patience": timedelta(0)} | changes)


def reap_all(world: World, owner: str = OWNER) -> ReaperReport:
    report = make_reaper(world, owner).reap()
    names = [TpuName(item.zone, item.name) for item in report.reaped]
    wait_for(lambda: not any(world.backend.describe(name).exists for name in names))
    return report


def expired(reservation: OpenReservation) -> OpenReservation:
    """Return the reservation as if it had expired; its TPUs carry the label of that."""
    past = datetime.now(UTC) - timedelta(minutes=1)
    return replace(reservation, record=reservation.record.model_copy(update={"expires_at": past}))


def ask_for(world: World, reservation: OpenReservation, zone: str = ZONE) -> TpuName:
    record = reservation.new_attempt(len(reservation.attempts()) + 1, zone)
    world.backend.create(world.request(reservation, record))
    return record.name


def request_of(owner: str, **labels: str) -> TpuRequest:
    return TpuRequest(
        name=TpuName(ZONE, f"tpu-of-{owner}"),
        accelerator_type="v5litepod-1",
        runtime_version="v2-alpha-tpuv5-lite",
        provisioning_model="on-demand",
        queue_timeout_seconds=600,
        labels={"owner": owner} | labels,
        metadata=idle_launcher(mailbox_uri="", token=""),
    )


def test_a_tpu_in_use_is_left_alone(world: World) -> None:
    reservation = world.reserve()
    record = world.obtain_ready(reservation)
    report = reap_all(world)
    assert (report.seen, report.reaped, report.problems) == (1, [], [])
    assert world.backend.describe(record.name).is_ready
    world.release(reservation)


def test_expired_released_and_given_up_tpus_are_deleted(world: World) -> None:
    overdue = ask_for(world, expired(world.reserve()))
    released = world.reserve()
    forgotten = ask_for(world, released)
    released.release("test")
    active = world.reserve()
    abandoned = ask_for(world, active)
    active.attempt(1).mark(AttemptEvent.LOST, "preempted").mark(AttemptEvent.GONE)
    reasons = {item.name: item.reason for item in reap_all(world).reaped}
    assert reasons[overdue.resource_id].startswith("expired at")
    assert "was released at" in reasons[forgotten.resource_id]
    assert reasons[abandoned.resource_id] == "its run gave it up (lost: preempted)"
    [entry] = AttemptBill.load(released.attempt(1).layout.bill).entries
    assert entry.outcome.startswith("reaped: reservation g1")
    world.assert_nothing_left()


def test_failed_queued_resources_are_deleted(world: World) -> None:
    reservation = world.reserve()
    world.emulator.admin.stockout(ZONE, shape="state")
    failed = ask_for(world, reservation)
    wait_for(lambda: world.backend.describe(failed).queued_resource == "FAILED")
    [item] = reap_all(world).reaped
    assert item.reason == "it is FAILED and still takes name and quota"


def test_a_preempted_node_without_a_queued_resource_is_deleted(world: World) -> None:
    reservation = world.reserve({"tpu.api": "nodes"})
    record = world.obtain_ready(reservation)
    world.emulator.admin.preempt(record.name.resource_id, node_state="PREEMPTED")
    wait_for(lambda: world.backend.describe(record.name).node == "PREEMPTED")
    [item] = reap_all(world).reaped
    assert item.reason == "it is PREEMPTED and still takes name and quota"


def test_what_failed_is_left_to_who_waits_for_it(world: World) -> None:
    reservation = world.reserve()
    world.emulator.admin.stockout(ZONE, shape="state")
    failed = ask_for(world, reservation)
    wait_for(lambda: world.backend.describe(failed).queued_resource == "FAILED")
    now = datetime.now(UTC)
    old = replace(world.backend.describe(failed), created=now - timedelta(days=1))
    cleaner = make_reaper(world, patience=timedelta(minutes=10), dry_run=True)
    cleaner.find = lambda report: iter([old])  # type: ignore[method-assign]
    record = reservation.attempt(1)
    lease = Lease(token=record.attempt.token, sequence=1, renewed=now)
    lease.write(record.layout.lease)
    assert cleaner.reap().reaped == []
    lease.model_copy(update={"renewed": now - timedelta(hours=1)}).write(record.layout.lease)
    assert len(cleaner.reap().reaped) == 1
    uris.write(record.layout.lease, b"not json")
    assert len(cleaner.reap().reaped) == 1
    reap_all(world)


def test_tasks_that_are_at_it_are_not_disturbed(world: World) -> None:
    reservation = world.reserve()
    ask_for(world, reservation)
    overdue = ask_for(world, expired(world.reserve()))
    reservation.release("test")
    patient = make_reaper(world, patience=timedelta(minutes=1))
    assert [item.name for item in patient.reap().reaped] == [overdue.resource_id]
    reap_all(world)


class TestForsaken:
    """A READY TPU of which nobody has heard for long, and whose own switch has done nothing."""

    TIMEOUT = 5.0

    def obtain(self, world: World, renewed_ago: float) -> tuple[OpenReservation, AttemptRecord]:
        """Return a READY attempt whose marks and lease are so many seconds old."""
        reservation = world.reserve({"tpu.lease_timeout_seconds": self.TIMEOUT})
        record = world.obtain_ready(reservation)
        then = datetime.now(UTC) - timedelta(seconds=renewed_ago)
        for mark in record.marks.values():
            mark.model_copy(update={"time": then}).write(record.layout.mark(mark.event))
        Lease(token=record.attempt.token, sequence=9, renewed=then).write(record.layout.lease)
        return reservation, record

    def beat(self, record: AttemptRecord, step: int | None, phase: JobPhase | None = None) -> None:
        Heartbeat(
            worker=0,
            token=record.attempt.token,
            time=datetime.now(UTC),
            job_id="010-train",
            progress=None if step is None else Progress(step=step, train_steps=100),
            phase=phase,
            log_chunks=0,
            disk_free_bytes=1,
        ).write(record.layout.heartbeat(0))

    def grow_older(self, world: World) -> None:
        """Let the newest pass have been a lease timeout ago."""
        uri = world.store.reaper_pass(OWNER, world.emulator.project)
        newest = ReaperPass.load(uri)
        past = timedelta(seconds=self.TIMEOUT)
        older = [s.model_copy(update={"since": s.since - past}) for s in newest.standing]
        newest.model_copy(update={"standing": older}).write(uri)

    def test_it_is_deleted_once_its_job_stood_still_for_a_lease_timeout(self, world: World) -> None:
        reservation, record = self.obtain(world, renewed_ago=3600)
        self.beat(record, 7)
        # Long not renewed; but how far its job is was never noted before.
        assert reap_all(world).reaped == []
        self.grow_older(world)
        self.beat(record, 8)
        assert reap_all(world).reaped == []
        # However long ago it was seen so first, one look more must agree.
        self.grow_older(world)
        assert reap_all(world).reaped == []
        [item] = reap_all(world).reaped
        assert "nobody renews its lease, and its job makes no progress since" in item.reason
        world.release(reservation)

    def test_an_evaluation_that_moves_keeps_it(self, world: World) -> None:
        reservation, record = self.obtain(world, renewed_ago=3600)
        for count in range(4):
            entered = record.attempt.created
            self.beat(
                record, None, JobPhase(name=PhaseName.EVALUATION, entered=entered, count=count)
            )
            assert reap_all(world).reaped == []
            self.grow_older(world)
        for _ in range(2):
            [item] = reap_all(world).reaped or [None]
        assert item is not None
        world.release(reservation)

    def test_who_renews_it_keeps_it(self, world: World) -> None:
        reservation, record = self.obtain(world, renewed_ago=1.5 * self.TIMEOUT)
        assert reap_all(world).reaped == []
        newest = newest_pass(world.store, OWNER)
        assert newest is not None
        assert newest.standing == []
        world.release(reservation)
        assert not world.backend.describe(record.name).exists

    def test_what_a_pass_cannot_see_is_remembered(self, world: World) -> None:
        reservation, record = self.obtain(world, renewed_ago=3600)
        for _ in range(2):
            reap_all(world)
        self.grow_older(world)
        world.emulator.admin.fail_next("ListQueuedResources", code="PERMISSION_DENIED", message="")
        assert reap_all(world).reaped == []
        assert [item.name for item in reap_all(world).reaped] == [record.name.resource_id]
        world.release(reservation)


def test_every_zone_of_a_reservation_is_looked_at(world: World) -> None:
    reservation = world.reserve({"tpu.zones": [ZONE, OTHER_ZONE]})
    places = {(place.project_id, place.zone) for place in stored_places(world.store, [])}
    assert places == {(world.emulator.project, zone) for zone in (ZONE, OTHER_ZONE)}
    name = ask_for(world, expired(reservation), OTHER_ZONE)
    assert [item.name for item in reap_all(world).reaped] == [name.resource_id]


def test_a_damaged_place_is_reported_and_the_rest_looked_at(world: World) -> None:
    name = ask_for(world, expired(world.reserve()))
    uris.write(world.store.tpu_place(world.emulator.project, OTHER_ZONE), b"not json")
    report = reap_all(world)
    assert [item.name for item in report.reaped] == [name.resource_id]
    [problem] = report.problems
    assert f"{OTHER_ZONE}.json" in problem


def test_without_its_store_it_still_deletes_what_has_expired(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = ask_for(world, expired(world.reserve()))

    def away(uri: str) -> list[str]:
        raise OSError(f"{uri} is away")

    monkeypatch.setattr(reaper.uris, "list_files", away)
    report = reap_all(world)
    assert [item.name for item in report.reaped] == [name.resource_id]
    assert "is away" in report.problems[0]


def test_other_owners_are_never_touched(world: World) -> None:
    past = str(int(datetime.now(UTC).timestamp()) - 60)
    labels = {"run-key": "x", "generation": "1", "attempt": "1", "expires-at": past}
    labels["installation"] = establish(world.store)
    foreign = request_of("their-team", **labels)
    world.backend.create(foreign)
    report = reap_all(world)
    assert (report.seen, report.reaped) == (0, [])
    assert world.backend.describe(foreign.name).exists
    assert len(reap_all(world, "their-team").reaped) == 1


def test_one_poisoned_tpu_does_not_save_the_others(world: World) -> None:
    poisoned = request_of(OWNER, **{"expires-at": "tomorrow"})
    world.backend.create(poisoned)
    overdue = ask_for(world, expired(world.reserve()))
    report = reap_all(world)
    assert [item.name for item in report.reaped] == [overdue.resource_id]
    [problem] = report.problems
    assert str(poisoned.name) in problem
    assert "labels" in problem
    world.sweeper().delete([poisoned.name])


def test_a_zone_that_does_not_answer_is_reported(world: World) -> None:
    world.emulator.admin.fail_next("ListQueuedResources", code="PERMISSION_DENIED", message="no")
    assert "PERMISSION_DENIED" in reap_all(world).problems[0]


@pytest.mark.parametrize("code", ["NOT_FOUND", "INVALID_ARGUMENT", "PERMISSION_DENIED"])
def test_a_zone_that_never_was_is_no_problem_for_ever(
    world: World, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    world.reserve({"tpu.zones": [ZONE, OTHER_ZONE]})
    world.emulator.admin.fail_next("ListQueuedResources", code=code, zone=OTHER_ZONE, count=1)
    assert reap_all(world).problems == []
    place = world.store.tpu_place(world.emulator.project, OTHER_ZONE)
    assert f"delete {place}" in caplog.text


def test_a_zone_that_is_out_of_sight_stays_a_problem(world: World) -> None:
    world.reserve({"tpu.zones": [ZONE, OTHER_ZONE]})
    place = world.store.tpu_place(world.emulator.project, OTHER_ZONE)
    refuse = partial(world.emulator.admin.fail_next, "ListQueuedResources", count=1)
    for code in ("PERMISSION_DENIED", "NOT_FOUND"):
        assert reap_all(world).problems == []
        refuse(code=code, zone=OTHER_ZONE)
        [problem] = reap_all(world).problems
        assert f"delete {place}" in problem
        refuse(code=code, zone=OTHER_ZONE)
        assert len(reap_all(world).problems) == 1, "the pass between has not forgotten it"
        refuse(code=code, zone=OTHER_ZONE)
        uris.write(world.store.reaper_pass(OWNER, world.emulator.project), b"not json")
        assert len(reap_all(world).problems) == 1


def test_no_zone_that_may_be_looked_at_is_a_problem(world: World) -> None:
    world.reserve({"tpu.zones": [ZONE, OTHER_ZONE]})
    for zone in (ZONE, OTHER_ZONE):
        world.emulator.admin.fail_next("ListQueuedResources", code="PERMISSION_DENIED", zone=zone)
    blind = make_reaper(world, zones=())
    assert len(blind.reap().problems) == 2


def test_before_the_first_reservation_there_is_nothing_to_reap(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    report = make_reaper(world, zones=()).reap()
    assert (report.seen, report.problems) == (0, [])
    assert "Nothing to look at: no TPU was ever asked for" in caplog.text
    assert reaper_problem(world.store, OWNER, world.emulator.project, timedelta(hours=1)) is None


def test_looking_nowhere_is_a_problem_where_others_have_rented(world: World) -> None:
    world.reserve()
    strange = Reaper(world.backend, world.store, "my-projet", OWNER)
    [problem] = strange.reap().problems
    assert "no zone to look at" in problem
    assert f"are of {world.emulator.project}, none of project my-projet" in problem


@pytest.mark.parametrize("damage", ["list", "file"])
def test_zones_that_cannot_be_read_stay_a_problem(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    def away(uri: str) -> list[str]:
        raise OSError(f"{uri} is away")

    caplog.set_level("INFO")
    if damage == "list":
        monkeypatch.setattr(reaper.uris, "list_files", away)
    else:
        uris.write(world.store.tpu_place(world.emulator.project, ZONE), b"not json")
    [problem] = make_reaper(world, zones=()).reap().problems
    assert "cannot" in problem
    assert "Nothing to look at" not in caplog.text


def test_a_list_that_is_behind_is_no_reason_to_act(world: World) -> None:
    name = ask_for(world, expired(world.reserve()))
    cleaner = make_reaper(world)
    listed = list(cleaner.find(ReaperReport()))
    assert [state.name for state in listed] == [name]
    world.sweeper().delete([name])
    cleaner.find = lambda report: iter(listed)  # type: ignore[method-assign]
    report = cleaner.reap()
    assert (report.reaped, report.problems) == ([], [])


def test_one_pass_deletes_only_so_many(world: World) -> None:
    names = {ask_for(world, expired(world.reserve())).resource_id for _ in range(3)}
    report = make_reaper(world, max_deletions=2).reap()
    assert len(report.reaped) == 2
    assert "1 more TPU(s)" in report.problems[0]
    last = reap_all(world)
    assert {item.name for item in report.reaped + last.reaped} >= names


def test_what_hangs_in_deleting_does_not_keep_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [ask_for(world, expired(world.reserve())) for _ in range(3)]
    look = world.backend.list_zone

    def hanging(zone: str, labels: Mapping[str, str]) -> list[TpuState]:
        states = sorted(look(zone, labels), key=lambda state: state.name)
        return [*(replace(s, queued_resource="DELETING") for s in states[:2]), *states[2:]]

    with monkeypatch.context() as patch:
        patch.setattr(world.backend, "list_zone", hanging)
        report = make_reaper(world, max_deletions=1).reap()
    assert {item.name for item in report.reaped} == {name.resource_id for name in names}
    assert report.problems == []
    wait_for(lambda: not any(world.backend.describe(name).exists for name in names))


def test_each_pass_leaves_a_sign_of_life(world: World) -> None:
    hour = timedelta(hours=1)
    place = (world.store, OWNER, None)
    problem = reaper_problem(*place, hour)
    assert problem is not None
    assert "never made a pass" in problem
    make_reaper(world, dry_run=True).reap()
    assert reaper_problem(*place, hour) == problem
    name = ask_for(world, expired(world.reserve()))
    reap_all(world)
    assert reaper_problem(*place, hour) is None
    newest = newest_pass(world.store, OWNER)
    assert newest is not None
    assert (newest.project_id, newest.seen, newest.acted_on) == (world.emulator.project, 1, 1)
    assert not world.backend.describe(name).exists
    assert "never made a pass" in str(reaper_problem(world.store, OWNER, "other-project", hour))
    assert "never made a pass" in str(reaper_problem(world.store, "other-team", None, hour))
    stopped = reaper_problem(*place, timedelta(0))
    assert stopped is not None
    assert "unpause the tpu_reaper DAG" in stopped
    world.emulator.admin.fail_next("ListQueuedResources", code="PERMISSION_DENIED", message="no")
    reap_all(world)
    assert "had problems" in str(reaper_problem(*place, hour))


def test_a_store_that_is_away_is_a_problem_and_stops_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise OSError("the store is away")

    name = ask_for(world, expired(world.reserve()))
    monkeypatch.setattr(reaper, "write_pass", away)
    report = reap_all(world)
    assert [item.name for item in report.reaped] == [name.resource_id]
    assert "sign of life" in report.problems[0]


def test_a_dry_run_deletes_nothing(world: World) -> None:
    name = ask_for(world, expired(world.reserve()))
    calls = len(world.emulator.admin.calls("DeleteQueuedResource"))
    [item] = make_reaper(world, dry_run=True).reap().reaped
    assert (item.name, item.action) == (name.resource_id, "would delete")
    assert len(world.emulator.admin.calls("DeleteQueuedResource")) == calls
    reap_all(world)


def arguments(world: World, *words: str) -> list[str]:
    place = ["--store", world.store.root, "--project", world.emulator.project, "--owner", OWNER]
    return [*words, *place, "--endpoint", world.emulator.endpoint, "--insecure"]


def test_the_command_lists_and_reaps(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    name = ask_for(world, expired(world.reserve()))
    assert main(arguments(world, "list")) == 0
    assert name.resource_id in capsys.readouterr().out
    assert main(arguments(world, "reap", "--once", "--dry-run")) == 0
    assert json.loads(capsys.readouterr().out)["reaped"][0]["action"] == "would delete"
    assert world.backend.describe(name).exists
    reaped = subprocess.run(
        [sys.executable, "-m", "tpu_lifecycle", *arguments(world, "reap", "--once")],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(reaped.stdout)["reaped"][0]["name"] == name.resource_id
    wait_for(lambda: not world.backend.describe(name).exists)


def test_the_command_fails_when_it_could_not_look_everywhere(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.emulator.admin.fail_next("ListQueuedResources", code="PERMISSION_DENIED", message="no")
    assert main(arguments(world, "reap", "--once", "--zone", ZONE)) == 1
    assert "PROBLEM: zone" in capsys.readouterr().err


def test_the_command_tells_whether_the_reaper_lives(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    status = ["reaper-status", "--store", world.store.root, "--owner", OWNER]
    assert main(status) == 1
    assert "never made a pass" in capsys.readouterr().err
    assert main(arguments(world, "reap", "--once")) == 0, "nothing was ever rented"
    capsys.readouterr()
    assert main(status) == 0
    assert json.loads(capsys.readouterr().out)["format"] == "reaper-pass"
    assert main([*status, "--max-age-minutes", "0"]) == 1
    uris.write(world.store.reaper_pass(OWNER, world.emulator.project), b"not json")
    assert main(status) == 1
    assert "reaper-pass" in capsys.readouterr().err


def test_missing_credentials_are_told_without_a_traceback(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json")
    assert main(["list", "--store", world.store.root, "--project", "my-project"]) == 1
    assert "/nowhere/key.json" in capsys.readouterr().err


@pytest.mark.parametrize("command", [[], ["list"], ["reap"], ["reaper-status"]])
def test_every_command_explains_itself(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    assert "--store" in capsys.readouterr().out
