"""Attacks by text that people and programs choose: in labels, run names and reasons."""

from __future__ import annotations

import json
import os
import shutil
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest import mock

from alerting import channels
from corpus.labelled import labels
from corpus.labelled.labels import LabelError
from pipeline_alerts import messages, raising
from pipeline_alerts.causes import Cause
from pipeline_config import TaskConfig
from pipeline_store import uris
from pipeline_store.formats import EncoderSource, FinetuningPlan, TaskManifest, TaskSplit
from pipeline_store.layout import StoreLayout
from trained_models.downstream import page, report
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
_SECRET_PLACES: tuple[dict[str, str], ...] = (
    {"password": "{}"},
    {"extra": '{{"token": "{}"}}'},
    {"host": "https://hooks.example.com/services/{}"},
    {"host": "https://hooks.example.com/in?key={}"},
    {"host": "https://ada:{}@hooks.example.com/in"},
    {"password": "https://hooks.example.com/services/{}"},
)
"""Places of a connection's secret."""
_TAGS = {"html", "body", "h3", "p", "table", "tr", "td", "a", "pre"}


class _Tags(HTMLParser):
    """Collects the tags of a page, and the targets of its links."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        self.links += [value or "" for name, value in attrs if name == "href"]


def mails(folder: Path, times: int) -> Tally:
    """Raise alerts about runs and other scopes with hostile names and reasons."""
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
    """Write text into subjects and pages unescaped."""
    with (
        mock.patch.object(messages, "escape", lambda text: text),
        mock.patch.object(raising, "_title", lambda *parts: " ".join(parts)),
    ):
        yield


def secrets(_: Path, times: int) -> Tally:
    """Let an alert channel fail with an error that quotes its connection."""
    tally = Tally()
    for number in range(times):
        secret = f"zq7{'secret' * 4}{number}"
        place = _SECRET_PLACES[number % len(_SECRET_PLACES)]
        content = {"conn_type": "http", **{key: v.format(secret) for key, v in place.items()}}

        def fails(connection: Any, _: Any) -> None:
            quoted = (connection.host, connection.password, connection.extra)
            raise OSError(f"cannot reach {quoted}")

        with (
            mock.patch.dict(os.environ, AIRFLOW_CONN_ATTACKED=json.dumps(content)),
            mock.patch.object(channels, "_sender", return_value=fails),
        ):
            try:
                channels.ConnectionChannel("attacked").send(mock.sentinel.message)
            except channels.ChannelError as error:
                said = "".join(traceback.format_exception(error))
                tally.add(*([f"told from {sorted(place)}"] if secret in said else []))
            else:
                tally.add("no error")
    return tally


def hostile_labels(folder: Path, times: int) -> Tally:
    """Give examples multi-line labels: they must be refused, and not quoted."""
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


def fine_tuned_labels(folder: Path, times: int) -> Tally:
    """Prepare tasks with hostile labels by the real job, and write the report of their trials.

    A label that is not printable must become a dead letter that does not quote it; a printable one
    must be escaped text on the page.
    """
    # Imports TensorFlow and pytest, which no other row needs.
    from tests.beam_jobs.labelled.tasks import TRAIN, jsonl, make_bench, sentence

    tally = Tally()
    for number in range(times):
        bench = make_bench(folder / str(number))
        bench.describe(validation="validation.*", test="test.*", max_bad_fraction=0.5)
        good = ["plain", _MARKUP[number % len(_MARKUP)]]
        bad = f"q7z{_LINE_ENDS[number % len(_LINE_ENDS)]}{_MARKUP[number % len(_MARKUP)]}"
        for part, name in enumerate(("train", "validation", "test")):
            first = 100 * part
            lines = [[sentence(first + n), good[n % 2]] for n in range(12)]
            lines += [[sentence(first + 50 + n), bad] for n in range(2)]
            bench.put(f"{name}.jsonl", jsonl(lines))
        prepared = bench.prepare()
        made = prepared.manifest
        letters = str(bench.letters(prepared)) if made.dead_letter else ""
        text = _report_page(folder / f"{number}-report", made)
        harmless = _report_page(folder / f"{number}-plain", _relabelled(made))
        tally.add(
            *(f"{label!r} is a label" for label in made.labels if not label.isprintable()),
            *([] if made.splits[TRAIN].records == 12 else ["examples are missing"]),
            *(["a label is quoted"] if "q7z" in letters + text else []),
            *([] if good[1] in made.labels else ["a printable label is refused"]),
            *(f"a tag {tag}" for tag in _Tags(text).found - _Tags(harmless).found),
        )
        shutil.rmtree(folder / str(number))
    return tally


def _relabelled(manifest: TaskManifest) -> TaskManifest:
    return manifest.model_copy(update={"labels": [f"l{n}" for n in range(len(manifest.labels))]})


def _report_page(folder: Path, manifest: TaskManifest) -> str:
    """Return the page of a fine-tuning run on a task, with a trial of guessed predictions."""
    import numpy as np

    from tests.trained_models.downstream.written import guesses, write_trial

    store = StoreLayout(str(folder))
    run, count = store.run("0123456789ab"), len(manifest.labels)
    key = manifest.key
    manifest.write(store.task(manifest.name).manifest(key))
    right = np.arange(60) % count
    splits = {
        split: guesses(right, 0.8, 1, count) for split in (TaskSplit.VALIDATION, TaskSplit.TEST)
    }
    trial = write_trial(run.trials, manifest, splits)
    FinetuningPlan(
        lineage_id="default",
        models={"model": EncoderSource(uri=None, version_id=None)},
        manifests={manifest.name: store.task(manifest.name).manifest(key)},
        trials=[trial.result.trial],
        created=datetime.now(UTC),
    ).write(run.finetuning_plan)
    report.write_report(store, run)
    return uris.read(run.training_page).decode()


@contextmanager
def _labels_as_they_are() -> Iterator[None]:
    """Accept any text as a label, and write it into the page unescaped."""
    template = page._template()
    plain = template.environment.overlay(autoescape=False).get_template(str(template.name))
    with _any_label(), mock.patch.object(page, "_template", return_value=plain):
        yield


def _any_label() -> AbstractContextManager[Any]:
    """Accept any text as a label."""
    return mock.patch.object(labels, "_word", str)


ROWS = (
    Row(
        "secrets in what a failing alert says",
        secrets,
        30,
        lambda: mock.patch.object(channels, "_redacted", lambda text, _: text),
        len(_SECRET_PLACES),
    ),
    Row("hostile words in alert mails", mails, 2 * len(_WORDS), _words_as_they_are, len(_WORDS)),
    Row("hostile words as labels", hostile_labels, 2 * len(_WORDS), _any_label, len(_WORDS)),
    Row("hostile labels through job and report", fine_tuned_labels, 10, _labels_as_they_are, 1),
)
