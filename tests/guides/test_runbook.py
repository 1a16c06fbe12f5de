"""Commands that are read at night: what alerts advise can be run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from pipeline_alerts.causes import ADVICE
from pipeline_store.layout import StoreLayout
from scripts.command_parsers import parse
from tpu_lifecycle.control.reaper_status import reaper_problem

# It ends where a word of a sentence begins that no command has.
IN_SENTENCES = re.compile(r"python -m ([\w.]+(?: (?!from )[a-z-]*[a-z])*)")


def commands(text: str) -> Iterator[list[str]]:
    """Yield module and arguments of each command."""
    for found in IN_SENTENCES.findall(text):
        yield shlex.split(found)


def test_commands_that_alerts_advise_are_read_by_their_parsers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What every container of the team server has.
    monkeypatch.setenv("REPRETRAIN_STORE_URI", "gs://bucket/store")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "my-project")
    silent = reaper_problem(StoreLayout(str(tmp_path)), "owner", None, timedelta(minutes=1))
    texts = [*ADVICE.values(), str(silent)]
    found = [words for text in texts for words in commands(text)]
    assert ["tpu_lifecycle", "reap", "--once"] in found
    for words in found:
        parse(*words)


def test_the_pattern_of_sentences_ends_with_the_command() -> None:
    text = "Run python -m tpu_lifecycle reap --once. Then python -m tpu_lifecycle list, from cron."
    assert list(commands(text)) == [
        ["tpu_lifecycle", "reap", "--once"],
        ["tpu_lifecycle", "list"],
    ]
