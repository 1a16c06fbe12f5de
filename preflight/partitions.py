"""Finds the partitions of a corpus from its input pattern."""

from __future__ import annotations

import re

from pipeline_store import uris
from pipeline_store.layout import StoreLayout

PLACEHOLDER = "{partition}"


def input_patterns(pattern: str, partition: str, store: StoreLayout) -> list[str]:
    """Return the absolute patterns of a partition's input files.

    :param pattern: ``corpus.input_pattern``: patterns separated by commas.
    """
    parts = [part.strip() for part in pattern.split(",") if part.strip()]
    return [store.resolve(part.replace(PLACEHOLDER, partition)) for part in parts]


def find_partitions(pattern: str, store: StoreLayout) -> list[str]:
    """Return the ids of all partitions that have at least one file, sorted.

    Empty when the pattern has no ``{partition}``, as nothing then tells partitions apart.
    """
    found = set()
    for part in input_patterns(pattern, PLACEHOLDER, store):
        if PLACEHOLDER not in part:
            continue
        expression = re.compile(_expression(uris.for_library(part)))
        folder = re.split(r"[*?\[{]", part, maxsplit=1)[0].rpartition("/")[0]
        for uri in uris.list_files(folder):
            if match := expression.fullmatch(uris.for_library(uri)):
                found.add(match["partition"])
    return sorted(found)


def _expression(pattern: str) -> str:
    """Turn a pattern into a regular expression whose group ``partition`` is the placeholder."""
    pieces = {
        PLACEHOLDER: r"(?P<partition>[a-z0-9][a-z0-9._-]*)",
        "*": "[^/]*",
        "?": "[^/]",
    }
    before, _, after = pattern.partition(PLACEHOLDER)
    # A second placeholder must repeat the first.
    tokens = [before, PLACEHOLDER, *re.split(rf"({re.escape(PLACEHOLDER)})", after)]
    result, seen = "", False
    for token in tokens:
        if token == PLACEHOLDER:
            result += "(?P=partition)" if seen else pieces[PLACEHOLDER]
            seen = True
        else:
            result += "".join(pieces.get(sign, re.escape(sign)) for sign in token)
    return result
