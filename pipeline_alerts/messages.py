"""Composes alerts for people and programs: subject, text, HTML, JSON and Slack blocks."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

from pipeline_alerts.causes import (
    SEVERITY_IN_WORDS,
    advice,
    base_cause,
    detail,
    runbook,
    severity,
)
from pipeline_alerts.errors import error_section
from pipeline_store.formats import Alert, AlertCleared

SCHEMA = "bert-repretraining-alert"
SCHEMA_VERSION = 1

SLACK_CHARACTERS = 2900
"""Most characters of a block's text; Slack refuses more than 3000."""

SLACK_HEADER_CHARACTERS = 150
"""Most characters of a header; Slack refuses more."""


ERROR = "Error"
"""Name of the fact that links to the explanation of the error in the reason."""


@dataclass(frozen=True)
class Message:
    """One alert in every form.

    :ivar key: the same for each delivery of an alert, so that a receiver can detect repetitions.
    """

    key: str
    subject: str
    text: str
    html: str
    payload: dict[str, Any]
    blocks: list[dict[str, Any]]


def compose(alert: Alert, cleared: AlertCleared | None = None, *, docs_url: str = "") -> Message:
    """Return an alert in every form in which a channel may send it.

    :param cleared: record that its cause is gone already.
    :param docs_url: see :func:`pipeline_alerts.causes.runbook`.
    """
    guide = runbook(alert.cause, docs_url)
    facts = _facts(alert, cleared, guide)
    if error := error_section(alert.reason, docs_url):
        facts.append((ERROR, error))
    return Message(
        key=f"{alert.scope}/{alert.cause}",
        subject=alert.title,
        text=_text(alert, facts),
        html=_html(alert, facts),
        payload=_payload(alert, cleared, guide),
        blocks=_blocks(alert, facts),
    )


def _facts(alert: Alert, cleared: AlertCleared | None, guide: str) -> list[tuple[str, str]]:
    """Return the known facts, as pairs of name and value; unknown ones are left out."""
    pairs = [
        ("Cause", alert.cause),
        ("Severity", SEVERITY_IN_WORDS[severity(alert.cause)]),
        ("Run", f"{alert.dag_id} {alert.run_id}" if alert.run_id else ""),
        ("Partition", alert.partition or ""),
        ("Lineage", alert.lineage_id or ""),
        ("Time", f"{alert.time:%F %T} UTC"),
        ("Cleared", f"{cleared.time:%F %T} UTC" if cleared else ""),
    ]
    if alert.run_id:
        pairs += [("Spent so far", _spent(alert)), ("TPUs", _tpus(alert))]
    pairs += [("Log", alert.log_place or ""), ("Run folder", _folder(alert))]
    pairs += [("What to do", advice(alert.cause, alert.remedy)), ("Runbook", guide)]
    return [(name, value) for name, value in pairs if value]


def _spent(alert: Alert) -> str:
    if alert.spent is None:
        return "nothing: no TPU was asked for"
    spent = alert.spent
    return f"at most {spent.cost:.2f} {spent.currency}, {spent.chip_hours:.2f} chip-hours"


def _tpus(alert: Alert) -> str:
    left = "; ".join(f"{tpu.name} in {tpu.zone}: {tpu.state}" for tpu in alert.tpus)
    return left or "none that is not confirmed gone"


def _folder(alert: Alert) -> str:
    return f"runs/{alert.scope} of the store" if alert.run_id else ""


def _log_lines(alert: Alert) -> list[str]:
    if alert.log_lines:
        return alert.log_lines
    if alert.log_place is None:
        return []
    return ["(not quoted: corpus text can occur in log lines; see Log above)"]


def _text(alert: Alert, facts: list[tuple[str, str]]) -> str:
    lines = [alert.title, "", alert.reason, ""]
    lines += [f"{name}: {value}" for name, value in facts]
    if alert.link:
        lines += ["", f"Open in Airflow: {alert.link}"]
    if quoted := _log_lines(alert):
        lines += ["", "Last log lines:", *(f"  {line}" for line in quoted)]
    return "\n".join(lines) + "\n"


def _shown(name: str, value: str) -> str:
    """Return a fact as HTML; only addresses of our own pages become links."""
    if name in ("Runbook", ERROR) and value.startswith(("https://", "http://")):
        return f'<a href="{escape(value)}">{escape(value)}</a>'
    return escape(value)


def _html(alert: Alert, facts: list[tuple[str, str]]) -> str:
    rows = "".join(
        '<tr><td style="padding:2px 12px 2px 0;color:#666;vertical-align:top">'
        f"{escape(name)}</td><td>{_shown(name, value)}</td></tr>"
        for name, value in facts
    )
    parts = [
        '<html><body style="font-family:sans-serif;font-size:14px">',
        f"<h3>{escape(alert.title)}</h3>",
        f'<p style="white-space:pre-wrap">{escape(alert.reason)}</p>',
        f"<table>{rows}</table>",
    ]
    if alert.link:
        parts.append(f'<p><a href="{escape(alert.link)}">Open in Airflow</a></p>')
    if quoted := _log_lines(alert):
        lines = escape("\n".join(quoted))
        parts.append(f'<p>Last log lines</p><pre style="font-size:12px">{lines}</pre>')
    return "".join([*parts, "</body></html>"])


def _payload(alert: Alert, cleared: AlertCleared | None, guide: str) -> dict[str, Any]:
    fields = alert.model_dump(mode="json", exclude={"scope", "cause"})
    cause = base_cause(alert.cause)
    head = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION}
    kind = {
        "id": f"{alert.scope}/{alert.cause}",
        "cause": str(cause),
        "severity": str(severity(cause)),
        "detail": detail(alert.cause),
        "scope": alert.scope,
    }
    help_ = {"advice": advice(alert.cause, alert.remedy), "runbook": guide}
    over = {"cleared": cleared.model_dump(mode="json")["time"] if cleared else None}
    return head | kind | fields | over | help_


def _blocks(alert: Alert, facts: list[tuple[str, str]]) -> list[dict[str, Any]]:
    title = _shortened(alert.title, SLACK_HEADER_CHARACTERS)
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": title}},
        _section(alert.reason),
        _section("\n".join(f"{name}: {value}" for name, value in facts)),
    ]
    if quoted := _log_lines(alert):
        blocks.append(_section("\n".join(quoted)))
    if alert.link:
        # The only block with Slack's markup: its text is written here.
        link = {"type": "mrkdwn", "text": f"<{_slack_escaped(alert.link)}|Open in Airflow>"}
        blocks.append({"type": "section", "text": link})
    return blocks


def _section(text: str) -> dict[str, Any]:
    # plain_text: nothing in it is interpreted as markup, a link or a mention.
    shown = _shortened(text, SLACK_CHARACTERS)
    return {"type": "section", "text": {"type": "plain_text", "text": shown, "emoji": False}}


def _slack_escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("|", "%7C")


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 2]} …"
