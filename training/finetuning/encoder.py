"""The encoder that a classifier is built on: its architecture, and whether its weights fit."""

from __future__ import annotations

from pipeline_config import PipelineConfig
from pipeline_config.training_schema import ModelConfig
from pipeline_store.formats import EncoderSource, TrainingInputs
from pipeline_store.layout import StoreLayout
from trained_models import artifacts
from trained_models.errors import UserError
from trained_models.importing.sources import SourceKind, source_kind


def architecture(uri: str) -> ModelConfig:
    """Return the architecture of a model of this project, including its lineage.

    :param uri: model version folder, or training folder of a finished run.
    :raises UserError: it is no model of this project.
    """
    if source_kind(uri) is not SourceKind.OURS:
        raise UserError(
            f"{uri} is no model of this project, so nothing says which lineage's tokens it takes. "
            "Begin a lineage with it, by model.init_checkpoint."
        )
    return model_settings(artifacts.load_inputs(artifacts.model_files(uri)))


def model_settings(inputs: TrainingInputs) -> ModelConfig:
    """Return the model section of training settings."""
    section = "model."
    values = {
        name.removeprefix(section): value
        for name, value in inputs.settings.items()
        if name.startswith(section)
    }
    return ModelConfig.model_validate(values)


def encoder_uri(encoder: EncoderSource, store: StoreLayout) -> str | None:
    """Return the URI of an encoder's weights; None: they are random."""
    return None if encoder.uri is None else store.resolve(encoder.uri)


def check_encoder(
    encoder: EncoderSource, store: StoreLayout, config: PipelineConfig, vocabulary_sha256: str
) -> None:
    """Refuse weights that would load but mean something else, or that are not the planned ones.

    :param config: its model section is the architecture.
    :param vocabulary_sha256: hash of the vocabulary that the task was tokenized with.
    :raises UserError: the message shows the difference.
    """
    from training.model.checkpoints import check_architecture

    uri = encoder_uri(encoder, store)
    if uri is None:
        return
    check_architecture(uri, config, vocabulary_sha256)
    if encoder.files_sha256 is None:
        return
    found = artifacts.model_files(uri).sha256
    if found != encoder.files_sha256:
        raise UserError(
            f"{uri} is not the model that was planned with: the hash of its files is {found}, the "
            f"plan says {encoder.files_sha256}. Start a new run."
        )
