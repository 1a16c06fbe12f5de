"""Finds the partitions of a corpus from its input pattern."""

from __future__ import annotations

import re

from beam_jobs.text.inputs import input_patterns
from pipeline_config import ConfigError, PipelineConfig
from pipeline_config.schema import PARTITION_PATTERN
from pipeline_store import identity, uris
from pipeline_store.layout import StoreLayout

__all__ = ["choose_partition", "find_partitions", "input_patterns"]

PLACEHOLDER = "{partition}"
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


def find_partitions(pattern: str, store: StoreLayout) -> list[str]:
    """Return the ids of all partitions that have at least one file, sorted.

    Empty when the pattern has no ``{partition}``, as nothing then tells partitions apart.

    :param pattern: ``corpus.input_pattern``: patterns separated by commas.
    """
    found = set()
    for part in input_patterns(pattern, PLACEHOLDER, store):
        if PLACEHOLDER not in part:
            continue
        expression = re.compile(_expression(uris.for_library(part)))
        folder = re.split(r"[*?\[{]", part, maxsplit=1)[0].rpartition("/")[0]
        for uri in uris.list_files(folder):
            match = expression.fullmatch(uris.for_library(uri))
            if match and not uri.rpartition("/")[2].startswith("."):
                found.add(match["partition"])
    return sorted(found)


def _expression(pattern: str) -> str:
    """Turn a pattern into a regular expression whose group ``partition`` is the placeholder."""
    signs = {"*": "[^/]*", "?": "[^/]"}
    result = ""
    for token in _SIGNS.split(pattern):
        if token == PLACEHOLDER:
            # A second placeholder must repeat the first.
            known = "(?P<partition>" in result
            result += "(?P=partition)" if known else f"(?P<partition>{PARTITION_PATTERN})"
        elif token.startswith("["):
            result += "(?!/)" + token.replace("[!", "[^", 1)
        else:
            result += signs.get(token) or re.escape(token)
    return result
