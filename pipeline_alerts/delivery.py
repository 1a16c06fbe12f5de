"""Delivers alerts at least once through each channel, and exactly once unless a sender dies.

A sender first claims the delivery in the store (``….sending.json``, by compare-and-set), then
sends, then creates ``….delivered.json``. If it dies before the last step, a pass after the end of
its claim sends again: that one message may arrive twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from pipeline_alerts.messages import Message, compose
from pipeline_config.settings import load_settings
from pipeline_store import uris
from pipeline_store.formats import Alert, AlertCleared, AlertDelivery, AlertSending, FormatError
from pipeline_store.layout import StoreLayout

log = logging.getLogger(__name__)

CLAIM = timedelta(minutes=4)
"""Duration of a sender's claim: longer than a channel takes to fail, shorter than the watch's
interval."""

KEEP_TRYING = timedelta(days=7)
"""Age after which an alert is no longer sent."""

MAX_FAILURES_IN_A_ROW = 2
"""Failures in a row after which a channel counts as down and is skipped until the next pass."""

_NOT_ALERTS = (
    ".cleared.json",
    ".delivered.json",
    ".sending.json",
    "/renting.json",
    "/watched.json",
)


class ChannelError(RuntimeError):
    """A failed delivery through a channel. The message holds no secret of its connection."""


class Channel(Protocol):
    """A channel through which alerts are sent."""

    @property
    def conn_id(self) -> str:
        """Return the connection's name, which identifies the channel's files."""
        ...

    def send(self, message: Message) -> None:
        """Send the message, and return when the receiving server has accepted it.

        :raises ChannelError: the server did not accept it.
        """
        ...


@dataclass(frozen=True)
class Failure:
    """The failure of one channel to deliver one alert."""

    conn_id: str
    alert: Alert
    error: str

    def __str__(self) -> str:
        key = f"{self.alert.scope}/{self.alert.cause}"
        return f"Alert {key} was not delivered through {self.conn_id}: {self.error}"


@dataclass(frozen=True)
class Backlog:
    """The alerts that are to be delivered.

    :ivar pending: undelivered alerts by connection, those with the fewest attempts first.
    :ivar unreadable: alert files that cannot be read, with the error.
    """

    pending: dict[str, list[Alert]]
    unreadable: list[str]


def list_alerts(store: StoreLayout) -> list[str]:
    """Return the URIs of all alerts."""
    return [uri for uri in uris.list_files(store.alerts) if is_alert(store, uri)]


def clearance(store: StoreLayout, alert: Alert) -> AlertCleared | None:
    """Return the record that an alert has cleared; None: it has not, or the record is damaged.

    A damaged record does not keep the alert from being delivered.
    """
    try:
        return AlertCleared.load_or_none(store.alert_cleared(alert.scope, alert.cause))
    except FormatError as error:
        key = f"{alert.scope}/{alert.cause}"
        log.warning("Alert %s is told as if it had not cleared: %s", key, error)
        return None


def backlog(store: StoreLayout, conn_ids: Sequence[str]) -> Backlog:
    """Return the undelivered alerts of each connection, by one listing and reads of only those."""
    found = uris.list_files(store.alerts)
    files, unreadable = set(found), []
    pending: dict[str, list[Alert]] = {conn_id: [] for conn_id in conn_ids}
    for uri in found:
        if not is_alert(store, uri):
            continue
        missing = [c for c in conn_ids if _delivered_beside(uri, c) not in files]
        if not missing:
            continue
        try:
            alert = Alert.load(uri)
        except (OSError, FormatError) as error:
            unreadable.append(f"An alert cannot be read, nobody is told of it: {error}")
            continue
        for conn_id in missing:
            pending[conn_id].append(alert)
    for conn_id, alerts in pending.items():
        alerts.sort(key=lambda alert: (_tries(store, alert, conn_id), alert.time))
    return Backlog(pending, unreadable)


def deliver_all(store: StoreLayout, channels: Sequence[Channel]) -> list[str]:
    """Send all pending alerts; return the problems, one line each.

    Channels fail independently of each other. Alerts older than :data:`KEEP_TRYING` are not sent.
    """
    waiting = backlog(store, [channel.conn_id for channel in channels])
    problems = list(waiting.unreadable)
    for channel in channels:
        problems += map(str, _deliver_through(store, channel, waiting.pending[channel.conn_id]))
    return problems


def _deliver_through(
    store: StoreLayout, channel: Channel, alerts: Sequence[Alert]
) -> Iterator[Failure]:
    in_a_row = 0
    for alert in alerts:
        failure = deliver(store, alert, channel)
        in_a_row = in_a_row + 1 if failure else 0
        if failure:
            yield failure
        if in_a_row == MAX_FAILURES_IN_A_ROW:
            return


def deliver(store: StoreLayout, alert: Alert, channel: Channel) -> Failure | None:
    """Send one alert through one channel unless it was sent or another sender has claimed it."""
    done = store.alert_delivery(alert.scope, alert.cause, channel.conn_id)
    if datetime.now(UTC) - alert.time > KEEP_TRYING:
        _give_up(done, alert, channel)
        return None
    claim = _Claim.take(store.alert_sending(alert.scope, alert.cause, channel.conn_id))
    if claim is None or uris.exists(done):
        return None
    try:
        known = clearance(store, alert)
        channel.send(compose(alert, known, docs_url=load_settings().docs_url))
    except ChannelError as error:
        claim.failed(str(error))
        return Failure(channel.conn_id, alert, str(error))
    AlertDelivery(time=datetime.now(UTC)).create(done)
    log.info("Alert %s/%s: delivered through %s", alert.scope, alert.cause, channel.conn_id)
    return None


def _give_up(done: str, alert: Alert, channel: Channel) -> None:
    reason = f"not delivered within {KEEP_TRYING.days} days"
    if AlertDelivery(time=datetime.now(UTC), given_up=reason).create(done):
        log.error(
            "Alert %s/%s was %s through %s and is given up: %s",
            *(alert.scope, alert.cause, reason, channel.conn_id, alert.title),
        )


@dataclass(frozen=True)
class _Claim:
    """The right to send one alert through one channel, for a limited time."""

    uri: str
    state: AlertSending
    version: str

    @classmethod
    def take(cls, uri: str) -> _Claim | None:
        """Return the claim, or None while another sender has it."""
        now = datetime.now(UTC)
        found = uris.read_versioned(uri)
        before = _parsed(found[0], uri) if found else None
        if before is not None and before.until > now:
            return None
        state = AlertSending(
            sequence=before.sequence + 1 if before else 1,
            tries=before.tries + 1 if before else 1,
            until=now + CLAIM,
        )
        try:
            version = uris.compare_and_set(uri, state.to_bytes(), found[1] if found else None)
        except uris.VersionConflictError:
            return None
        return cls(uri, state, version)

    def failed(self, error: str) -> None:
        """Release the claim, and record the error."""
        now = datetime.now(UTC)
        update = {"sequence": self.state.sequence + 1, "until": now, "error": error}
        state = self.state.model_copy(update=update)
        try:
            uris.compare_and_set(self.uri, state.to_bytes(), self.version)
        except uris.VersionConflictError:
            # Sending took longer than the claim, and another sender has claimed it.
            return


def _parsed(data: bytes, uri: str) -> AlertSending | None:
    try:
        return AlertSending.parse(data, uri)
    except FormatError:
        return None  # a damaged file is replaced


def _tries(store: StoreLayout, alert: Alert, conn_id: str) -> int:
    uri = store.alert_sending(alert.scope, alert.cause, conn_id)
    state = _parsed(data, uri) if (data := uris.read_or_none(uri)) is not None else None
    return state.tries if state else 0


def is_alert(store: StoreLayout, uri: str) -> bool:
    """Return whether a file of the alerts' folder is an alert."""
    inside = uris.for_library(uri).removeprefix(uris.for_library(store.alerts)).strip("/")
    return inside.count("/") == 1 and uri.endswith(".json") and not uri.endswith(_NOT_ALERTS)


def _delivered_beside(uri: str, conn_id: str) -> str:
    return f"{uri.removesuffix('.json')}.{conn_id}.delivered.json"
