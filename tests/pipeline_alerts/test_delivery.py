"""Who is told, how often, and what happens when telling fails or a teller dies."""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipeline_alerts import delivery
from pipeline_alerts.causes import Cause
from pipeline_alerts.delivery import ChannelError, backlog, deliver, deliver_all
from pipeline_alerts.messages import Message
from pipeline_alerts.raising import AlertedRun, raise_about_installation, raise_about_run
from pipeline_store import uris
from pipeline_store.formats import Alert, AlertCleared, AlertDelivery, AlertSending
from pipeline_store.layout import StoreLayout
from tests.pipeline_store.stores import any_store, cloud_storage

__all__ = ["any_store", "cloud_storage"]

RUN = AlertedRun("Test.DAG", "manual__1")
PROCESSES = 4


@dataclass
class Recorder:
    """A channel that remembers what it was told to send."""

    conn_id: str = "mail"
    sent: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    is_down: bool = False
    tried: int = 0

    def send(self, message: Message) -> None:
        self.tried += 1
        if self.is_down:
            raise ChannelError("down")
        self.sent.append(message.key)
        self.texts.append(message.text)


@dataclass(frozen=True)
class Appender:
    """A channel that other processes can use: it appends to a file."""

    path: str
    conn_id: str = "mail"

    def send(self, message: Message) -> None:
        with open(self.path, "a") as file:
            file.write(f"{message.key}\n")


@pytest.fixture
def store(tmp_path: Path) -> StoreLayout:
    return StoreLayout(str(tmp_path / "store"))


def raised(store: StoreLayout, scope: str = "corpus") -> Alert:
    alert = raise_about_installation(
        store, scope, Cause.NOTHING_NEW, about="corpus", summary="quiet", reason="why"
    )
    assert alert is not None
    return alert


def raise_and_deliver(root: str, path: str) -> None:
    store = StoreLayout(root)
    raise_about_run(store, RUN, Cause.RUN_FAILED, summary="failed", reason="why")
    deliver_all(store, [Appender(path)])


def raise_and_die(root: str) -> None:
    """Send, and die before it can be noted."""

    class Dying(Recorder):
        def send(self, message: Message) -> None:
            os._exit(9)

    store = StoreLayout(root)
    deliver_all(store, [Dying()])


def test_an_alert_goes_through_every_channel_once(any_store: str) -> None:
    store = StoreLayout(any_store)
    raised(store)
    mail, chat = Recorder("mail"), Recorder("chat")
    for _ in range(3):
        assert deliver_all(store, [mail, chat]) == []
    assert mail.sent == chat.sent == ["corpus/nothing-new"]


def test_the_same_cause_of_the_same_run_is_one_alert(any_store: str) -> None:
    store = StoreLayout(any_store)
    first = raise_about_run(store, RUN, Cause.RUN_FAILED, summary="failed", reason="why")
    again = raise_about_run(store, RUN, Cause.RUN_FAILED, summary="failed", reason="other words")
    assert first is not None
    assert again is None
    other = raise_about_run(
        store, RUN, Cause.TASK_FAILED, detail="tpu.train", summary="failed", reason="why"
    )
    assert other is not None


@pytest.mark.parametrize("rounds", [1, pytest.param(3, marks=pytest.mark.thorough)])
def test_processes_that_find_the_same_at_once_tell_it_once(
    store: StoreLayout, tmp_path: Path, rounds: int
) -> None:
    told = tmp_path / "told"
    context = multiprocessing.get_context("spawn")
    for _ in range(rounds):
        workers = [
            context.Process(target=raise_and_deliver, args=(store.root, str(told)))
            for _ in range(PROCESSES)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
            assert worker.exitcode == 0
    assert told.read_text().splitlines() == [f"{RUN.key}/run-failed"]


def test_a_teller_that_dies_is_repeated_after_its_claim(
    store: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    alert = raised(store)
    worker = multiprocessing.get_context("spawn").Process(target=raise_and_die, args=(store.root,))
    worker.start()
    worker.join()
    assert worker.exitcode == 9
    mail = Recorder()
    # It may still be sending.
    assert deliver_all(store, [mail]) == []
    assert mail.sent == []
    uri = store.alert_sending(alert.scope, alert.cause, "mail")
    sending = AlertSending.load(uri)
    assert sending.until > datetime.now(UTC)
    sending.model_copy(update={"until": datetime.now(UTC), "sequence": 2}).write(uri)
    deliver_all(store, [mail])
    deliver_all(store, [mail])
    assert mail.sent == ["corpus/nothing-new"]


def test_a_channel_that_is_down_keeps_no_other_and_is_tried_again(store: StoreLayout) -> None:
    alert = raised(store)
    mail, chat = Recorder("mail", is_down=True), Recorder("chat")
    [problem] = deliver_all(store, [mail, chat])
    assert problem == "Alert corpus/nothing-new was not delivered through mail: down"
    assert chat.sent == ["corpus/nothing-new"]
    state = AlertSending.load(store.alert_sending(alert.scope, alert.cause, "mail"))
    assert (state.tries, state.error) == (1, "down")
    mail.is_down = False
    assert deliver_all(store, [mail, chat]) == []
    assert mail.sent == chat.sent


def test_one_alert_that_cannot_be_sent_keeps_no_other_for_ever(store: StoreLayout) -> None:
    class Picky(Recorder):
        def send(self, message: Message) -> None:
            if message.key.startswith("bad"):
                self.tried += 1
                raise ChannelError("refused")
            super().send(message)

    for scope in ("bad-1", "bad-2", "bad-3", "good"):
        raised(store, scope)
    mail = Picky()
    for _ in range(3):
        deliver_all(store, [mail])
    assert mail.sent == ["good/nothing-new"]


def test_a_channel_that_is_down_does_not_hold_up_the_pass(store: StoreLayout) -> None:
    for number in range(10):
        raised(store, f"scope-{number}")
    mail = Recorder(is_down=True)
    assert len(deliver_all(store, [mail])) == 2
    assert mail.tried == 2


def test_an_old_alert_is_given_up_and_said(
    store: StoreLayout, caplog: pytest.LogCaptureFixture
) -> None:
    alert = raised(store)
    old = alert.model_copy(update={"time": datetime.now(UTC) - timedelta(days=8)})
    old.write(store.alert(alert.scope, alert.cause))
    mail = Recorder()
    assert deliver_all(store, [mail]) == []
    assert mail.sent == []
    assert "is given up: [repretraining] corpus: quiet" in caplog.text
    done = AlertDelivery.load(store.alert_delivery(alert.scope, alert.cause, "mail"))
    assert done.given_up
    assert backlog(store, ["mail"]).pending == {"mail": []}


def test_what_was_delivered_is_not_read(
    store: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised(store)
    deliver_all(store, [Recorder()])
    monkeypatch.setattr(Alert, "load", lambda uri: pytest.fail(f"read {uri}"))
    assert deliver_all(store, [Recorder()]) == []


def test_a_damaged_alert_is_named_and_keeps_no_other(store: StoreLayout) -> None:
    raised(store, "one")
    uris.write(store.alert("two", "overdue"), b"{")
    mail = Recorder()
    [problem] = deliver_all(store, [mail])
    assert store.alert("two", "overdue") in problem
    assert mail.sent == ["one/nothing-new"]


def test_a_claim_that_cannot_be_read_is_replaced(store: StoreLayout) -> None:
    alert = raised(store)
    uris.write(store.alert_sending(alert.scope, alert.cause, "mail"), b"{")
    mail = Recorder()
    assert deliver(store, alert, mail) is None
    assert mail.sent


def test_nobody_else_sends_while_somebody_does(store: StoreLayout) -> None:
    alert = raised(store)
    other = Recorder()

    class Slow(Recorder):
        def send(self, message: Message) -> None:
            deliver(store, alert, other)
            super().send(message)

    slow = Slow()
    deliver(store, alert, slow)
    deliver(store, alert, other)
    assert len(slow.sent) == 1
    assert other.sent == []
    assert timedelta(0) < delivery.CLAIM < timedelta(minutes=5)


def test_what_has_cleared_before_it_was_sent_says_so(store: StoreLayout) -> None:
    alert = raised(store)
    place = store.alert_cleared(alert.scope, alert.cause)
    AlertCleared(time=datetime(2026, 1, 2, tzinfo=UTC)).create(place)
    mail = Recorder()
    assert deliver_all(store, [mail]) == []
    assert "Cleared: 2026-01-02 00:00:00 UTC" in mail.texts[0]


def test_a_damaged_clearance_holds_no_alert_back(store: StoreLayout) -> None:
    alert = raised(store)
    uris.write(store.alert_cleared(alert.scope, alert.cause), b"{")
    mail = Recorder()
    assert deliver_all(store, [mail]) == []
    assert len(mail.sent) == 1
