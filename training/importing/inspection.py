"""Inspects foreign weights: their kind, the settings that fit them, each tensor's outcome."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from corpus.tokens.vocabulary import SPECIAL_TOKENS
from pipeline_config import PipelineConfig
from pipeline_config.loading import with_overrides
from pipeline_config.row_shapes import longest_corrupted
from pipeline_config.training_schema import ModelConfig
from pipeline_store import uris
from trained_models.architectures.architecture import named, weights
from trained_models.errors import UserError
from trained_models.importing.descriptions import BERT, Description, describe
from trained_models.importing.plan import make_plan
from trained_models.importing.readers import Reader
from trained_models.importing.sources import TOKENIZER, SourceKind, file_names, source_kind, split
from trained_models.importing.vocabulary import (
    SourceVocabulary,
    plan_rows,
    source_vocabulary,
    tokenizer_lower_cases,
    vocabulary_kind,
)
from trained_models.loaded_weights import LoadedWeights
from trained_models.record_sources import split_tokens
from trained_models.weight_names import Part
from training.importing.loading import describe_shapes, embedding_rows, open_reader


class Inspection(NamedTuple):
    """The result of an inspection.

    :param description: the file with the architecture, or the weights, whose shapes show it.
    :param vocabulary: vocabulary of the source; None: unknown.
    :param settings: settings to train from the weights, by ``section.name``.
    :param table: the outcome for each weight.
    :param strangers: names of tensors that our model has no place for.
    """

    kind: SourceKind
    description: Description
    vocabulary: SourceVocabulary | None
    settings: dict[str, Any]
    table: LoadedWeights
    strangers: tuple[str, ...]

    def preset(self) -> str:
        """Return the settings as the text of a preset."""
        sections: dict[str, list[str]] = {}
        for name, value in self.settings.items():
            section, _, key = name.partition(".")
            text = json.dumps(value, ensure_ascii=False)
            sections.setdefault(section, []).append(f"{key} = {text}")
        parts = [f"[{section}]\n" + "\n".join(lines) for section, lines in sections.items()]
        return "\n\n".join(parts) + "\n"


def inspect(uri: str, vocabulary_uri: str | None = None) -> Inspection:
    """Inspect weights without training from them.

    :param uri: URI of foreign weights.
    :param vocabulary_uri: ``vocab.txt`` for the model; None: that of the source.
    :raises FileNotFoundError: the vocabulary is missing.
    :raises UserError: no readable weights were found, or their architecture is not supported.
    :raises BadDataError: a file is damaged.
    """
    kind = source_kind(uri)
    if kind is SourceKind.OURS:
        raise UserError(
            f"{uri} is a model of this project: --init-model and model.init_checkpoint take it as "
            "it is, with the settings in its own config.json or inputs.json."
        )
    found, known = describe(uri, kind), source_vocabulary(uri, kind)
    tokens = known.tokens if known else ()
    if vocabulary_uri is not None:
        tokens = split_tokens(uris.read(vocabulary_uri).decode())
    # Only TensorFlow checkpoints can lack a description, and all readable ones are BERT's.
    architecture = named(found.settings["architecture"] if found else BERT)
    with open_reader(uri, kind, architecture.hugging_face) as reader:
        found = found or describe_shapes(reader)
        settings = {f"model.{name}": value for name, value in found.settings.items()}
        settings |= {"model.init_checkpoint": uri}
        settings |= _fitted(reader, found, len(tokens))
        settings |= _tokenization(vocabulary_uri or (known.uri if known else None), tokens)
        # Needed in case there is no vocabulary to derive them from.
        settings |= _of_architecture(ModelConfig.model_construct(**found.settings))
        model = with_overrides(PipelineConfig(), settings).model
        rows = plan_rows(known, embedding_rows(reader, model), tokens, model.vocab_size)
        plan = make_plan(reader, model, rows, next_sentence=False)
    return Inspection(kind, found, known, settings, plan.table, plan.strangers)


def _of_architecture(model: ModelConfig) -> dict[str, Any]:
    """Return settings that follow from the architecture alone."""
    if model.has_byte_tokens:
        return {"vocabulary.kind": "bpe", "vocabulary.do_lower_case": False}
    if not model.has_decoder:
        return {}
    masking = PipelineConfig().masking
    return {
        "vocabulary.kind": "t5",
        "vocabulary.do_lower_case": False,
        "masking.unit": "sentinel",
        "masking.max_predictions_per_seq": longest_corrupted(
            masking, masking.max_seq_length
        ).target,
        "promotion.export_formats": ["hugging_face"],
    }


def _fitted(reader: Reader, found: Description, tokens: int) -> dict[str, Any]:
    """Return settings that the weights require, and lower limits where defaults exceed them."""
    model = ModelConfig.model_construct(**found.settings)
    rows = max(embedding_rows(reader, model), tokens)
    settings: dict[str, Any] = {"model.vocab_size": rows}
    heads = [w for w in weights(model, next_sentence=False) if w.part is Part.MASKED_LM]
    if heads and not any(map(reader.find, heads)):
        settings["model.init_encoder_only"] = True
    defaults = PipelineConfig()
    if rows < defaults.vocabulary.size:
        settings["vocabulary.size"] = rows
    if model.max_position_embeddings < defaults.masking.max_seq_length:
        settings["masking.max_seq_length"] = model.max_position_embeddings
    return settings


def _tokenization(file: str | None, tokens: Sequence[str]) -> dict[str, Any]:
    if file is None:
        return {}
    kind, folder = vocabulary_kind(tokens), split(file)[0]
    # Byte-level BPE and T5 take text as it is.
    lower = kind not in {"bpe", "t5"} and _lower_cases(folder, tokens)
    settings: dict[str, Any] = {"vocabulary.kind": kind, "vocabulary.do_lower_case": lower}
    if kind == "wordpiece" and not file.endswith(TOKENIZER):
        settings["vocabulary.uri"] = file
    if kind == "bpe":
        settings["vocabulary.uri"] = file
    if kind in {"sentencepiece", "t5"}:
        models = [name for name in file_names(folder) if name.endswith(".model")]
        settings |= {"vocabulary.uri": uris.join(folder, models[0])} if models else {}
    return settings


def _lower_cases(folder: str, tokens: Sequence[str]) -> bool:
    """Return whether text is lower-cased, by the tokenizer's setting or else by the tokens."""
    says = tokenizer_lower_cases(folder)
    if says is not None:
        return says
    return all(token == token.lower() for token in tokens if token not in SPECIAL_TOKENS)
