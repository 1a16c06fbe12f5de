"""Attacks by words that people and programs choose: in labels, in names of runs, in reasons."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest import mock

from corpus.labelled import labels
from corpus.labelled.problems import LabelError
from pipeline_alerts import messages, raising
from pipeline_alerts.causes import Cause
from pipeline_config import TaskConfig
from pipeline_store.layout import StoreLayout
from verification.attack_check.rows import Row, Tally

_LINE_ENDS = ("\n", "\r", "\r\n", "\x0b", "\x0c", "\x85", "\u2028", "\u2029", "\0", "\x1b[2J")
_MARKUP = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "</pre></p><a href='javascript:alert(1)'>",
    "{{ 7 * 7 }}{% raw %}",
    "<!channel> <@everyone>",
)
_WORDS = (
    *(f"a{end}Bcc: all@example.com{end}{end}body" for end in _LINE_ENDS),
    *_MARKUP,
    *(f"a{end}{markup}" for end in _LINE_ENDS[:3] for markup in _MARKUP),
)
_TAGS = {"html", "body", "h3", "p", "table", "tr", "td", "a", "pre"}


class _Tags(HTMLParser):
    """Collects the tags of a page, and where its links lead."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        self.links += [value or "" for name, value in attrs if name == "href"]


def mails(folder: Path, times: int) -> Tally:
    """Raise alerts about runs and other things whose names and reasons are hostile."""
    tally, store = Tally(), StoreLayout(str(folder))
    for number in range(times):
        word, link = _WORDS[number % len(_WORDS)], "http://airflow/runs"
        if number // len(_WORDS) % 2:
            run = raising.AlertedRun(word, f"{number}{word}")
            alert = raising.raise_about_run(store, run, Cause.RUN_FAILED, summary=word, reason=word)
        else:
            alert = raising.raise_about_installation(
                store,
                f"scope-{number}",
                Cause.RUN_FAILED,
                about=word,
                link=link,
                summary=word,
                reason=word,
            )
        if alert is None:
            tally.add(f"no alert: {word!r}")
            continue
        message = messages.compose(alert)
        tags = _Tags(message.html)
        tally.add(
            *([] if len(message.subject.splitlines()) == 1 else [f"lines: {message.subject!r}"]),
            *([f"tags: {sorted(tags.found - _TAGS)}"] if tags.found - _TAGS else []),
            *(f"a link to {where}" for where in tags.links if where != link),
        )
    return tally


@contextmanager
def _words_as_they_are() -> Iterator[None]:
    """Let words into subjects and pages as they are."""
    with (
        mock.patch.object(messages, "escape", lambda text: text),
        mock.patch.object(raising, "_title", lambda *parts: " ".join(parts)),
    ):
        yield


def hostile_labels(folder: Path, times: int) -> Tally:
    """Give examples labels of several lines: they are refused, and their words not repeated."""
    tally = Tally()
    kinds = (
        TaskConfig(),
        TaskConfig(kind="multi_label"),
    )
    for number in range(times):
        word = f"x{_WORDS[number % len(_WORDS)]}"
        task = kinds[number // len(_WORDS) % len(kinds)]
        try:
            found = labels.parse_label([word] if task.kind != "classification" else word, task)
        except LabelError as error:
            tally.add(*([f"quoted: {error}"] if word.strip() in str(error) else []))
        else:
            parts = found if isinstance(found, tuple) else (str(found),)
            tally.add(*(f"{part!r} is a label" for part in parts if not part.isprintable()))
    return tally


def _any_label() -> AbstractContextManager[Any]:
    """Take any text for a label."""
    return mock.patch.object(labels, "_word", str)


ROWS = (
    Row("hostile words in alert mails", mails, 2 * len(_WORDS), _words_as_they_are, len(_WORDS)),
    Row("hostile words as labels", hostile_labels, 2 * len(_WORDS), _any_label, len(_WORDS)),
)
