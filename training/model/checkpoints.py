"""Saves tensors to verified files, restores them exactly, and loads weights by name."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import tensorflow as tf
import tf_keras

from pipeline_config import PipelineConfig
from pipeline_store.formats import CheckpointManifest, TrainingInputs
from trained_models import artifacts
from trained_models.checkpoint_store import WEIGHTS_NAME
from trained_models.errors import BadDataError, UserError
from trained_models.importing.descriptions import ARCHITECTURE, BERT, check_description
from trained_models.importing.sources import SourceKind, source_kind
from trained_models.loaded_weights import LoadedWeights
from training.architectures.models import has_next_sentence_head, named_variables
from training.importing.loading import InitialModel, load_foreign
from training.importing.tensorflow_checkpoints import keys_by_name
from training.optimization.moments import Moments

# Prefix of the names of the pretraining heads' weights, in a model of ours.
_HEADS = "bert/"


def _checkpoint(
    model: tf_keras.Model, optimizer: tf_keras.optimizers.legacy.Optimizer | None
) -> tf.train.Checkpoint:
    # Also under the keys by which tf-models looks for the parts of a pretrained model.
    items = dict(model.checkpoint_items)
    for head in getattr(model, "classification_heads", []):
        items[f"{head.name}.pooler_dense"] = head.dense
    if optimizer is not None:
        items["optimizer"] = optimizer
    return tf.train.Checkpoint(model=model, **items)


def write_files(
    folder: Path,
    model: tf_keras.Model,
    optimizer: tf_keras.optimizers.legacy.Optimizer | None,
    inputs: TrainingInputs,
    options: tf.train.CheckpointOptions,
) -> list[Path]:
    """Write everything needed to resume training into a local folder; return its files.

    :param optimizer: None: only weights are written, of a model that was not trained here.
    """
    _checkpoint(model, optimizer).write(str(folder / WEIGHTS_NAME), options)
    (folder / artifacts.INPUTS_FILE).write_bytes(inputs.to_bytes())
    return sorted(folder.iterdir())


def restore(
    training_uri: str,
    manifest: CheckpointManifest,
    model: tf_keras.Model,
    optimizer: tf_keras.optimizers.legacy.Optimizer,
    options: tf.train.CheckpointOptions,
) -> None:
    """Set weights, optimizer slots and the step to those of a checkpoint, all of them or none.

    :param optimizer: with its slots built; its ``iterations`` becomes the manifest's step.
    :raises FormatError: a file changed since it was verified.
    :raises UserError: model or optimizer have other variables, or of another shape.
    :raises BadDataError: the tensors are not those of this step.
    """
    files = artifacts.ModelFiles(training_uri, manifest.prefix, manifest.files)
    with tempfile.TemporaryDirectory() as scratch:
        prefix = artifacts.fetch_model(files, Path(scratch))
        try:
            _checkpoint(model, optimizer).read(str(prefix), options).assert_consumed()
        except (ValueError, AssertionError) as error:
            raise UserError(
                f"The tensors of checkpoint {manifest.step} of {training_uri} are not those of the "
                f"configured model and optimizer: {error}. Restore the settings, or start a new "
                "run, with --init-model to begin with these weights."
            ) from error
    step = int(optimizer.iterations.numpy())
    if step != manifest.step:
        raise BadDataError(
            f"Checkpoint {manifest.step} of {training_uri} holds step {step}; it was not written "
            "by this trainer."
        )


def load_weights(
    model: tf_keras.Model, source: str | InitialModel, moments: Moments | None = None
) -> LoadedWeights:
    """Set all weights, encoder and heads, to those of a trained model, by name.

    :attr:`LoadedWeights.fits` defines what may be missing or left over: in a model of ours only a
    next-sentence head.

    :param model: built model, as :func:`training.architectures.models.build_model` returns it.
    :param source: a model version folder, or the ``training`` folder of a finished run; or weights
        of any format that :mod:`training.importing` reads, with their purpose.
    :param moments: those of the optimizer, to be set from a model of ours; None: not carried over.
    :raises UserError: the URI is no model, or a variable or moment is missing or of another shape,
        or a variable is left over; the message names them, and nothing was changed.
    :raises FormatError: a file of a model of ours does not verify.
    :raises BadDataError: a file of another model is damaged.
    """
    if isinstance(source, InitialModel) and source_kind(source.uri) is not SourceKind.OURS:
        has_head = has_next_sentence_head(model)
        return load_foreign(named_variables(model), source, next_sentence=has_head)
    return load_ours(named_variables(model), str(source), moments)


def load_encoder(encoder: tf_keras.layers.Layer, source: InitialModel) -> LoadedWeights:
    """Set an encoder's weights to those of a trained model; its heads are dropped.

    The pooler is loaded like the rest: without next-sentence prediction training does not change
    it, so all models of a lineage have the pooler that it began with.

    :param encoder: with all its variables.
    :param source: as for :func:`load_weights`.
    :raises UserError: the URI is no model, or a variable is missing or of another shape; the
        message names them, and nothing was changed.
    :raises FormatError: a file of a model of ours does not verify.
    :raises BadDataError: a file of another model is damaged.
    """
    variables = named_variables(encoder)
    if source_kind(source.uri) is not SourceKind.OURS:
        model = source.model.model_copy(update={"init_encoder_only": True})
        return _of_encoder(
            load_foreign(variables, replace(source, model=model), next_sentence=False)
        )
    return load_ours(variables, source.uri, unused=(_HEADS,))


def _of_encoder(table: LoadedWeights) -> LoadedWeights:
    """Return the table without the masked-LM head, which an encoder does not have."""
    new = [name for name in table.new if not name.startswith("cls/")]
    notes = tuple(note for note in table.notes if "masked-LM head is new" not in note)
    # It fits, so only the next-sentence head is dropped.
    return table._replace(new=new, notes=notes, allowed=table.allowed.union(table.dropped))


def load_ours(
    variables: dict[str, tf.Variable],
    model_uri: str,
    moments: Moments | None = None,
    unused: tuple[str, ...] = (),
) -> LoadedWeights:
    """Set variables to those of the same names in a model of ours, all of them or none.

    :param unused: name prefixes of weights that may be left over.
    :raises UserError: a weight is missing, left over or of another shape.
    :raises FormatError: a file does not verify.
    """
    files = artifacts.model_files(model_uri)
    with tempfile.TemporaryDirectory() as scratch:
        prefix = artifacts.fetch_model(files, Path(scratch))
        reader = tf.train.load_checkpoint(str(prefix))
        keys = keys_by_name(reader)
        report = _compare(variables, keys, reader.get_variable_to_shape_map())
        allowed = frozenset(name for name in report.dropped if name.startswith(unused))
        report = report._replace(allowed=allowed)
        if not report.fits:
            raise UserError(
                f"{model_uri} does not fit the configured model: {report}\nChoose a model of the "
                "same architecture, or set the model section to that of this one."
            )
        if moments is not None:
            carried = moments.read(reader, model_uri)
            moments.set(carried)
            report = report._replace(notes=(*report.notes, str(carried)))
        for name in report.loaded:
            variables[name].assign(reader.get_tensor(keys[name]))
    return report


def _compare(
    variables: dict[str, tf.Variable], keys: dict[str, str], shapes: dict[str, list[int]]
) -> LoadedWeights:
    common = sorted(variables.keys() & keys.keys())
    mismatched = {
        name: f"{name}: {shapes[keys[name]]} in the checkpoint, {variables[name].shape} here"
        for name in common
        if list(variables[name].shape) != list(shapes[keys[name]])
    }
    return LoadedWeights(
        loaded=[name for name in common if name not in mismatched],
        new=sorted(variables.keys() - keys.keys()),
        dropped=sorted(keys.keys() - variables.keys()),
        mismatched=list(mismatched.values()),
    )


def check_architecture(model_uri: str, config: PipelineConfig, vocabulary_sha256: str) -> None:
    """Refuse a model whose weights would load but mean something else here.

    Shapes show neither the activation function nor the token of each row of the embedding.

    :raises UserError: the URI is no model, or its architecture or vocabulary differs.
    :raises FileNotFoundError: the record of the model's training inputs is missing.
    """
    kind = source_kind(model_uri)
    if kind is not SourceKind.OURS:
        # Its vocabulary and embedding rows are checked when the weights are loaded.
        check_description(model_uri, kind, config.model)
        return
    files = artifacts.model_files(model_uri)
    inputs = artifacts.load_inputs(files)
    wanted = config.model.model_dump(mode="json")
    there = {name: inputs.settings.get(f"model.{name}") for name in ARCHITECTURE}
    # Models older than this setting do not record it.
    there["architecture"] = there["architecture"] or BERT
    problems = [
        f"model.{name} is {there[name]!r} there and {wanted[name]!r} here"
        for name in ARCHITECTURE
        if there[name] != wanted[name]
    ]
    if inputs.vocabulary_sha256 != vocabulary_sha256:
        problems.append(
            f"its vocabulary is {inputs.vocabulary_sha256}, the lineage's {vocabulary_sha256}"
        )
    if problems:
        raise UserError(
            f"{model_uri} does not fit: {'; '.join(problems)}. Architecture and vocabulary are "
            "frozen within a lineage; use the same settings, or start another lineage."
        )
