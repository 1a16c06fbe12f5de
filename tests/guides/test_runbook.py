"""Commands that are read at night: what alerts, their runbook and operation.md print can be run."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from local.stack.paths import REPOSITORY
from pipeline_alerts.causes import ADVICE
from pipeline_store.layout import StoreLayout
from tpu_lifecycle.control.reaper_status import reaper_problem

PAGES = ["docs/commands.md", "docs/alerts.md", "docs/operation.md", "docs/local-stack.md"]
# The last ends where a word of a sentence begins that no command has.
IN_CODE = re.compile(r"python -m ([^`\n]+)")
IN_SENTENCES = re.compile(r"python -m ([\w.]+(?: (?!from )[a-z-]*[a-z])*)")
ELSEWHERE = {"beam_jobs", "training", "verification", "model_registry.finetuning"}
"""Rooms whose commands have tests of the pages that explain them."""


def commands(text: str, pattern: re.Pattern[str]) -> Iterator[list[str]]:
    """Yield module and arguments of each command."""
    for found in pattern.findall(text):
        # As in $(...), "..." and after the words of a shell.
        line = re.split(r"\)\"|[|;&]", found)[0].replace("\\", " ")
        yield shlex.split(line, comments=True)


def parse(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a command's own parser read its arguments."""
    # What every container of the team server has.
    monkeypatch.setenv("REPRETRAIN_STORE_URI", "gs://bucket/store")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "my-project")
    parser = importlib.import_module(f"{words[0]}.__main__")._parser()
    try:
        parser.parse_args(words[1:])
    except SystemExit as end:
        if end.code != 0:  # `--help` ends with 0.
            pytest.fail(f"is not read: python -m {shlex.join(words)}")


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_page_are_read_by_their_parsers(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = list(commands((REPOSITORY / page).read_text(), IN_CODE))
    own = [words for words in found if not {words[0], words[0].split(".")[0]} & ELSEWHERE]
    assert own
    for words in own:
        parse(words, monkeypatch)


def test_commands_that_alerts_advise_are_read_by_their_parsers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = reaper_problem(StoreLayout(str(tmp_path)), "owner", None, timedelta(minutes=1))
    texts = [*ADVICE.values(), str(silent)]
    found = [words for text in texts for words in commands(text, IN_SENTENCES)]
    assert ["tpu_lifecycle", "reap", "--once"] in found
    for words in found:
        parse(words, monkeypatch)


def test_the_pattern_of_sentences_ends_with_the_command() -> None:
    text = "Run python -m tpu_lifecycle reap --once. Then python -m tpu_lifecycle list, from cron."
    assert list(commands(text, IN_SENTENCES)) == [
        ["tpu_lifecycle", "reap", "--once"],
        ["tpu_lifecycle", "list"],
    ]
