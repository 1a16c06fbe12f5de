"""What a lineage keeps of the weights that it began with: found at a start, read from a model."""

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
    """Return what a training's model has of what it began with; None: that is not known.

    :param config: of the training; whether it predicts next sentences matters.
    :param uri: of what it began with; None: random weights.
    :param loaded: what became of each weight of it.
    :param sentence_transformers: its files beside weights from elsewhere.
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
    """Return the heritage of a model of ours; None: it is of a time when it was not recorded.

    :raises FormatError: the file that says so is damaged.
    """
    inputs = TrainingInputs.load_or_none(uris.join(files.folder, files.inputs))
    return None if inputs is None else of_inputs(inputs)


def of_inputs(inputs: TrainingInputs) -> Heritage | None:
    """Return the heritage that is recorded in inputs, or follows from them."""
    if inputs.heritage is not None:
        return inputs.heritage
    # Of an earlier time, and still certain.
    was_trained = inputs.settings.get("masking.packing") == NEXT_SENTENCE_PACKING
    return Heritage(pooler_trained=True) if was_trained else None


def short_name(uri: str) -> str:
    """Return what a document calls weights: the end of their URI, without where it was read."""
    return "/".join(uri.rstrip("/").split("/")[-2:])
