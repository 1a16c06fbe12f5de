"""Channels for alerts: Airflow connections, used through the code of their providers.

| type of connection | sent by | where to |
|---|---|---|
| ``smtp`` | ``SmtpNotifier`` | the addresses in the extra field ``to`` |
| ``slackwebhook`` | ``SlackWebhookNotifier`` | the channel that the webhook belongs to |
| ``http`` | ``HttpHook`` | POST of a JSON object to the connection's host |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

from airflow.sdk import BaseHook, Connection
from airflow.sdk.log import mask_secret

from pipeline_alerts.delivery import ChannelError
from pipeline_alerts.messages import Message

TIMEOUT_SECONDS = 20
"""How long to wait for an answer, unless the connection's extra field ``timeout`` is set."""

MAX_ERROR = 500
"""Most characters of an error that are kept."""

_LEAST_SECRET = 4
"""Fewest characters of a secret that is masked; shorter ones would mask words of the error."""

_LEAST_TOKEN = 16
"""Fewest characters of a masked part of an address; shorter ones would mask words in all logs."""


@dataclass(frozen=True)
class ConnectionChannel:
    """A channel that sends through one Airflow connection, which it looks up on each use.

    A connection that is missing or of the wrong type therefore fails alone.
    """

    conn_id: str

    def send(self, message: Message) -> None:
        """Send the message, and return when the receiving server has accepted it.

        :raises ChannelError: the server did not accept it; the text holds none of the connection's
            secrets.
        """
        secrets: list[str] = []
        try:
            connection = BaseHook.get_connection(self.conn_id)
            secrets = list(_secrets(connection))
            for token in _tokens(connection):
                # Airflow masks passwords and the like by itself, but not addresses.
                mask_secret(token)
            _sender(connection)(connection, message)
        except Exception as error:  # noqa: BLE001 - each provider has errors of its own
            # Without its cause: the provider's exception may quote the secret.
            raise ChannelError(_redacted(f"{type(error).__name__}: {error}", secrets)) from None


def _sender(connection: Any) -> Callable[[Any, Message], None]:
    senders = {"smtp": _send_mail, "slackwebhook": _send_slack, "http": _send_http}
    if connection.conn_type not in senders:
        raise ChannelError(
            f"Connection {connection.conn_id!r} is of type {connection.conn_type!r}; alerts go to "
            f"{', '.join(senders)}. Change it, or REPRETRAIN_ALERT_CONN_IDS."
        )
    return senders[connection.conn_type]


# Messages may quote logs. Notifiers are used through `notify` and not called: a call would render
# the text as a template, and so execute what stands in it.


def _send_mail(connection: Connection, message: Message) -> None:
    from alerting.mail import LetterNotifier

    extra = connection.extra_dejson
    for name in ("to", "from_email"):
        if not extra.get(name):
            raise ChannelError(
                f"Connection {connection.conn_id!r} has no {name!r} in its extra fields; alerts "
                "need both from_email and to, an address or several with commas."
            )
    # A mail that is sent twice has the same id, so mail programs show it once.
    unique = re.sub(r"[^A-Za-z0-9.-]", "-", message.key)
    LetterNotifier(
        text=message.text,
        smtp_conn_id=connection.conn_id,
        from_email=extra["from_email"],
        to=extra["to"],
        subject=message.subject,
        html_content=message.html,
        custom_headers={"Message-ID": f"<{unique}@bert-repretraining.invalid>"},
        auth_type=extra.get("auth_type", "basic"),
    ).notify({})


def _send_slack(connection: Connection, message: Message) -> None:
    from airflow.providers.slack.notifications.slack_webhook import SlackWebhookNotifier

    SlackWebhookNotifier(
        slack_webhook_conn_id=connection.conn_id,
        text=message.subject,
        blocks=message.blocks,
        unfurl_links=False,
        timeout=int(connection.extra_dejson.get("timeout", TIMEOUT_SECONDS)),
    ).notify({})


def _send_http(connection: Connection, message: Message) -> None:
    from airflow.providers.http.hooks.http import HttpHook

    # A redirected POST becomes a GET, which delivers nothing.
    options: dict[str, Any] = {"allow_redirects": False}
    if "timeout" not in connection.extra_dejson:
        options["timeout"] = TIMEOUT_SECONDS
    answer = HttpHook(method="POST", http_conn_id=connection.conn_id).run(
        json=message.payload,
        headers={"Idempotency-Key": message.key},
        extra_options=options,
    )
    if not 200 <= answer.status_code < 300:
        raise ChannelError(f"{answer.status_code}: {answer.reason}; an alert needs a status 2xx")


def _addresses(connection: Connection) -> Iterator[SplitResult]:
    for address in (connection.host or "", connection.password or ""):
        if "://" in address:
            yield urlsplit(address)


def _tokens(connection: Connection) -> Iterator[str]:
    """Yield the parts of a connection's addresses that are long enough to be a webhook key."""
    for address in _addresses(connection):
        parts = [*address.path.split("/"), address.query, address.password or ""]
        yield from (part for part in parts if len(part) >= _LEAST_TOKEN)


def _secrets(connection: Connection) -> Iterator[str]:
    """Yield the secrets of a connection, longest first."""
    found = {connection.password or ""}
    for address in _addresses(connection):
        found |= {address.path, address.path.strip("/"), address.query, address.password or ""}
    found |= {str(value) for value in connection.extra_dejson.values() if isinstance(value, str)}
    # Neither mail addresses nor the authentication type are secret, and errors name them.
    extra = connection.extra_dejson
    found -= {str(extra.get(name)) for name in ("to", "from_email", "auth_type", "ssl_context")}
    yield from sorted((s for s in found if len(s) >= _LEAST_SECRET), key=len, reverse=True)


def _redacted(text: str, secrets: list[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text[:MAX_ERROR]
