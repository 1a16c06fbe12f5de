"""What the index of a checkpoint says is what TensorFlow reads from it."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest
import tensorflow as tf

from pipeline_config import PipelineConfig
from pipeline_store import uris
from tests.training.pretrained import SIZES, bert_weights, write_google
from trained_models.architectures.architecture import weights
from trained_models.errors import BadDataError
from trained_models.importing.checkpoint_index import OBJECT_GRAPH, CheckpointIndex, read_index
from training.importing.tensorflow_checkpoints import open_checkpoint


def by_tensorflow(prefix: str) -> dict[str, tuple[int, ...]]:
    shapes = tf.train.load_checkpoint(prefix).get_variable_to_shape_map()
    return {name: tuple(shape) for name, shape in shapes.items() if name != OBJECT_GRAPH}


def index_of(prefix: str) -> CheckpointIndex:
    return read_index(prefix, uris.open_stream)


@pytest.fixture
def objects(tmp_path: Path) -> str:
    """Return a checkpoint of objects, with an optimizer that has moments of each weight."""
    layers = [
        tf.keras.layers.Dense(3 + number, name=f"transformer_layer_{number}")
        for number in range(60)
    ]
    model = tf.keras.Sequential(layers, name="encoder")
    model.build((None, 2))
    optimizer = tf.keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    return str(tf.train.Checkpoint(model=model, optimizer=optimizer).write(str(tmp_path / "c")))


def test_a_checkpoint_of_tensorflow_1(tmp_path: Path) -> None:
    prefix = write_google(tmp_path / "g", bert_weights())
    found = index_of(prefix)
    assert found.keys is None
    assert found.shapes == by_tensorflow(prefix)
    model = PipelineConfig().model.model_copy(update=SIZES)
    reader = open_checkpoint(Path(prefix), prefix, [])
    wanted = weights(model, next_sentence=True)
    assert [found.find(weight) for weight in wanted] == [reader.find(weight) for weight in wanted]


def test_a_checkpoint_of_objects(objects: str) -> None:
    found = index_of(objects)
    assert found.shapes == by_tensorflow(objects)
    assert found.keys is not None
    assert len(found.keys) == 120
    names = {name.rpartition("transformer_")[2]: key for name, key in found.keys.items()}
    assert found.shapes[names["layer_7/kernel"]] == (9, 10)


def test_several_files_of_tensors(tmp_path: Path) -> None:
    parts = []
    for number in range(2):
        parts.append(str(tmp_path / f"part{number}"))
        names = [f"t{number}/{place}" for place in range(300)]
        tensors = [tf.zeros((place, 2)) for place in range(300)]
        tf.raw_ops.SaveV2(
            prefix=parts[-1],
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=tensors,
        )
    prefix = str(tmp_path / "all")
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=prefix)
    assert index_of(prefix).shapes == by_tensorflow(prefix)


def test_damaged_files_are_refused(objects: str) -> None:
    index = Path(f"{objects}.index")
    data = index.read_bytes()
    draw = random.Random(1)
    for number in range(300):
        changed = bytearray(data)
        if number % 2:
            del changed[draw.randrange(len(data)) :]
        else:
            changed[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        index.write_bytes(changed)
        # Checksums are not looked at, so some changes stay unseen. Nothing else is ever raised.
        with contextlib.suppress(BadDataError):
            index_of(objects)
    index.write_bytes(data)
    file = Path(f"{objects}.data-00000-of-00001")
    file.write_bytes(b"")
    with pytest.raises(BadDataError, match="cannot be read as the index"):
        index_of(objects)
