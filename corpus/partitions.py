"""Finds the partitions of a corpus from its input pattern."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from corpus.text.inputs import input_patterns
from pipeline_config import ConfigError, PipelineConfig
from pipeline_config.schema import PARTITION_PATTERN
from pipeline_config.unquoted import one_line
from pipeline_store import identity, request_paths, uris
from pipeline_store.layout import READY_MARKERS, StoreLayout
from pipeline_store.request_paths import PLACEHOLDER

__all__ = ["FoundFile", "choose_partition", "find_files", "find_partitions", "input_patterns"]

_SIGNS = re.compile(r"(\*|\?|\[!?\]?[^\]]*\]|\{partition\})")


def choose_partition(config: PipelineConfig, wanted: str | None, store: StoreLayout) -> str:
    """Return the partition to work on: the wanted, else the configured, else the newest.

    :raises ConfigError: it is not a partition id, or no partition has a file.
    """
    named = wanted or config.corpus.partition
    if named is not None:
        try:
            return identity.check_partition(named)
        except ValueError as error:
            raise ConfigError([f"corpus.partition: {error}"]) from error
    pattern = config.corpus.input_pattern
    try:
        found = find_partitions(pattern, store)
    except Exception as error:  # each kind of store has errors of its own
        raise ConfigError([f"{store.root}: {type(error).__name__}: {error}"]) from error
    if not found:
        line = f"corpus.input_pattern: {pattern!r} matches no file of any partition below "
        raise ConfigError([f"{line}{store.root}; add text there or name another pattern."])
    return found[-1]


class FoundFile(NamedTuple):
    """A file of a partition: the pattern that it matches, its partition, its URI and size."""

    pattern: str
    partition: str
    uri: str
    bytes: int


def find_partitions(pattern: str, store: StoreLayout) -> list[str]:
    """Return the ids of all partitions that have at least one file, sorted.

    Empty if the pattern has no ``{partition}``, because nothing then tells partitions apart.

    :param pattern: ``corpus.input_pattern``: patterns separated by commas.
    """
    return sorted({file.partition for file in find_files(pattern, store)})


def find_files(pattern: str, store: StoreLayout) -> Iterator[FoundFile]:
    """Yield the files of all partitions, each once for every pattern that it matches.

    Hidden files, and marker files that only mark their folder as complete, are left out.

    :param pattern: ``corpus.input_pattern``; only its parts with ``{partition}`` are used.
    :raises OutsideRootsError: a request may not read there.
    """
    for part in partition_patterns(pattern, store):
        expression = re.compile(_expression(uris.for_library(part), PARTITION_PATTERN))
        for found in uris.list_details(request_paths.pattern_folder(part)):
            match = expression.fullmatch(uris.for_library(found.uri))
            name = found.uri.rpartition("/")[2]
            if match and not name.startswith(".") and name not in READY_MARKERS:
                yield FoundFile(part, match["partition"], found.uri, found.bytes)


def overlooked(pattern: str, store: StoreLayout) -> Iterator[str]:
    """Yield a line for each entry that looks like part of a partition but is not found as one.

    These are names that are no partition's id, links that are not followed, and non-files.

    :param pattern: as :func:`find_files`.
    """
    for part in partition_patterns(pattern, store):
        strict, loose = (
            re.compile(_expression(uris.for_library(part), name))
            for name in (PARTITION_PATTERN, "[^/.][^/]*")
        )
        odd = set()
        for found in uris.list_details(request_paths.pattern_folder(part)):
            plain = uris.for_library(found.uri)
            match = loose.fullmatch(plain)
            if match and not strict.fullmatch(plain):
                odd.add(match["partition"])
        for name in sorted(odd):
            try:
                identity.check_partition(name)
            except ValueError as error:
                yield f"{part}: {error}"
        for oddity in uris.oddities(part.replace(PLACEHOLDER, "*")):
            yield f"{one_line(oddity.uri)} is {oddity.what}, so nothing of it is read."


def partition_patterns(pattern: str, store: StoreLayout) -> list[str]:
    """Return the absolute patterns that tell partitions apart; they keep their ``{partition}``."""
    return [part for part in input_patterns(pattern, PLACEHOLDER, store) if PLACEHOLDER in part]


def _expression(pattern: str, partition: str) -> str:
    """Turn a pattern into a regular expression whose group ``partition`` is the placeholder.

    :param partition: the expression of the placeholder.
    """
    result = ""
    parts = [part for part in _SIGNS.split(pattern) if part]
    while parts:
        part = parts.pop(0)
        if part == PLACEHOLDER:
            # A second placeholder must repeat the first.
            known = "(?P<partition>" in result
            result += "(?P=partition)" if known else f"(?P<partition>{partition})"
        elif part == "*":
            between = list(itertools.takewhile(_has_one_length, parts))
            if parts[len(between) : len(between) + 1] == ["*"]:
                # The first match is as good as any, because a star comes next. Trying all matches
                # takes time exponential in the number of stars.
                del parts[: len(between)]
                result += f"(?>[^/]*?{''.join(map(_sign, between))})"
            else:
                result += "[^/]*"
        else:
            result += _sign(part)
    return result


def _has_one_length(part: str) -> bool:
    return part not in ("*", PLACEHOLDER) and "/" not in part


def _sign(part: str) -> str:
    if part.startswith("["):
        return "(?!/)" + part.replace("[!", "[^", 1)
    return "[^/]" if part == "?" else re.escape(part)
