"""The vocabulary of a lineage in the store: read and verified, or created once and for all."""

from __future__ import annotations

from beam_jobs.errors import UserError
from beam_jobs.vocabulary import Vocabulary, check_vocabulary, parse_vocabulary
from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import VocabularyInfo
from pipeline_store.layout import LineageLayout, StoreLayout


def load_vocabulary(config: PipelineConfig, store: StoreLayout) -> Vocabulary:
    """Return the vocabulary that the lineage's records are made with.

    :raises UserError: there is none yet, or the configuration does not fit it.
    """
    lineage = store.lineage(config.model.lineage_id)
    vocabulary = find_vocabulary(config, lineage)
    if vocabulary is None:
        raise UserError(
            f"lineage {config.model.lineage_id!r} has no vocabulary ({lineage.vocabulary_info}); "
            "create it first: python -m beam_jobs.train_vocabulary with the same arguments."
        )
    return vocabulary


def find_vocabulary(config: PipelineConfig, lineage: LineageLayout) -> Vocabulary | None:
    """Return the lineage's vocabulary, or None when it has none yet.

    :raises UserError: it is damaged, or the configuration does not fit it.
    """
    info = VocabularyInfo.load_or_none(lineage.vocabulary_info)
    if info is None:
        return None
    vocabulary = read_vocabulary(lineage.vocabulary)
    if vocabulary.sha256 != info.sha256:
        raise UserError(
            f"{lineage.vocabulary} has SHA-256 {vocabulary.sha256}, but {lineage.vocabulary_info} "
            f"says {info.sha256}: it was changed after it was committed. Restore it."
        )
    if info.do_lower_case != config.vocabulary.do_lower_case:
        raise UserError(
            f"vocabulary.do_lower_case={config.vocabulary.do_lower_case} differs from "
            f"{info.do_lower_case}, with which lineage {config.model.lineage_id!r} was begun "
            f"({lineage.vocabulary_info}). Use that value or another model.lineage_id."
        )
    refuse_unfit(vocabulary, config, lineage.vocabulary)
    return vocabulary


def read_vocabulary(uri: str) -> Vocabulary:
    """Read a ``vocab.txt``.

    :raises UserError: there is none, or it is not UTF-8 text.
    """
    try:
        return parse_vocabulary(uris.read(uri))
    except FileNotFoundError as error:
        raise UserError(f"vocabulary {uri} does not exist.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"vocabulary {uri} is not UTF-8 text: {error}.") from error


def refuse_unfit(vocabulary: Vocabulary, config: PipelineConfig, uri: str) -> None:
    """Check a vocabulary against the configuration.

    :raises UserError: it breaks a rule of :func:`check_vocabulary`; all are named.
    """
    problems = check_vocabulary(
        vocabulary.tokens,
        do_lower_case=config.vocabulary.do_lower_case,
        vocab_size=config.model.vocab_size,
    )
    if problems:
        raise UserError(f"{uri}: {' '.join(problems)}")


def create_vocabulary(
    vocabulary: Vocabulary, source: str, config: PipelineConfig, lineage: LineageLayout
) -> Vocabulary:
    """Give a lineage its vocabulary; return the one it has now, which may be another writer's.

    ``vocab.txt`` is only ever created, never replaced, and ``vocabulary.json`` is made from what
    is then stored. So two writers, or one that died in between, cannot leave a pair that does not
    belong together.

    :param source: where the vocabulary comes from, for ``vocabulary.json``.
    :raises UserError: a file that another writer left does not fit the configuration.
    """
    if not uris.create_if_absent(lineage.vocabulary, vocabulary.to_bytes()):
        stored = read_vocabulary(lineage.vocabulary)
        refuse_unfit(stored, config, lineage.vocabulary)
        if stored != vocabulary:
            source = f"{lineage.vocabulary}, left there by another writer"
        vocabulary = stored
    info = VocabularyInfo(
        sha256=vocabulary.sha256,
        size=len(vocabulary.tokens),
        do_lower_case=config.vocabulary.do_lower_case,
        source=source,
    )
    info.create(lineage.vocabulary_info)
    committed = find_vocabulary(config, lineage)
    assert committed is not None  # noqa: S101 - it was created two lines above
    return committed
