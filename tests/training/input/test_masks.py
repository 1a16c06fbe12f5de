"""Masks drawn while training: the data job's function, anew in each epoch, and nothing else."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from corpus.mlm_records import mask_rows, row_keys, token_table
from pipeline_config import PipelineConfig
from pipeline_store.formats import FormatError, VocabularyInfo
from tests.training.conftest import replicas
from tests.training.corpora import (
    FIRST_WORD,
    MASK,
    TOKENS,
    TinyStore,
    masking_recipe,
    tiny_config,
    training_batches,
)
from trained_models import record_sources
from trained_models.phases import phases
from training.input import examples
from training.input.masks import Masker, load_masker
from training.input.order import Order
from training.input.records import RecordReader

CONFIG = tiny_config(masking__dynamic=True, masking__max_seq_length=32, training__train_steps=15)
Batch = dict[str, np.ndarray]


@pytest.fixture
def store(tiny: TinyStore) -> TinyStore:
    return tiny.using(CONFIG)


@pytest.fixture
def reader(store: TinyStore) -> RecordReader:
    """Return 36 records: batches of 8 span the epochs."""
    uri = store.partition("2026-01-01", documents=9)
    return RecordReader(record_sources.training_sources([uri], store.layout, CONFIG))


@pytest.fixture
def masker(store: TinyStore) -> Masker:
    return load_masker(store.layout, CONFIG)


def batches(
    reader: RecordReader,
    masker: Masker,
    *,
    config: PipelineConfig = CONFIG,
    first_step: int = 0,
    count: int = 1,
) -> list[Batch]:
    """Return all batches from a step on, the shares of replicas put together."""
    strategy = replicas(count)
    dataset = training_batches(reader, config, strategy, first_step=first_step, masker=masker)
    return [
        {
            name: np.concatenate(
                [share.numpy() for share in strategy.experimental_local_results(value)]
            )
            for name, value in batch.items()
        }
        for (batch,) in dataset
    ]


def joined(some: list[Batch]) -> Batch:
    return {name: np.concatenate([batch[name] for batch in some]) for name in some[0]}


def assert_equal(some: list[Batch], others: list[Batch]) -> None:
    assert len(some) == len(others) > 0
    for one, other in zip(some, others, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def originals(batch: Batch) -> np.ndarray:
    """Return the rows as they were before they were masked."""
    tokens = batch["input_word_ids"].copy()
    row, slot = np.nonzero(batch["masked_lm_weights"])
    tokens[row, batch["masked_lm_positions"][row, slot]] = batch["masked_lm_ids"][row, slot]
    return tokens


def test_batch_has_what_one_of_masked_records_has(reader: RecordReader, masker: Masker) -> None:
    batch = batches(reader, masker, first_step=14)[0]
    assert {name: (value.shape, value.dtype.name) for name, value in batch.items()} == {
        "input_word_ids": ((8, 32), "int32"),
        "input_mask": ((8, 32), "int32"),
        "input_type_ids": ((8, 32), "int32"),
        "masked_lm_positions": ((8, 4), "int32"),
        "masked_lm_ids": ((8, 4), "int32"),
        "masked_lm_weights": ((8, 4), "float32"),
    }


def test_masks_are_those_of_the_data_jobs_function(reader: RecordReader, masker: Masker) -> None:
    found = joined(batches(reader, masker))
    order = Order(phases(CONFIG)[0], seed=1, new_records=36)
    steps = [order.rows(step) for step in tf.range(CONFIG.training.train_steps, dtype=tf.int64)]
    numbers = np.concatenate([rows.numbers.numpy() for rows in steps])
    epochs = np.concatenate([rows.epochs.numpy() for rows in steps])
    assert set(epochs) == {0, 1, 2, 3}
    rows = examples.parse(tf.constant(reader.read(numbers)), reader.row_format)
    keys = row_keys(
        rows["document_id"].numpy()[:, 0].view(np.uint64),
        rows["row_number"].numpy()[:, 0].view(np.uint64),
        epochs.astype(np.uint64),
    )
    expected = mask_rows(
        rows["input_ids"].numpy(),
        rows["input_mask"].numpy().sum(axis=1),
        keys,
        token_table(TOKENS, "wordpiece"),
        masking_recipe(CONFIG, reader.row_format),
    )
    np.testing.assert_array_equal(found["input_word_ids"], expected.input_ids)
    np.testing.assert_array_equal(found["masked_lm_positions"], expected.positions)
    np.testing.assert_array_equal(found["masked_lm_ids"], expected.ids)
    np.testing.assert_array_equal(found["masked_lm_weights"], expected.weights)


def test_every_epoch_masks_the_same_rows_differently(reader: RecordReader, masker: Masker) -> None:
    everything = joined(batches(reader, masker))
    rows, seen = originals(everything), everything["input_word_ids"]
    epochs = [slice(36 * epoch, 36 * (epoch + 1)) for epoch in range(3)]
    texts = [sorted(map(bytes, rows[epoch])) for epoch in epochs]
    assert texts[0] == texts[1] == texts[2]
    by_text: dict[bytes, set[bytes]] = {}
    for row, masked in zip(rows[:108], seen[:108], strict=True):
        by_text.setdefault(bytes(row), set()).add(bytes(masked))
    different = np.array([len(masks) for masks in by_text.values()])
    # Two epochs may happen to mask a short row alike.
    assert different.mean() > 2.7


def test_share_and_kind_of_masks_are_berts(store: TinyStore, masker: Masker) -> None:
    uri = store.partition("2026-01-02", documents=200)
    reader = RecordReader(record_sources.training_sources([uri], store.layout, CONFIG))
    config = tiny_config(
        masking__dynamic=True, masking__max_seq_length=32, training__global_batch_size=400
    )
    found = joined(batches(reader, masker, config=config))
    row, slot = np.nonzero(found["masked_lm_weights"])
    place = found["masked_lm_positions"][row, slot]
    labels, seen = found["masked_lm_ids"][row, slot], found["input_word_ids"][row, place]
    lengths = found["input_mask"].sum(axis=1)
    wanted = np.clip(np.rint(lengths * CONFIG.masking.masked_lm_prob), 1, 4)
    np.testing.assert_array_equal(found["masked_lm_weights"].sum(axis=1), wanted)
    assert (labels >= FIRST_WORD).all()
    assert (seen == MASK).mean() == pytest.approx(0.8, abs=0.02)
    assert (seen == labels).mean() == pytest.approx(0.1, abs=0.02)


def test_masks_from_a_step_are_those_of_an_uninterrupted_run(
    reader: RecordReader, masker: Masker
) -> None:
    everything = batches(reader, masker)
    for step in (4, 5, 13):
        assert_equal(batches(reader, masker, first_step=step), everything[step:])


@pytest.mark.parametrize("count", [2, pytest.param(8, marks=pytest.mark.thorough)])
def test_replicas_do_not_change_the_masks(reader: RecordReader, masker: Masker, count: int) -> None:
    assert_equal(batches(reader, masker, count=count), batches(reader, masker))


def test_seed_of_the_masks_is_the_configured_one(store: TinyStore, reader: RecordReader) -> None:
    other = tiny_config(masking__dynamic=True, masking__max_seq_length=32, masking__random_seed=7)
    first, second = (
        batches(reader, load_masker(store.layout, config), first_step=11, config=CONFIG)[0]
        for config in (CONFIG, other)
    )
    np.testing.assert_array_equal(originals(first), originals(second))
    assert (first["input_word_ids"] != second["input_word_ids"]).any()


def test_vocabulary_that_is_not_the_lineages_is_refused(store: TinyStore) -> None:
    uri = store.layout.lineage("default").vocabulary
    content = Path(uri).read_bytes().replace(b"w17\n", b"w71\n")
    Path(uri).write_bytes(content)
    sha256 = hashlib.sha256(content).hexdigest()
    with pytest.raises(FormatError, match=rf"vocab.txt is damaged: its SHA-256 is {sha256}"):
        load_masker(store.layout, CONFIG)


def test_lines_of_the_vocabulary_are_ids_whatever_is_in_them(store: TinyStore) -> None:
    lineage = store.layout.lineage("default")
    # Unicode ends lines at these too, and a token may well be one of them.
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2028", "\x85", "word", "[MASK]"]
    content = "".join(f"{token}\n" for token in tokens).encode()
    Path(lineage.vocabulary).write_bytes(content)
    info = VocabularyInfo.load(lineage.vocabulary_info)
    digest = hashlib.sha256(content).hexdigest()
    info.model_copy(update={"tokens_sha256": digest}).write(lineage.vocabulary_info)
    table = load_masker(store.layout, CONFIG).table
    assert (table.mask_id, len(table.maskable)) == (7, 8)
