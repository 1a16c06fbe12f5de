"""Words that the glossary replaces are found in prose, and pages have none of them."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINT = runpy.run_path(str(ROOT / "scripts" / "lint-terms"))
BANNED = {"kill switch": "dead man's switch", "via": "through", "pre-train": "pretrain"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("One\ntwo via three.", [(2, "via")]),
        ("the kill\nswitch", [(1, "kill switch")]),
        ("Pre-train it.", [(1, "Pre-train")]),
        ("re-pre-train, viaduct, `via`", []),
        ("[a](via.md) and\n```text\nvia\n```\nend via", [(5, "via")]),
    ],
)
def test_a_word_is_found_where_it_is_prose(text: str, found: list[tuple[int, str]]) -> None:
    assert [problem[:2] for problem in LINT["problems"](text, BANNED)] == found


def test_the_glossary_is_the_list() -> None:
    terms = LINT["terms"]()
    assert terms["given back"].startswith("release")
    assert "not" not in terms


def test_pages_have_none() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/lint-terms"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
