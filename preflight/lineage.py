"""Checks a configuration against its lineage: vocabulary and architecture are frozen in it."""

from __future__ import annotations

import operator
from collections.abc import Iterator

from beam_jobs.errors import UserError
from beam_jobs.lineage_vocabulary import find_vocabulary, read_vocabulary
from beam_jobs.vocabulary import Vocabulary, check_vocabulary
from pipeline_config import PipelineConfig, parse_config
from pipeline_store import uris
from pipeline_store.formats import ModelVersion, ProductionPointer
from pipeline_store.layout import StoreLayout, VersionLayout

_ARCHITECTURE = (
    "model.vocab_size",
    "model.hidden_size",
    "model.num_hidden_layers",
    "model.num_attention_heads",
    "model.intermediate_size",
    "model.max_position_embeddings",
    "model.type_vocab_size",
    "model.hidden_act",
)
# Candidate and model in use are compared on the held-out records of earlier partitions too, and one
# evaluation has one length of rows. It would fail after the training was paid for.
_RECORDS = ("masking.max_seq_length", "masking.max_predictions_per_seq")


def vocabulary_problems(config: PipelineConfig, store: StoreLayout) -> Iterator[str]:
    """Yield a line for every way in which the vocabulary does not fit.

    A given one must be a WordPiece vocabulary that fits model and casing. The lineage's own must
    fit the configuration, and be the same as a given one.
    """
    lineage = store.lineage(config.model.lineage_id)
    given, own = None, None
    if config.vocabulary.uri is not None:
        uri = store.resolve(config.vocabulary.uri)
        try:
            given = read_vocabulary(uri)
        except UserError as error:
            yield f"vocabulary.uri: {error}"
        else:
            yield from (f"vocabulary.uri: {uri}: {line}" for line in _check(given, config))
    try:
        own = find_vocabulary(config, lineage)
    except UserError as error:
        yield f"model.lineage_id: {error}"
    if given is not None and own is not None and given.sha256 != own.sha256:
        yield (
            f"vocabulary.uri: {config.vocabulary.uri} differs from the vocabulary of lineage "
            f"{config.model.lineage_id!r} ({lineage.vocabulary}), which is frozen. Leave "
            "vocabulary.uri empty, or use a new model.lineage_id."
        )


def _check(vocabulary: Vocabulary, config: PipelineConfig) -> list[str]:
    return check_vocabulary(
        vocabulary.tokens,
        do_lower_case=config.vocabulary.do_lower_case,
        vocab_size=config.model.vocab_size,
    )


def start_problems(config: PipelineConfig, store: StoreLayout) -> Iterator[str]:
    """Yield a line for every reason why training cannot start from the weights it should.

    That is the model in use, whose architecture and length of rows must be the configured ones, or
    else ``model.init_checkpoint``, whose vocabulary must be the lineage's too.
    """
    lineage = store.lineage(config.model.lineage_id)
    pointer = ProductionPointer.load_or_none(lineage.production)
    if pointer is not None:
        version = VersionLayout(lineage.version(pointer.version_id))
        yield from _differences(
            config,
            version,
            (*_ARCHITECTURE, *_RECORDS),
            f"lineage {config.model.lineage_id!r} has {pointer.version_id} in use, with",
            "Keep it, or use a new model.lineage_id.",
        )
    elif config.model.init_checkpoint is not None:
        yield from _init_checkpoint(config, store, config.model.init_checkpoint)


def _differences(
    config: PipelineConfig,
    version: VersionLayout,
    names: tuple[str, ...],
    whose: str,
    advice: str,
) -> Iterator[str]:
    data = uris.read_or_none(version.config)
    if data is None:
        yield (
            f"model.lineage_id: {version.config} is missing, so the model cannot be checked. "
            "Restore the version's folder, or put another into use with "
            "`python -m model_registry rollback`."
        )
        return
    frozen = parse_config(data, version.config)
    for name in names:
        wanted, existing = operator.attrgetter(name)(config), operator.attrgetter(name)(frozen)
        if wanted != existing:
            yield f"{name}: {wanted} is asked for, but {whose} {existing}. {advice}"


def _init_checkpoint(config: PipelineConfig, store: StoreLayout, start: str) -> Iterator[str]:
    version = VersionLayout(store.resolve(start))
    model = ModelVersion.load_or_none(version.model)
    if model is None:
        yield (
            f"model.init_checkpoint: {version.root} is no model version, as it has no model.json. "
            f"Give the folder of one, such as {store.lineage('default').version('v-0a1b2c3d4e5f')}."
        )
        return
    yield from _differences(
        config,
        version,
        _ARCHITECTURE,
        "model.init_checkpoint has",
        "Use its value, or leave model.init_checkpoint empty.",
    )
    if _lineage_vocabulary_sha256(config, store) != model.vocabulary_sha256:
        yield (
            f"model.init_checkpoint: {version.root} was trained with another vocabulary, so its "
            "token ids would mean other words. Start a new model.lineage_id with "
            f"vocabulary.uri={version.vocabulary}."
        )


def _lineage_vocabulary_sha256(config: PipelineConfig, store: StoreLayout) -> str | None:
    """Return the hash of the vocabulary the run will have; None when one will be trained."""
    lineage = store.lineage(config.model.lineage_id)
    uri = lineage.vocabulary
    if not uris.exists(lineage.vocabulary_info):
        if config.vocabulary.uri is None:
            return None
        uri = store.resolve(config.vocabulary.uri)
    try:
        return read_vocabulary(uri).sha256
    except UserError:
        # Named by vocabulary_problems already.
        return None
