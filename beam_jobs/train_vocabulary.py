"""Gives a lineage its WordPiece vocabulary: trained on a partition's text, or a given one.

    python -m beam_jobs.train_vocabulary --config config.json --store /data/store \\
        --partition 2026-01-31 [--input 'corpus/{partition}/*.txt']

Does nothing but check where the lineage has one: a vocabulary is frozen for a lineage's life.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

from beam_jobs.cli import JobArguments, read_arguments, run_cli
from beam_jobs.errors import UserError
from beam_jobs.inputs import list_inputs
from beam_jobs.lineage_vocabulary import (
    create_vocabulary,
    find_vocabulary,
    read_vocabulary,
    refuse_unfit,
)
from beam_jobs.training_text import TrainingText
from beam_jobs.vocabulary import Vocabulary
from beam_jobs.wordpiece import train_wordpiece
from pipeline_store.formats import VocabularyInfo


def ensure_vocabulary(arguments: JobArguments) -> tuple[VocabularyInfo, bool]:
    """Make sure that the lineage has a vocabulary; return it and whether it is new.

    :raises UserError: the configuration does not fit the lineage's vocabulary or the given one.
    :raises BadDataError: too much of the partition's text is unreadable, or there is none.
    """
    config, store = arguments.config, arguments.store
    lineage = store.lineage(config.model.lineage_id)
    given = _given(arguments)
    found = find_vocabulary(config, lineage)
    if found is not None and given is not None and found != given:
        raise UserError(
            f"lineage {config.model.lineage_id!r} has the vocabulary {lineage.vocabulary}, which "
            f"differs from vocabulary.uri={config.vocabulary.uri}. Leave vocabulary.uri empty or "
            "use another model.lineage_id."
        )
    if found is None:
        if given is not None:
            source = store.resolve(config.vocabulary.uri or "")
            create_vocabulary(given, source, config, lineage)
        else:
            source = f"trained on partition {arguments.partition}"
            create_vocabulary(_train(arguments), source, config, lineage)
    return VocabularyInfo.load(lineage.vocabulary_info), found is None


def _given(arguments: JobArguments) -> Vocabulary | None:
    config = arguments.config
    if config.vocabulary.uri is None:
        return None
    uri = arguments.store.resolve(config.vocabulary.uri)
    vocabulary = read_vocabulary(uri)
    refuse_unfit(vocabulary, config, uri)
    return vocabulary


def _train(arguments: JobArguments) -> Vocabulary:
    config = arguments.config
    inputs = list_inputs(arguments.pattern, arguments.partition, arguments.store)
    vocabulary = train_wordpiece(
        TrainingText(inputs, config),
        size=config.vocabulary.size,
        do_lower_case=config.vocabulary.do_lower_case,
    )
    refuse_unfit(vocabulary, config, f"vocabulary trained on {arguments.pattern}")
    return vocabulary


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m beam_jobs.train_vocabulary",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--config", metavar="FILE", required=True, help="config.json, a path or gs:// URI"
    )
    parser.add_argument("--store", metavar="URI", required=True, help="a directory or gs:// URI")
    parser.add_argument("--partition", metavar="ID", required=True, help="such as 2026-01-31")
    parser.add_argument(
        "--input", metavar="PATTERN", help="instead of corpus.input_pattern of the file"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    options = _parser().parse_args(argv)

    def job() -> dict[str, Any]:
        began = time.monotonic()
        arguments = read_arguments(
            config=options.config,
            store=options.store,
            partition=options.partition,
            pattern=options.input,
        )
        info, created = ensure_vocabulary(arguments)
        lineage = arguments.store.lineage(arguments.config.model.lineage_id)
        return {
            "vocabulary": lineage.vocabulary,
            "sha256": info.sha256,
            "size": info.size,
            "source": info.source,
            "created": created,
            "seconds": round(time.monotonic() - began, 1),
        }

    return run_cli("train_vocabulary", job)


if __name__ == "__main__":
    sys.exit(main())
