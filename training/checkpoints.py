"""Tensors to and from verified files: saving, exact restoring, and loading weights by name."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf
import tf_keras
from official.nlp.modeling.models import BertPretrainerV2
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import CheckpointManifest, TrainingInputs
from training import artifacts
from training.checkpoint_store import WEIGHTS_NAME
from training.errors import BadDataError, UserError
from training.model import NEXT_SENTENCE, named_variables

# Settings that change what the same weights compute; the rest of the model's follow from shapes.
ARCHITECTURE = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
    "hidden_act",
)


def _checkpoint(
    model: BertPretrainerV2, optimizer: tf_keras.optimizers.legacy.Optimizer
) -> tf.train.Checkpoint:
    # Also under the keys by which tf-models looks for the parts of a pretrained model.
    items = dict(model.checkpoint_items)
    items |= {f"{head.name}.pooler_dense": head.dense for head in model.classification_heads}
    return tf.train.Checkpoint(model=model, optimizer=optimizer, **items)


def write_files(
    folder: Path,
    model: BertPretrainerV2,
    optimizer: tf_keras.optimizers.legacy.Optimizer,
    inputs: TrainingInputs,
) -> list[Path]:
    """Write everything that training continues from into a local folder; return its files."""
    _checkpoint(model, optimizer).write(str(folder / WEIGHTS_NAME))
    (folder / artifacts.INPUTS_FILE).write_bytes(inputs.to_bytes())
    return sorted(folder.iterdir())


def restore(
    training_uri: str,
    manifest: CheckpointManifest,
    model: BertPretrainerV2,
    optimizer: tf_keras.optimizers.legacy.Optimizer,
) -> None:
    """Set weights, optimizer slots and the step to those of a checkpoint, all of them or none.

    :param optimizer: with its slots built; its ``iterations`` becomes the manifest's step.
    :raises FormatError: a file changed since it was verified.
    :raises BadDataError: the tensors are not those of this step.
    """
    files = artifacts.ModelFiles(training_uri, manifest.prefix, manifest.files)
    with tempfile.TemporaryDirectory() as scratch:
        prefix = artifacts.fetch_model(files, Path(scratch))
        status = _checkpoint(model, optimizer).read(str(prefix))
        status.assert_consumed()
    step = int(optimizer.iterations.numpy())
    if step != manifest.step:
        raise BadDataError(
            f"Checkpoint {manifest.step} of {training_uri} holds step {step}; it was not written "
            "by this trainer."
        )


class LoadedWeights(NamedTuple):
    """Names of variables by what happened to them when a model was loaded."""

    loaded: list[str]
    new: list[str]
    dropped: list[str]
    mismatched: list[str]

    @property
    def fits(self) -> bool:
        """Return whether the model may be used: nothing is amiss but a next-sentence head.

        That is two small variables that only pretraining uses. Rows of pairs can come and go in a
        lineage, so a head may begin with random weights, and one that nothing trains is dropped.
        """
        others = [n for n in (*self.new, *self.dropped) if not _is_next_sentence_head(n)]
        return not (others or self.mismatched)

    @property
    def has_next_sentence_head(self) -> bool:
        """Return whether a next-sentence head was loaded."""
        return any(map(_is_next_sentence_head, self.loaded))

    def __str__(self) -> str:
        head = (
            f"{len(self.loaded)} variables loaded, {len(self.new)} new, {len(self.dropped)} "
            f"dropped, {len(self.mismatched)} of another shape"
        )
        lines = [head]
        lines += [f"  new        {name}" for name in self.new]
        lines += [f"  dropped    {name}" for name in self.dropped]
        lines += [f"  mismatched {name}" for name in self.mismatched]
        if self.fits and self.new:
            lines.append(
                "It was trained without next-sentence prediction: the weights of that head are not "
                "from there, and the pooler has had no gradient."
            )
        if self.fits and self.dropped:
            lines.append("Next sentences are not predicted here: head dropped, pooler not trained.")
        return "\n".join(lines)


def _is_next_sentence_head(name: str) -> bool:
    return f"/{NEXT_SENTENCE}/" in name


def load_weights(model: BertPretrainerV2, model_uri: str) -> LoadedWeights:
    """Set all weights, encoder and heads, to those of a trained model, by name.

    Only a next-sentence head may be missing or left over: see :attr:`LoadedWeights.fits`.

    :param model: built model, as :func:`training.model.build_model` returns it.
    :param model_uri: a model version folder, or the ``training`` folder of a finished run.
    :raises UserError: the URI is no model, or a variable is missing, left over or of another
        shape; the message names them, and no weight was changed.
    :raises FormatError: a file does not verify.
    """
    files = artifacts.model_files(model_uri)
    with tempfile.TemporaryDirectory() as scratch:
        prefix = artifacts.fetch_model(files, Path(scratch))
        reader = tf.train.load_checkpoint(str(prefix))
        keys = _keys_by_name(reader)
        report = _compare(named_variables(model), keys, reader.get_variable_to_shape_map())
        if not report.fits:
            raise UserError(
                f"{model_uri} does not fit the configured model: {report}\nChoose a model of the "
                "same architecture, or set the model section to that of this one."
            )
        variables = named_variables(model)
        for name in report.loaded:
            variables[name].assign(reader.get_tensor(keys[name]))
    return report


def _keys_by_name(reader: tf.train.CheckpointReader) -> dict[str, str]:
    """Return the checkpoint key of each weight by variable name; optimizer slots are left out."""
    graph = TrackableObjectGraph()
    graph.ParseFromString(reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"))
    slots = {slot.slot_variable_node_id for node in graph.nodes for slot in node.slot_variables}
    optimizer = next((c.node_id for c in graph.nodes[0].children if c.local_name == "optimizer"), 0)
    own = {child.node_id for child in graph.nodes[optimizer].children} if optimizer else set()
    return {
        attribute.full_name: attribute.checkpoint_key
        for number, node in enumerate(graph.nodes)
        if number not in slots | own
        for attribute in node.attributes
        if attribute.full_name
    }


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

    Shapes do not show the activation function, nor which token a row of the embedding stands for.

    :raises UserError: the URI is no model, or its architecture or vocabulary differs.
    :raises FileNotFoundError: the model does not say what it was trained with.
    """
    files = artifacts.model_files(model_uri)
    inputs = TrainingInputs.load(uris.join(files.folder, files.inputs))
    wanted = config.model.model_dump(mode="json")
    problems = [
        f"model.{name} is {inputs.settings.get(f'model.{name}')!r} there and {wanted[name]!r} here"
        for name in ARCHITECTURE
        if inputs.settings.get(f"model.{name}") != wanted[name]
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
