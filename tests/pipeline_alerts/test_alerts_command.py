"""The command line, as people type it."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipeline_alerts.delivery import deliver_all
from pipeline_store.formats import AlertCleared, WatchPass
from pipeline_store.layout import StoreLayout
from tests.pipeline_alerts.test_delivery import Recorder, raised


@pytest.fixture
def store(tmp_path: Path) -> StoreLayout:
    (tmp_path / "store").mkdir()
    return StoreLayout(str(tmp_path / "store"))


def run(store: StoreLayout, *words: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "pipeline_alerts", *words, "--store", store.root]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_list_and_show_say_who_has_what(store: StoreLayout) -> None:
    raised(store)
    deliver_all(store, [Recorder("mail"), Recorder("chat", is_down=True)])
    code, listed, _ = run(store, "list")
    assert code == 0
    assert "corpus  nothing-new  [repretraining] corpus: quiet" in listed
    assert "mail: delivered" in listed
    assert "chat: not delivered after 1 tries: down" in listed
    code, shown, _ = run(store, "show", "corpus")
    assert code == 0
    assert "Runbook: docs/operate/alerts.md#nothing-new" in shown
    code, printed, _ = run(store, "list", "--json")
    assert code == 0
    [alert] = json.loads(printed)
    assert alert["id"] == "corpus/nothing-new"
    assert set(alert["deliveries"]) == {"mail", "chat"}


def test_show_of_nothing_says_so(store: StoreLayout) -> None:
    code, _, said = run(store, "show", "0a1b2c3d4e5f")
    assert code == 1
    assert "no alert about 0a1b2c3d4e5f" in said


def test_a_test_alert_is_delivered_by_the_next_pass(store: StoreLayout) -> None:
    assert run(store, "test")[0] == 0
    mail = Recorder()
    deliver_all(store, [mail])
    [key] = mail.sent
    assert key.endswith("/test")


def test_watch_status_tells_whether_the_watch_looks(store: StoreLayout) -> None:
    code, _, said = run(store, "watch-status")
    assert code == 1
    assert "never made a pass" in said
    now = datetime.now(UTC)
    last = WatchPass(unbroken_since=now, finished=now, host="h", open_runs=0, problems=[])
    last.write(store.watch_pass)
    code, printed, _ = run(store, "watch-status")
    assert code == 0
    assert json.loads(printed)["findings"] == []
    old = last.model_copy(update={"finished": now - timedelta(hours=1)})
    old.write(store.watch_pass)
    code, printed, said = run(store, "watch-status")
    assert code == 1
    assert "60 minutes old" in said
    assert [one["cause"] for one in json.loads(printed)["findings"]] == ["watch-silent"]


def test_what_is_over_says_so(store: StoreLayout) -> None:
    alert = raised(store)
    assert "cleared" not in run(store, "list")[1]
    cleared = AlertCleared(time=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    cleared.create(store.alert_cleared(alert.scope, alert.cause))
    assert "cleared 2026-01-02 03:04:05 UTC" in run(store, "list")[1]
    assert "Cleared: 2026-01-02 03:04:05 UTC" in run(store, "show", alert.scope)[1]
    [printed] = json.loads(run(store, "list", "--json")[1])
    assert printed["cleared"] == "2026-01-02T03:04:05Z"
