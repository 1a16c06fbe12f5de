"""The same command against the real Google Cloud, by the environment; it spends nothing.

``PREFLIGHT_PROJECT=... PREFLIGHT_STORE=gs://... pytest tests/preflight/test_real_cloud.py``
"""

from __future__ import annotations

import json
import os

import pytest

from preflight.__main__ import main

PROJECT, STORE = os.environ.get("PREFLIGHT_PROJECT"), os.environ.get("PREFLIGHT_STORE")

pytestmark = pytest.mark.skipif(
    not (PROJECT and STORE), reason="needs PREFLIGHT_PROJECT and PREFLIGHT_STORE"
)


def test_each_question_is_understood(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is wrong there, no request is one that Google's APIs do not know."""
    assert PROJECT is not None
    assert STORE is not None
    main(["cloud", "--project", PROJECT, "--store", STORE, "--json"])
    rows = {row["check"]: row for row in json.loads(capsys.readouterr().out)["checks"]}
    assert rows["credentials"]["status"] in ("ok", "warning")
    assert rows["clock"]["status"] == "ok"
    misunderstood = {
        name: row["found"]
        for name, row in rows.items()
        if "could not be checked" in row["found"] or "answers 400" in row["found"]
    }
    assert misunderstood == {}
