"""Finds the input files of a partition, and determines the format of each."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from corpus.errors import UserError, machine_fault
from pipeline_config import PipelineConfig
from pipeline_config.rules import documents_of
from pipeline_config.unquoted import one_line
from pipeline_store import request_paths, uris
from pipeline_store.layout import READY_MARKERS, StoreLayout

InputFormat = Literal["text", "sentences", "jsonl", "csv", "tsv", "parquet", "tfrecord"]

_SET_MEMBER = re.compile(
    r"(?P<folder>.*)/(?P<stem>[^/]*-)(?P<index>\d+)-of-(?P<count>\d+)(?P<end>[^/]*)"
)
_NAMED = 3
_SETTING = "corpus.input_pattern"
COMPRESSED_SUFFIXES = (".gz", ".bz2", ".zst", ".xz")
_FORMATS: dict[str, InputFormat] = {
    "jsonl": "jsonl",
    "csv": "csv",
    "tsv": "tsv",
    "parquet": "parquet",
    "tfrecord": "tfrecord",
    "tfrecords": "tfrecord",
    "tf_record": "tfrecord",
}
# TensorFlow's writers put the number of a file after the name of its format.
_NUMBERED_RECORDS = re.compile(r"\.(tfrecords?|tf_record)-\d+-of-\d+$")


def input_patterns(pattern: str, partition: str, store: StoreLayout) -> list[str]:
    """Return the absolute patterns of a partition's input files.

    :param pattern: ``corpus.input_pattern``: patterns separated by commas.
    """
    parts = [part.strip() for part in pattern.split(",") if part.strip()]
    return [store.resolve(part.replace("{partition}", partition)) for part in parts]


def list_inputs(
    pattern: str, partition: str, store: StoreLayout, setting: str = _SETTING
) -> list[str]:
    """Return the partition's input files, sorted, each once.

    :param setting: name of the pattern in messages.
    :raises UserError: a pattern matches no file (the message names it and what its folder has), or
        files of a set ``-i-of-N`` are missing.
    """
    found = match_inputs(pattern, partition, store, setting)
    for problem in incomplete_sets(found, setting):
        raise UserError(problem)
    return found


def match_inputs(
    pattern: str, partition: str, store: StoreLayout, setting: str = _SETTING
) -> list[str]:
    """Return what the patterns match, as :func:`list_inputs`, without a check for missing files.

    Marker files, which only mark their folder as complete, are left out.
    """
    try:
        patterns = input_patterns(pattern, partition, store)
        matched = {part: request_paths.glob(part) for part in patterns}
        unusable = [line for part in patterns for line in _unusable(part, matched[part])]
    except ValueError as error:
        raise UserError(f"{setting}: {error}") from error
    except PermissionError as error:
        raise UserError(f"{setting}: {machine_fault(error)}") from error
    if unusable:
        more = f"; and {len(unusable) - _NAMED} more" if len(unusable) > _NAMED else ""
        raise UserError(
            f"{setting}: {'; '.join(unusable[:_NAMED])}{more}. Put plain files there, or name a "
            "pattern that leaves them out."
        )
    if not patterns:
        raise UserError(f"{setting} {pattern!r} contains no pattern.")
    found: set[str] = set()
    for part, matches in matched.items():
        shards = [uri for uri in matches if uri.rpartition("/")[2] not in READY_MARKERS]
        if not shards:
            raise UserError(_no_match(part, setting))
        found.update(shards)
    return sorted(found)


def _unusable(pattern: str, matches: Sequence[str]) -> Iterator[str]:
    """Yield a line for each match of a pattern that no job can read, with the reason."""
    for oddity in uris.oddities(pattern):
        yield f"{one_line(oddity.uri)} is {oddity.what}"
    for uri in matches:
        try:
            uri.encode()
        except UnicodeEncodeError:
            yield f"the name of {one_line(uri)} is no UTF-8"


def _no_match(pattern: str, setting: str) -> str:
    message = f"{setting}: no file matches {pattern}"
    if not any(sign in pattern for sign in "*?[") and uris.list_files(pattern):
        return f"{message}, which is a folder; write {pattern.rstrip('/')}/* for its files."
    folder = pattern.rpartition("/")[0]
    if any(sign in folder for sign in "*?[") or not request_paths.allows(folder):
        return f"{message}."
    names = {uri: uri.rpartition("/")[2] for uri in uris.list_files(folder)}
    others = [u for u, n in names.items() if not n.startswith(".") and n not in READY_MARKERS]
    if not others:
        return f"{message}: the folder {folder} is empty or does not exist."
    return f"{message}; the folder has {len(others)} other files, such as {one_line(others[0])}."


def incomplete_sets(files: list[str], setting: str = _SETTING) -> Iterator[str]:
    """Yield a line for every set of files ``-i-of-N`` of which some are missing."""
    sets = {member.set for uri in files if (member := _member(uri))}
    for found in sorted(sets):
        # Files next to the matched ones count: a pattern may leave members out on purpose.
        may_look = request_paths.allows(found.folder)
        beside = filter(None, map(_member, uris.list_files(found.folder) if may_look else files))
        present = {member.number for member in beside if member.set == found}
        # Most tools count from 0, some from 1.
        first = 1 if 0 not in present and found.size in present else 0
        expected = range(first, first + found.size)
        missing = found.size - sum(index in expected for index in present)
        if missing:
            absent = (found.name(index) for index in expected if index not in present)
            names = ", ".join(itertools.islice(absent, _NAMED))
            more = f" and {missing - _NAMED} more" if missing > _NAMED else ""
            yield (
                f"{setting}: in {found.folder} {missing} of {found.size} files of a set are "
                f"missing: {names}{more}. Add them, or name a pattern without that set."
            )


class _FileSet(NamedTuple):
    """The files ``<stem>-<index>-of-<digits><end>`` of a folder."""

    folder: str
    stem: str
    digits: str
    end: str

    @property
    def size(self) -> int:
        return int(self.digits)

    def name(self, index: int) -> str:
        return f"{self.stem}{index:0{len(self.digits)}d}-of-{self.digits}{self.end}"


class _Member(NamedTuple):
    set: _FileSet
    number: int


def _member(uri: str) -> _Member | None:
    match = _SET_MEMBER.fullmatch(uri)
    if match is None:
        return None
    file_set = _FileSet(match["folder"], match["stem"], match["count"], match["end"])
    return _Member(file_set, int(match["index"]))


def misread_files(files: Sequence[str], config: PipelineConfig) -> Iterator[str]:
    """Yield a line for each format of the files that does not fit the settings of documents.

    If ``corpus.input_format`` names the format, rules of the configuration check this; here the
    extensions of file names tell it.
    """
    corpus = config.corpus
    firsts: dict[InputFormat, str] = {}
    for uri in files:
        firsts.setdefault(input_format(uri, config), uri)
    for found, uri in firsts.items():
        possible = documents_of(found)
        if found == "tfrecord":
            yield from _settings_of_text(uri, config)
        if corpus.document not in ("auto", *possible):
            yield (
                f"corpus.document: {corpus.document} cannot be a document of {uri}, which is read "
                f"as {found}; use {' or '.join(possible)} for such files, or auto, or name a "
                "pattern without them."
            )
        if corpus.group_field is not None and "record" not in possible:
            yield (
                f"corpus.group_field: {uri} is read as {found}, which has no fields; leave it "
                "empty, or name a pattern without such files."
            )


def _settings_of_text(uri: str, config: PipelineConfig) -> Iterator[str]:
    """Yield a line for each setting that does not apply to rows of tokens."""
    corpus, vocabulary = config.corpus, config.vocabulary
    if vocabulary.uri is None:
        yield (
            f"vocabulary.uri: {uri} is read as tfrecord, whose rows have tokens of a vocabulary; "
            "name that one."
        )
    asked = {
        "vocabulary.domain_words": vocabulary.domain_words,
        "corpus.group_field": corpus.group_field,
        "corpus.keep_languages": corpus.keep_languages,
        "corpus.min_document_characters": corpus.min_document_characters,
    }
    for name in (name for name, value in asked.items() if value):
        yield f"{name}: {uri} is read as tfrecord, which has tokens and no text; leave it off."


def refuse_misread(files: Sequence[str], config: PipelineConfig) -> None:
    """Check that all files can have documents as the settings ask for.

    :raises UserError: see :func:`misread_files`.
    """
    for problem in misread_files(files, config):
        raise UserError(problem)


def input_format(uri: str, config: PipelineConfig) -> InputFormat:
    """Return the format of an input file; ``auto`` is resolved by the extension of its name."""
    chosen = config.corpus.input_format
    return format_of_name(uri) if chosen == "auto" else chosen


def format_of_name(name: str) -> InputFormat:
    """Return the format that a file name's extension stands for, before that of a compression."""
    stem, dot, end = name.lower().rpartition(".")
    if dot + end in COMPRESSED_SUFFIXES:
        name = stem
        end = stem.rpartition(".")[2]
    if _NUMBERED_RECORDS.search(name.lower()):
        return "tfrecord"
    return _FORMATS.get(end, "text")
