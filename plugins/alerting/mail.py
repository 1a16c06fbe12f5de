"""Sends mail with a plain text part and an HTML part, by the SMTP provider's notifier and hook."""

from __future__ import annotations

from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText
from functools import cached_property
from typing import Any

from airflow.providers.smtp.hooks.smtp import SmtpHook
from airflow.providers.smtp.notifications.smtp import SmtpNotifier


class LetterHook(SmtpHook):
    """A hook that sends the HTML as an alternative to plain text, for readers without HTML.

    :param text: the plain text.
    """

    def __init__(self, text: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._text = text

    def _build_mime_message(self, *args: Any, **kwargs: Any) -> tuple[MIMEMultipart, list[str]]:
        message, recipients = super()._build_mime_message(
            *args, **kwargs | {"mime_subtype": "alternative"}
        )
        html = message.get_payload()
        # Mail programs prefer the last alternative.
        message.set_payload([MIMEText(self._text, "plain", "utf-8"), *html])
        return message, recipients


class LetterNotifier(SmtpNotifier):
    """The provider's notifier, with plain text in addition to the HTML.

    :param text: the plain text.
    """

    def __init__(self, text: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._text = text

    @cached_property
    def hook(self) -> SmtpHook:
        """Return the hook that builds both parts."""
        return LetterHook(self._text, smtp_conn_id=self.smtp_conn_id, auth_type=self.auth_type)
