"""Gives a lineage its vocabulary: trained on a partition's text, or a given one.

    python -m beam_jobs.train_vocabulary --config config.json --store /data/store \\
        --partition 2026-01-31 [--input 'corpus/{partition}/*.txt']

A vocabulary that the lineage already has is only checked: it is frozen for the lineage's life.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Sequence
from typing import Any

from beam_jobs.cli import JobArguments, read_arguments, run_alone, run_cli
from corpus.errors import BadDataError, UserError
from corpus.text.inputs import list_inputs, refuse_misread
from corpus.tokens.bpe import train_bpe
from corpus.tokens.lineage_vocabulary import (
    create_vocabulary,
    find_vocabulary,
    given_vocabulary,
    refuse_other,
    refuse_unfit,
)
from corpus.tokens.new_words import find_domain_words
from corpus.tokens.sentencepiece_tokens import UntrainableTextError, train_sentencepiece
from corpus.tokens.tokenizing import make_tokenizer
from corpus.tokens.training_text import TrainingText
from corpus.tokens.vocabulary import Vocabulary, unused_places, with_domain_words
from corpus.tokens.wordpiece_training import train_wordpiece
from pipeline_config.command_line import command_parser
from pipeline_store.formats import VocabularyInfo

logger = logging.getLogger(__name__)


def ensure_vocabulary(arguments: JobArguments) -> tuple[VocabularyInfo, bool]:
    """Make sure that the lineage has a vocabulary; return it and whether it is new.

    :raises UserError: the configuration does not fit the lineage's vocabulary or the given one.
    :raises BadDataError: too much of the partition's text is unreadable, or there is none.
    """
    config, store = arguments.config, arguments.store
    lineage = store.lineage(config.model.lineage_id)
    given = given_vocabulary(config, store)
    found = find_vocabulary(config, lineage)
    if found is not None:
        refuse_other(config, store, found)
        logger.info("lineage %r has its vocabulary; nothing is trained", config.model.lineage_id)
    elif given is not None:
        source = store.resolve(config.vocabulary.uri or "")
        create_vocabulary(_extended(given, arguments), source, config, lineage, given)
    else:
        source = f"trained on partition {arguments.partition}"
        create_vocabulary(_train(arguments), source, config, lineage)
    return VocabularyInfo.load(lineage.vocabulary_info), found is None


def _extended(given: Vocabulary, arguments: JobArguments) -> Vocabulary:
    """Return the given vocabulary with the number of domain words that the settings ask for."""
    config = arguments.config
    if not config.vocabulary.domain_words:
        return given
    places = unused_places(given)
    if not places:
        raise UserError(
            f"vocabulary.domain_words={config.vocabulary.domain_words}, but "
            f"{config.vocabulary.uri} has no [unused0] or the like to put a word into. Set it to 0."
        )
    if places < config.vocabulary.domain_words:
        logger.warning(
            "%s has %d [unused] places, fewer than vocabulary.domain_words=%d",
            config.vocabulary.uri,
            places,
            config.vocabulary.domain_words,
        )
    tokenizer = make_tokenizer(given, config.vocabulary.do_lower_case)
    wanted = min(places, config.vocabulary.domain_words)
    return with_domain_words(given, find_domain_words(_text(arguments), tokenizer, wanted))


def _train(arguments: JobArguments) -> Vocabulary:
    settings = arguments.config.vocabulary
    text, size, lower = _text(arguments), settings.size, settings.do_lower_case
    try:
        if settings.kind == "bpe":
            vocabulary = train_bpe(text, size=size)
        elif settings.kind == "wordpiece":
            vocabulary = train_wordpiece(text, size=size, do_lower_case=lower)
        else:
            vocabulary = train_sentencepiece(
                text, size=size, do_lower_case=lower, for_t5=settings.kind == "t5"
            )
    except UntrainableTextError as error:
        raise BadDataError(f"{arguments.pattern}: {error}") from error
    refuse_unfit(vocabulary, arguments.config, f"vocabulary trained on {arguments.pattern}")
    return vocabulary


def _text(arguments: JobArguments) -> TrainingText:
    inputs = list_inputs(arguments.pattern, arguments.partition, arguments.store)
    refuse_misread(inputs, arguments.config)
    return TrainingText(inputs, arguments.config)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("beam_jobs.train_vocabulary", __doc__)
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
            "kind": info.vocabulary_kind,
            "source": info.source,
            "domain_words": len(info.domain_words),
            "created": created,
            "seconds": round(time.monotonic() - began, 1),
        }

    return run_cli("train_vocabulary", job)


if __name__ == "__main__":
    run_alone(main)
