"""The part of the watch that works without Airflow: what it finds, says and leaves alone."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from model_registry import outcomes
from model_registry.finetuning_plans import make_rentals
from pipeline_alerts.outside import Outside, OutsideReport
from pipeline_store import uris
from pipeline_store.formats import Alert, AttemptEvent, OutcomeKind, WatchPass
from pipeline_store.layout import StoreLayout
from tests.pipeline_alerts import situations
from tests.pipeline_alerts.phases import TRAIN, Phase
from tests.pipeline_alerts.situations import PATIENCE, link_of, look, record_of


@pytest.fixture
def store(tmp_path: Path) -> StoreLayout:
    store = StoreLayout(str(tmp_path / "store"))
    situations.reaper_passed(store, hours_ago=0)
    situations.watched_for(store, hours=1)
    return store


def look_from_outside(store: StoreLayout) -> OutsideReport:
    return Outside(store, PATIENCE, timedelta(minutes=30), link_of).look()


def passed(store: StoreLayout, minutes_ago: float, problems: list[str] | None = None) -> None:
    """Let the watch in Airflow have made its last pass."""
    last = WatchPass.load(store.watch_pass)
    finished = datetime.now(UTC) - timedelta(minutes=minutes_ago)
    update = {"finished": finished, "problems": problems or []}
    last.model_copy(update=update).write(store.watch_pass)


def idle(store: StoreLayout) -> Phase:
    """Return a run whose job has ended, and of which nothing goes on."""
    phase = Phase.of(store)
    record = phase.ready()
    phase.give_job(record)
    phase.end_job(record)
    return phase


def ids(report: OutsideReport) -> list[str]:
    return sorted(name.partition(".")[0] for _, name in report.found)


def test_all_is_well(store: StoreLayout, capsys: pytest.CaptureFixture[str]) -> None:
    Phase.of(store)
    report = look_from_outside(store)
    assert report.conclude() == 0
    printed, said = capsys.readouterr()
    content = json.loads(printed)
    assert content["findings"] == content["cleared"] == content["problems"] == []
    assert content["watch"]["host"] == "host"
    assert said == ""


def test_what_stands_still_is_raised_said_and_clears(
    store: StoreLayout, capsys: pytest.CaptureFixture[str]
) -> None:
    phase = idle(store)
    key = record_of(phase.run).run_key
    with phase.after(40):
        report = look_from_outside(store)
        assert ids(report) == ["run-stalled", "tpu-without-job"]
        assert [alert.link for alert in report.raised] == [
            link_of(alert.dag_id or "", alert.run_id or "") for alert in report.raised
        ]
        assert report.conclude() == 1
        printed, said = capsys.readouterr()
        found = json.loads(printed)["findings"]
        assert [one["cause"] for one in found] == ["run-stalled", "tpu-without-job"]
        assert all(one["is_new"] and one["id"].startswith(f"{key}/") for one in found)
        assert said.startswith(f"{key}: no progress since ")
        assert "a TPU is rented without a job since" in said
        again = look_from_outside(store)
        # It is so, though nothing of it is new.
        assert (again.raised, again.conclude()) == ([], 1)
        capsys.readouterr()
        record = phase.attempts()[0]
        phase.beat(record, TRAIN)
        report = look_from_outside(store)
        assert (ids(report), len(report.cleared), report.conclude()) == ([], 2, 0)
    assert "has cleared" in capsys.readouterr().err


def test_the_watch_and_the_outside_find_the_same(store: StoreLayout) -> None:
    phase = idle(store)
    with phase.after(40):
        first = look_from_outside(store)
        assert look(store, overdue=timedelta(days=9)).raised == []
        assert {(alert.scope, alert.cause) for alert in first.raised} == set(first.found)


def test_a_silent_watch_is_told_for_each_silence(store: StoreLayout) -> None:
    passed(store, minutes_ago=31)
    [alert] = look_from_outside(store).raised
    assert alert.cause == "watch-silent"
    assert "31 minutes old" in alert.reason
    assert look_from_outside(store).raised == []
    passed(store, minutes_ago=0)
    assert look_from_outside(store).cleared == [alert]
    passed(store, minutes_ago=45)
    assert [one.cause for one in look_from_outside(store).raised] == ["watch-silent"]


def test_the_watch_itself_clears_that_it_was_silent(store: StoreLayout) -> None:
    passed(store, minutes_ago=90)
    [alert] = look_from_outside(store).raised
    assert look(store).cleared == [alert]


def test_a_watch_that_never_looked_or_had_problems_is_said_and_no_alert(tmp_path: Path) -> None:
    store = StoreLayout(str(tmp_path / "store"))
    report = look_from_outside(store)
    assert "never made a pass" in report.problems[0]
    assert (report.raised, report.conclude()) == ([], 1)
    situations.watched_for(store, hours=1)
    passed(store, minutes_ago=1, problems=["a run cannot be read"])
    report = look_from_outside(store)
    assert report.problems == ["The watch's last pass: a run cannot be read"]
    assert report.conclude() == 1


def test_a_pause_is_left_to_the_watch(store: StoreLayout) -> None:
    phase = Phase.of(store)
    phase.ready()
    [alert] = look(store, is_paused=lambda _dag_id: True).raised
    assert look_from_outside(store).cleared == []
    assert not uris.exists(store.alert_cleared(alert.scope, alert.cause))


def test_the_tpu_of_a_run_that_has_ended_is_found_until_it_is_gone(store: StoreLayout) -> None:
    phase = idle(store)
    with phase.after(40):
        look_from_outside(store)
        outcomes.record(phase.run, OutcomeKind.FAILED, "it broke", written_by="release")
        for _ in range(2):
            report = look_from_outside(store)
            assert ids(report) == ["tpu-without-job"]
            look(store)
        phase.attempts()[0].mark(AttemptEvent.GONE)
        report = look_from_outside(store)
        assert ids(report) == []
        assert [alert.cause.partition(".")[0] for alert in report.cleared] == ["tpu-without-job"]


def test_one_damaged_file_hides_no_other_run(store: StoreLayout) -> None:
    phase, broken = idle(store), Phase.of(store)
    with phase.after(40):
        broken.reserve()
        look_from_outside(store)
        uris.write(broken.run.record, b"{")
        uris.write(store.watch_pass, b"{")
        report = look_from_outside(store)
    assert ids(report) == ["run-stalled", "tpu-without-job"]
    assert len(report.problems) == 2
    assert report.cleared == []


def test_the_folder_of_a_further_tpu_is_no_run(store: StoreLayout) -> None:
    phase = Phase.of(store)
    make_rentals(store, phase.run, 2)
    phase.reserve()
    with phase.after(40):
        alerts: list[Alert] = look_from_outside(store).raised
    assert [alert.scope for alert in alerts] == [record_of(phase.run).run_key]


def test_a_store_that_is_away_is_a_problem_and_clears_nothing(
    store: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    phase = idle(store)
    with phase.after(40):
        look_from_outside(store)

    def away(*_: object) -> None:
        raise OSError("the store is away")

    monkeypatch.setattr(uris, "list_named", away)
    report = look_from_outside(store)
    assert report.problems == ["the runs: OSError: the store is away"]
    assert (report.cleared, report.conclude()) == ([], 1)
