"""Checks the input text of a partition: there is some, all of it, and it is text."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from beam_jobs.errors import UserError
from beam_jobs.inputs import input_patterns, list_inputs
from beam_jobs.reading import RejectedFileError, read_lines
from pipeline_store import uris
from pipeline_store.layout import StoreLayout

_MEMBER = re.compile(r"(?P<stem>.*-)(?P<index>\d+)-of-(?P<count>\d+)(?P<end>[^/]*)")
_NAMED = 3


def input_problems(pattern: str, partition: str, store: StoreLayout) -> Iterator[str]:
    """Yield a line for every reason why a partition's text cannot be read.

    :param pattern: ``corpus.input_pattern``.
    """
    files: set[str] = set()
    for part in input_patterns(pattern, partition, store) or [pattern]:
        try:
            files.update(list_inputs(part, partition, store))
        except UserError as error:
            yield str(error)
    yield from _incomplete_sets(sorted(files))
    yield from _no_text(sorted(files))


def _incomplete_sets(files: list[str]) -> Iterator[str]:
    """Yield a line for every set of files ``i-of-N`` that has a hole."""
    sets = {
        (match["stem"], match["count"], match["end"])
        for uri in files
        if (match := _MEMBER.fullmatch(uri))
    }
    for stem, count, end in sorted(sets):
        # What lies beside the matched files counts: a pattern may leave members out on purpose.
        beside = map(_MEMBER.fullmatch, uris.list_files(stem.rpartition("/")[0]))
        present = {
            int(match["index"])
            for match in beside
            if match and (match["stem"], match["count"], match["end"]) == (stem, count, end)
        }
        # Most tools count from 0, some from 1.
        first = 1 if 0 not in present and int(count) in present else 0
        missing = (i for i in range(first, first + int(count)) if i not in present)
        names = [
            f"{stem.rpartition('/')[2]}{index:0{len(count)}d}-of-{count}{end}"
            for index in itertools.islice(missing, _NAMED)
        ]
        if names:
            folder = stem.rpartition("/")[0]
            yield (
                f"corpus.input_pattern: in {folder} {int(count) - len(present)} of {int(count)} "
                f"files of a set are missing: {_listed(names, int(count) - len(present))}. Add "
                "them, or name a pattern without that set."
            )


def _no_text(files: list[str]) -> Iterator[str]:
    """Yield a line when not one of the files has text in it."""
    reasons = []
    for uri in files:
        reason = _why_unusable(uri)
        if reason is None:
            return
        reasons.append(f"{uri}: {reason}")
    if reasons:
        yield (
            f"corpus.input_pattern: none of the {len(files)} files has text in it "
            f"({_listed(reasons[:_NAMED], len(files))}). Give plain or gzip-compressed UTF-8 text."
        )


def _why_unusable(uri: str) -> str | None:
    try:
        with uris.open_stream(uri) as stream:
            has_text = any(line.data is None or line.data.strip() for line in read_lines(stream))
    except RejectedFileError as error:
        return error.detail
    return None if has_text else "empty"


def _listed(names: list[str], count: int) -> str:
    more = count - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")
