"""The page of errors: it has what a text names, and alerts and pages lead there."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from corpus.labelled.labels import ExampleProblem
from corpus.text.drops import DropReason
from pipeline_alerts.errors import DOCUMENT, FailureKind, error_section
from pipeline_alerts.messages import compose
from pipeline_store.formats import Alert

PAGE = (Path(__file__).parents[2] / DOCUMENT).read_text()
ALERT = Alert(
    scope="0a1b2c3d4e5f",
    cause="task-failed.tpu.create",
    title="[repretraining] bert_repretraining 2026-01-03: task tpu.create failed",
    reason="Task tpu.create, try 1: TpuTaskFailed: [stockout] None of us-a has a v5litepod-8 now",
    time=datetime(2026, 1, 4, 5, 6, 7, tzinfo=UTC),
)


def test_each_kind_of_failure_has_a_section() -> None:
    headings = set(re.findall(r"^### (.+)$", PAGE, re.MULTILINE))
    assert headings >= {str(kind) for kind in FailureKind}


def test_each_reason_of_an_input_has_one_place() -> None:
    places = re.findall(r'<a id="([^"]+)"></a>', PAGE)
    assert sorted(places) == sorted({str(reason) for reason in (*DropReason, *ExampleProblem)})


@pytest.mark.parametrize(
    ("text", "anchor"),
    [
        ("TpuTaskFailed: [user-error] Run r is to rent in project p", "user-error"),
        ("BadDataError: 12 of 20 documents: invalid_utf8 12; a.txt", "invalid_utf8"),
        ("the folder is empty, and a duplicate [of] another", None),
        ("KeyError: 'x'", None),
    ],
)
def test_a_text_leads_to_what_it_names(text: str, anchor: str | None) -> None:
    expected = f"https://docs.example/bert/operate/errors.html#{anchor}" if anchor else None
    assert error_section(text, "https://docs.example/bert") == expected


def test_an_alert_names_the_section_of_its_error() -> None:
    assert "\nError: docs/operate/errors.md#stockout\n" in compose(ALERT).text
    address = "https://docs.example/bert/operate/errors.html#stockout"
    message = compose(ALERT, docs_url="https://docs.example/bert")
    assert f'<a href="{address}">{address}</a>' in message.html
    assert "\nError:" not in compose(ALERT.model_copy(update={"reason": "unknown"})).text
