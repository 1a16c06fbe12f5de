"""Parses the data job's command line, and the arguments that all jobs on Beam share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from corpus.errors import UserError
from pipeline_config.command_line import command_parser

_DESCRIPTION = """\
Turns one partition of raw text into masked-LM records, shard by shard.

Copies of documents are found first, in this and all earlier partitions; then every shard that is
not done yet is converted. The last line printed is a summary in JSON."""
_EPILOG = """\
Options that are not listed here are Beam's and go before what beam.* of the configuration says,
such as --runner=DataflowRunner --project=my-project, or --direct_running_mode=multi_threading.

exit codes: 0 done; 40 the request is wrong; 41 the input is bad; other: run again, what is done is
kept. See docs/reference/data.md."""


@dataclass(frozen=True)
class PrepareCorpusOptions:
    """The parsed arguments of the command; ``beam`` holds Beam's options."""

    config: str
    store: str
    partition: str
    pattern: str | None
    dry_run: bool
    labels: dict[str, str]
    beam: list[str]


def parse_options(argv: Sequence[str] | None) -> PrepareCorpusOptions:
    """Read the command line.

    :raises UserError: a label has no value, or an option is neither ours nor Beam's.
    """
    known, rest = parse_job(_parser(), argv)
    return PrepareCorpusOptions(
        config=known.config,
        store=known.store,
        partition=known.partition,
        pattern=known.input,
        dry_run=known.dry_run,
        labels=known.labels,
        beam=rest,
    )


def _parser() -> argparse.ArgumentParser:
    parser = job_parser(
        "prepare_corpus",
        _DESCRIPTION,
        _EPILOG,
        dry_run="list the shards with their state and the copies known so far; change nothing",
    )
    parser.add_argument("--partition", metavar="ID", required=True, help="such as 2026-01-31")
    parser.add_argument(
        "--input", metavar="PATTERN", help="instead of corpus.input_pattern of the configuration"
    )
    return parser


def job_parser(
    name: str, description: str, epilog: str, *, dry_run: str
) -> argparse.ArgumentParser:
    """Return a parser of the arguments that all jobs on Beam share; each job adds its own.

    :param name: name of the job's module.
    :param dry_run: help text of ``--dry-run``.
    """
    parser = command_parser(
        f"beam_jobs.{name}",
        description,
        epilog=epilog,
        # Otherwise a Beam option might be taken for the abbreviation of one of ours.
        allow_abbrev=False,
    )
    parser.add_argument(
        "--config", metavar="FILE", required=True, help="config.json, a path or gs:// URI"
    )
    parser.add_argument("--store", metavar="URI", required=True, help="a directory or gs:// URI")
    parser.add_argument(
        "--dry-run",
        # Beam has an option of this name, which does something else.
        "--dry_run",
        action="store_true",
        help=dry_run,
    )
    parser.add_argument(
        "--label",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="labels",
        help="label of the Dataflow job and its machines; may be given more than once",
    )
    return parser


def parse_job(
    parser: argparse.ArgumentParser, argv: Sequence[str] | None
) -> tuple[argparse.Namespace, list[str]]:
    """Read a command line; return our options, and Beam's. ``labels`` become a dict.

    :raises UserError: a label has no value, or an option is neither ours nor Beam's.
    """
    known, rest = parser.parse_known_args(argv)
    refuse_unknown(rest)
    known.labels = dict(_label(text) for text in known.labels)
    return known, rest


def _label(text: str) -> tuple[str, str]:
    """Return the key and the value of a job's label.

    :raises UserError: it has no value.
    """
    key, sign, value = text.partition("=")
    if not (key and sign and value):
        raise UserError(f"--label {text!r}: write KEY=VALUE.")
    return key, value


def refuse_unknown(arguments: Sequence[str]) -> None:
    """Check that Beam knows the options; Beam itself silently ignores unknown ones."""
    if not arguments:
        return
    # Imported here because which parts of Beam are imported depends on the arguments.
    from apache_beam.options.pipeline_options import PipelineOptions

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for options in PipelineOptions.__subclasses__():
        options._add_argparse_args(parser)  # as Beam builds its own parser
    _, unknown = parser.parse_known_args(arguments)
    if unknown:
        raise UserError(f"unknown options {' '.join(unknown)}; see --help.")
