"""Mail with a text beside the HTML, through the SMTP provider's own notifier and hook."""

from __future__ import annotations

from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText
from functools import cached_property
from typing import Any

from airflow.providers.smtp.hooks.smtp import SmtpHook
from airflow.providers.smtp.notifications.smtp import SmtpNotifier


class LetterHook(SmtpHook):
    """Sends the HTML as an alternative to a text, for readers that show no HTML.

    :param text: the text.
    """

    def __init__(self, text: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._text = text

    def _build_mime_message(self, *args: Any, **kwargs: Any) -> tuple[MIMEMultipart, list[str]]:
        message, recipients = super()._build_mime_message(
            *args, **kwargs | {"mime_subtype": "alternative"}
        )
        html = message.get_payload()
        # Of alternatives the last is the best one.
        message.set_payload([MIMEText(self._text, "plain", "utf-8"), *html])
        return message, recipients


class LetterNotifier(SmtpNotifier):
    """The provider's notifier, with a text beside the HTML.

    :param text: the text.
    """

    def __init__(self, text: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._text = text

    @cached_property
    def hook(self) -> SmtpHook:
        """Return the hook that makes both parts."""
        return LetterHook(self._text, smtp_conn_id=self.smtp_conn_id, auth_type=self.auth_type)
