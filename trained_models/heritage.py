"""The heritage of a lineage from its first weights: determined at a start, read from a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import Heritage, NewHead, TrainingInputs, TrainingResult
from pipeline_store.layout import TrainingLayout, is_head
from trained_models import artifacts
from trained_models.importing.sources import SourceKind, source_kind
from trained_models.loaded_weights import LoadedWeights
from trained_models.record_sources import NEXT_SENTENCE_PACKING, predicts_next_sentence

_POOLER = "pooler_transform/kernel"


def started(
    config: PipelineConfig,
    uri: str | None = None,
    loaded: LoadedWeights | None = None,
    sentence_transformers: Mapping[str, JsonValue] | None = None,
) -> Heritage | None:
    """Return what a training's model has from the weights it began with; None: it is not known.

    :param config: configuration of the training; it matters whether it predicts next sentences.
    :param uri: URI of the weights that it began with; None: random weights.
    :param loaded: the table of what happened to each of these weights.
    :param sentence_transformers: files of sentence-transformers next to weights from elsewhere.
    :raises FormatError: the model that it began with is damaged.
    """
    trains_pooler = predicts_next_sentence(config)
    if uri is None or loaded is None:
        return Heritage(pooler_trained=trains_pooler)
    if source_kind(uri) is not SourceKind.OURS:
        is_imported = any(f"/{name}".endswith(f"/{_POOLER}") for name in loaded.loaded)
        return Heritage(
            pooler_from=uri if is_imported else None,
            pooler_trained=trains_pooler,
            sentence_transformers=dict(sentence_transformers or {}),
            new_head=NewHead(steps=0) if config.model.init_encoder_only else None,
        )
    before = of_model(artifacts.model_files(uri))
    if before is None:
        return Heritage(pooler_trained=True) if trains_pooler else None
    trained: dict[str, Any] = {"pooler_trained": before.pooler_trained or trains_pooler}
    if is_head(uri):
        alone = TrainingResult.load(TrainingLayout(uri).result)
        trained["new_head"] = NewHead(steps=alone.train_steps, loss=alone.final_loss)
    return before.model_copy(update=trained)


def of_model(files: artifacts.ModelFiles) -> Heritage | None:
    """Return the heritage of a model of ours; None: it is from before heritages were recorded.

    :raises FormatError: the file that records it is damaged.
    """
    inputs = TrainingInputs.load_or_none(uris.join(files.folder, files.inputs))
    return None if inputs is None else of_inputs(inputs)


def of_inputs(inputs: TrainingInputs) -> Heritage | None:
    """Return the heritage that is recorded in inputs, or follows from them."""
    if inputs.heritage is not None:
        return inputs.heritage
    # From before it was recorded, but still certain.
    was_trained = inputs.settings.get("masking.packing") == NEXT_SENTENCE_PACKING
    return Heritage(pooler_trained=True) if was_trained else None


def short_name(uri: str) -> str:
    """Return the name of weights in a document: the last two parts of their URI."""
    return "/".join(uri.rstrip("/").split("/")[-2:])
