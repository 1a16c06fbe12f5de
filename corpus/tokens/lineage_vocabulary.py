"""Reads a lineage's vocabulary from the store, checks it against the settings, or creates it."""

from __future__ import annotations

import hashlib

from corpus.errors import UserError
from corpus.tokens.bpe_model import parse_tokenizer_json, parse_vocab_json
from corpus.tokens.sentencepiece_model import parse_sentencepiece
from corpus.tokens.vocabulary import Vocabulary, check_vocabulary, domain_words, parse_vocabulary
from pipeline_config import PipelineConfig
from pipeline_config.unquoted import fault
from pipeline_store import request_paths, uris
from pipeline_store.formats import VocabularyInfo
from pipeline_store.layout import LineageLayout, StoreLayout, vocabulary_model
from pipeline_store.request_paths import OutsideRootsError

MODEL_SUFFIX = ".model"
TOKENIZER_JSON, VOCAB_JSON, MERGES = "tokenizer.json", "vocab.json", "merges.txt"
_NAMES = (
    f"a SentencePiece model is called *{MODEL_SUFFIX}, byte-level BPE {TOKENIZER_JSON}, or "
    f"{VOCAB_JSON} with {MERGES} beside it"
)


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


def given_vocabulary(config: PipelineConfig, store: StoreLayout) -> Vocabulary | None:
    """Return the vocabulary that ``vocabulary.uri`` names; None: it is empty.

    :raises UserError: it cannot be read, or the configuration does not fit it.
    """
    if config.vocabulary.uri is None:
        return None
    uri = store.resolve(config.vocabulary.uri)
    vocabulary = read_vocabulary(uri, by_request=True)
    refuse_unfit(vocabulary, config, uri)
    return vocabulary


def refuse_other(config: PipelineConfig, store: StoreLayout, found: Vocabulary) -> None:
    """Refuse a lineage whose vocabulary is neither the given one nor that with domain words.

    :raises UserError: it is another one.
    """
    given = given_vocabulary(config, store)
    if given is not None and domain_words(given, found) is None:
        lineage = store.lineage(config.model.lineage_id)
        raise UserError(
            f"lineage {config.model.lineage_id!r} has the vocabulary {lineage.vocabulary}, which "
            f"differs from vocabulary.uri={config.vocabulary.uri}. Leave vocabulary.uri empty or "
            "use another model.lineage_id."
        )


def find_vocabulary(config: PipelineConfig, lineage: LineageLayout) -> Vocabulary | None:
    """Return the lineage's vocabulary, or None if it has none yet.

    :raises UserError: it is damaged, or the configuration does not fit it.
    """
    info = VocabularyInfo.load_or_none(lineage.vocabulary_info)
    if info is None:
        return None
    vocabulary = read_committed(info, lineage)
    if info.do_lower_case != config.vocabulary.do_lower_case:
        raise UserError(
            f"vocabulary.do_lower_case={config.vocabulary.do_lower_case} differs from "
            f"{info.do_lower_case}, with which lineage {config.model.lineage_id!r} was begun "
            f"({lineage.vocabulary_info}). Use that value or another model.lineage_id."
        )
    refuse_unfit(vocabulary, config, lineage.vocabulary)
    return vocabulary


def read_committed(info: VocabularyInfo, lineage: LineageLayout) -> Vocabulary:
    """Read and verify the files that ``vocabulary.json`` names.

    :raises UserError: one is missing, or not what was committed.
    """
    expected = {lineage.vocabulary: info.tokens_sha256}
    if (model := vocabulary_model(lineage, info.vocabulary_kind)) is not None:
        expected[model] = info.sha256
    for uri, sha256 in expected.items():
        data = uris.read_or_none(uri)
        if data is None:
            raise UserError(
                f"{uri} is missing, but {lineage.vocabulary_info} names it. Restore it."
            )
        if (found := hashlib.sha256(data).hexdigest()) != sha256:
            raise UserError(
                f"{uri} has SHA-256 {found}, but {lineage.vocabulary_info} says {sha256}: it was "
                "changed after it was committed. Restore it."
            )
    return read_vocabulary(_defining_file(info.vocabulary_kind, lineage))


def _defining_file(kind: str, lineage: LineageLayout) -> str:
    return vocabulary_model(lineage, kind) or lineage.vocabulary


def read_vocabulary(uri: str, *, by_request: bool = False) -> Vocabulary:
    """Read a ``vocab.txt``, or another kind of vocabulary if the file's name says so.

    A SentencePiece model is called ``*.model``, byte-level BPE ``tokenizer.json``, or
    ``vocab.json`` with ``merges.txt`` next to it.

    :param by_request: whether a request names it, so that it must be a file that requests may read.
    :raises UserError: there is none, or it is not what its name says.
    """

    def read(file: str) -> bytes:
        return request_paths.read(file, model=True) if by_request else uris.read(file)

    name = uri.rpartition("/")[2]
    try:
        if name == VOCAB_JSON:
            return parse_vocab_json(read(uri), read(uri.removesuffix(VOCAB_JSON) + MERGES))
        if name == TOKENIZER_JSON:
            return parse_tokenizer_json(read(uri))
        parse = parse_sentencepiece if name.endswith(MODEL_SUFFIX) else parse_vocabulary
        return parse(read(uri))
    except OutsideRootsError as error:
        raise UserError(f"vocabulary.uri: {error}") from error
    except FileNotFoundError as error:
        beside = f" with {MERGES} beside it" if name == VOCAB_JSON else ""
        raise UserError(f"vocabulary {uri}{beside} does not exist.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"vocabulary {uri} is not UTF-8 text: {fault(error)}.") from None
    except ValueError as error:
        # Errors of our own parsers, which quote nothing.
        raise UserError(f"vocabulary {uri} {error}.") from error


def unfit(vocabulary: Vocabulary, config: PipelineConfig) -> list[str]:
    """Return one line for every way in which a vocabulary does not fit the configuration."""
    if vocabulary.kind != config.vocabulary.kind:
        problem = (
            f"it is of the kind {vocabulary.kind}, but vocabulary.kind is "
            f"{config.vocabulary.kind}. Set vocabulary.kind to {vocabulary.kind}, or use another "
            f"vocabulary ({_NAMES})."
        )
        return [problem]
    return check_vocabulary(
        vocabulary.tokens,
        do_lower_case=config.vocabulary.do_lower_case,
        vocab_size=config.model.vocab_size,
        kind=vocabulary.kind,
    )


def refuse_unfit(vocabulary: Vocabulary, config: PipelineConfig, uri: str) -> None:
    """Check a vocabulary against the configuration.

    :raises UserError: it is :func:`unfit`; all reasons are named.
    """
    problems = unfit(vocabulary, config)
    if problems:
        raise UserError(f"{uri}: {' '.join(problems)}")


def create_vocabulary(
    vocabulary: Vocabulary,
    source: str,
    config: PipelineConfig,
    lineage: LineageLayout,
    given: Vocabulary | None = None,
) -> Vocabulary:
    """Give a lineage its vocabulary; return the one it has now, which may be another writer's.

    The file that defines it is only ever created, never replaced, and ``vocabulary.json``, the
    commit, is made from what is then stored. So two writers, or one that died in between, cannot
    leave files that do not belong together.

    :param source: where the vocabulary comes from, for ``vocabulary.json``.
    :param given: the vocabulary that it was made from by adding domain words.
    :raises UserError: a file that another writer left does not fit.
    """
    stored = _store(vocabulary, config, lineage)
    if stored != vocabulary:
        source = f"{lineage.vocabulary}, left there by another writer"
    info = VocabularyInfo(
        vocabulary_kind=stored.kind,
        sha256=stored.sha256,
        tokens_sha256=stored.tokens_sha256,
        size=len(stored.tokens),
        do_lower_case=config.vocabulary.do_lower_case,
        source=source,
        domain_words=(domain_words(given, stored) or []) if given is not None else [],
    )
    info.create(lineage.vocabulary_info)
    committed = find_vocabulary(config, lineage)
    assert committed is not None  # noqa: S101 - it was created two lines above
    return committed


def _store(vocabulary: Vocabulary, config: PipelineConfig, lineage: LineageLayout) -> Vocabulary:
    """Write the vocabulary's files unless they exist; return the stored vocabulary."""
    uri = _defining_file(vocabulary.kind, lineage)
    for other in {lineage.sentencepiece_model, lineage.bpe_tokenizer} - {uri}:
        if uris.exists(other):
            raise _left_over(other)
    data = vocabulary.model or vocabulary.to_bytes()
    if not uris.create_if_absent(uri, data):
        vocabulary = read_vocabulary(uri)
        refuse_unfit(vocabulary, config, uri)
    # For kinds other than wordpiece, the readable list of tokens is still to be written.
    tokens = vocabulary.to_bytes()
    uris.create_if_absent(lineage.vocabulary, tokens)
    if uris.read(lineage.vocabulary) != tokens:
        raise _left_over(lineage.vocabulary)
    return vocabulary


def _left_over(uri: str) -> UserError:
    return UserError(
        f"{uri} was left by a try with other settings that never ended. Delete it if no other job "
        "is making a vocabulary for this lineage, and run again."
    )
