"""T5 as a lineage's model: loss, gate's reference, exact resume, and a lineage by the commands."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from corpus.mlm_records import mask_rows, row_keys, token_table
from model_registry import gate
from pipeline_store.formats import EvaluationReport, ModelExports, VerdictKind
from pipeline_store.layout import ExportsLayout, RunLayout
from tests.training.corpora import T5, TinyStore, masking_recipe, tiny_config
from tests.training.importing.test_import_version import DAY, Beginning
from tests.training.jobs import result, train, train_arguments, train_until
from tests.training.pretrained import SIZES
from trained_models.errors import UserError
from trained_models.phases import phases
from trained_models.record_sources import RowFormat
from trained_models.text_to_text.sizes import describe
from trained_models.text_to_text.weights import read_weights
from training import evaluate, export_model
from training import train as train_command
from training.architectures.models import build_model
from training.architectures.t5.model import SpanPretrainer
from training.evaluation.evaluator import make_score_batch
from training.evaluation.unigram import cross_entropy, with_targets_own
from training.finetuning.model import build_classifier
from training.importing.inspection import inspect
from training.input.data import training_dataset
from training.loop.step import make_replica_step
from training.optimization.optimizers import build_optimizer
from training.runtime.strategies import create_strategy

FORMS = {"1.0": "relu", "1.1": "gelu_new"}
CONFIG = tiny_config(
    **T5,
    masking__dynamic=True,
    model__hidden_dropout_prob=0.1,
    training__train_steps=20,
    training__checkpoint_interval=10,
    training__steps_per_loop=10,
)


def losses_by_numpy(model: SpanPretrainer, batch: dict[str, np.ndarray]) -> np.ndarray:
    """Return the cross-entropy of each token of the targets, [R, P], from the plain forward pass.

    The model is given what the decoder reads by tf-models' own arguments, without padding removed.
    """
    targets = batch["masked_lm_ids"]
    shifted = np.pad(targets[:, :-1], ((0, 0), (1, 0)))
    source = batch["input_word_ids"].copy()
    source[:, 0] = 0
    outputs = model.transformer(
        encoder_input_tokens=tf.constant(source),
        decoder_target_tokens=tf.constant(targets),
        decoder_input_tokens=tf.constant(shifted),
        training=False,
    )
    logits = outputs["logits"].numpy().astype(np.float64)
    logits -= logits.max(axis=-1, keepdims=True)
    logs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return -np.take_along_axis(logs, targets[..., None], axis=-1)[..., 0]


@pytest.mark.parametrize("form", FORMS)
def test_the_loss_is_the_mean_over_the_targets_tokens(tmp_path: Path, form: str) -> None:
    config = tiny_config(**T5 | {"model__hidden_act": FORMS[form]}, masking__dynamic=True)
    store = TinyStore.create(tmp_path, config)
    data = store.training_data(store.partition(DAY))
    strategy = create_strategy(config, [8], one_machine=True)
    (batch,) = next(iter(training_dataset(data, phases(config)[0], 0, 0, strategy)))
    numbers = {name: value.numpy() for name, value in batch.items()}
    # No row is alike: targets end in different places, and what is behind them is padding.
    ends = (numbers["masked_lm_ids"] == 1).argmax(axis=1)
    assert len(set(ends)) > 1
    np.testing.assert_array_equal(numbers["masked_lm_weights"], numbers["masked_lm_ids"] != 0)

    with strategy.scope():
        model, scored = build_model(config), build_model(config)
        optimizer = build_optimizer(config, list(model.trainable_variables))
    wanted = losses_by_numpy(model, numbers) * numbers["masked_lm_weights"]
    step = make_replica_step(model, optimizer, config)
    metrics = strategy.run(step, args=(batch,))
    np.testing.assert_allclose(metrics.loss_sum, wanted.sum(), rtol=1e-5)
    assert float(metrics.masked_tokens) == numbers["masked_lm_weights"].sum()

    weights = np.ones(len(ends), np.float32)
    sums = make_score_batch(strategy, scored, next_sentence=False)((batch, weights)).numpy()
    np.testing.assert_allclose(sums[:, 0], wanted.sum(axis=1), rtol=1e-4)
    np.testing.assert_array_equal(sums[:, 3], ends + 1)


def test_epochs_have_spans_of_their_own_and_a_step_has_always_the_same(tmp_path: Path) -> None:
    store = TinyStore.create(tmp_path, CONFIG)
    data = store.training_data(store.partition(DAY))
    (part,) = data.parts
    assert part.masker is not None
    (phase,) = phases(CONFIG)
    strategy = create_strategy(CONFIG, [8], one_machine=True)
    whole = list(training_dataset(data, phase, 0, 0, strategy).take(12))
    later = next(iter(training_dataset(data, phase, 11, 0, strategy)))
    for name, value in later[0].items():
        np.testing.assert_array_equal(value, whole[11][0][name], err_msg=name)
    # 48 rows: six batches are an epoch, after which the same rows have other targets.
    one, other = (
        {tuple(row) for batch in epoch for row in batch[0]["masked_lm_ids"].numpy()}
        for epoch in (whole[:6], whole[6:])
    )
    assert len(one & other) < len(one) / 2


@pytest.mark.thorough
def test_it_goes_on_bit_by_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = TinyStore.create(tmp_path / "store", CONFIG)
    day, whole, cut = store.partition(DAY), store.run("whole"), store.run("cut")
    assert train(store, whole, day) == 0
    assert train_until(1, monkeypatch, store, cut, day) != 0
    assert train(store, cut, day) == 0
    assert result(cut).resumed_from == [10]
    assert result(cut).weights_sha256 == result(whole).weights_sha256


def test_sentinels_count_in_the_reference_as_often_as_they_are_asked_for() -> None:
    # Two words, then </s> and a sentinel, which the text to train on does not have.
    train, held_out = np.array([6.0, 2.0, 0.0, 0.0]), np.array([3.0, 1.0, 2.0, 2.0])
    maskable = np.array([True, True, False, False])
    known = with_targets_own(train, held_out, maskable)
    np.testing.assert_allclose(known, [6, 2, 4, 4])
    entropy = -(held_out @ np.log(np.array([7, 3, 5, 5]) / 20)) / 8
    assert cross_entropy(known, held_out, 4) == pytest.approx(entropy)
    # Nothing changes where only text is predicted.
    text = np.array([3.0, 1.0, 0.0, 0.0])
    np.testing.assert_array_equal(with_targets_own(train, text, maskable), train)


def test_frozen_spans_are_those_of_the_data_job(tmp_path: Path) -> None:
    """Held-out rows hold what the masks' own function makes of them with copy 0."""
    store = TinyStore.create(tmp_path, CONFIG)
    shape = RowFormat(16, 5, masked=True, next_sentence=False)
    features = store._features("held", 3, shape)
    plain = store._features("held", 3, RowFormat(16, 5, masked=False, next_sentence=False))
    table = token_table(store.vocabulary.tokens, "t5")
    documents, rows = (
        features[name].view(np.uint64)[:, 0] for name in ("document_id", "row_number")
    )
    lengths = features["input_mask"].sum(axis=1).astype(np.int32)
    keys = row_keys(documents, rows, 0)
    masked = mask_rows(plain["input_ids"], lengths, keys, table, masking_recipe(CONFIG, shape))
    np.testing.assert_array_equal(features["masked_lm_ids"], masked.ids)


def test_no_classifier_stands_on_it() -> None:
    with pytest.raises(UserError, match="classifiers stand on encoders alone"):
        build_classifier(CONFIG, 2, 0.0)


def exported(store: TinyStore, model: str, config: str, folder: Path) -> Path:
    arguments = ["--store", store.layout.root, "--config", config, "--output", str(folder)]
    assert export_model.main([*arguments, "--model", model]) == 0
    layout = ExportsLayout(str(folder))
    formats = ModelExports.load(layout.record).formats
    assert sorted(formats) == ["hugging_face"]
    return Path(layout.root, formats["hugging_face"].folder)


@pytest.mark.thorough
def test_a_lineage_from_a_published_model_through_two_updates(tmp_path: Path) -> None:
    # What is published: a T5 of the tiny shape, exported from a training of its own.
    first = TinyStore.create(tmp_path / "first", CONFIG)
    run = first.run("published")
    assert train(first, run, first.partition(DAY)) == 0
    source = exported(first, run.training.root, run.config, tmp_path / "published")
    sizes = describe(str(source))
    assert (sizes.form, sizes.d_kv, sizes.num_decoder_layers) == ("1.0", 12, 1)
    vocabulary = first.layout.lineage("default").sentencepiece_model
    assert (source / "spiece.model").read_bytes() == Path(vocabulary).read_bytes()
    found = inspect(str(source))
    assert found.table.fits
    assert not found.table.new
    assert found.settings["model.attention_head_size"] == 12
    assert found.settings["vocabulary.uri"] == f"{source}/spiece.model"
    assert (found.settings["masking.unit"], found.settings["vocabulary.kind"]) == ("sentinel", "t5")

    sizes_here = {name: getattr(CONFIG.model, name) for name in SIZES}
    settings = T5 | {f"model__{name}": value for name, value in sizes_here.items()}
    settings |= {"masking__dynamic": True, "promotion__min_documents": 2}
    beginning = Beginning(tmp_path / "store", str(source), **settings)
    beginning.make()
    before = beginning.lineage.version(beginning.version.version_id)
    for key in ("first", "second"):
        run = beginning.prepare(key, optimizer__learning_rate=1e-2)
        words = train_arguments(beginning.store, run, beginning.manifest)
        assert train_command.main([*words, "--init-model", before]) == 0
        report = score(beginning, run, before)
        name = before.rpartition("/")[2]
        verdict = gate.judge(report, beginning.config.promotion, baseline_version=name)
        assert verdict.verdict is VerdictKind.PROMOTED, verdict.reason
        assert verdict.improvement_low > 0
        before = run.training.root
    folder = exported(beginning.store, run.training.root, run.config, tmp_path / "out")
    said = json.loads((folder / "config.json").read_text())
    assert said["architectures"] == ["T5ForConditionalGeneration"]
    values = read_weights(str(folder), describe(str(folder)))
    assert not np.array_equal(
        values["shared/embedding"],
        read_weights(str(source), describe(str(source)))["shared/embedding"],
    )


def score(beginning: Beginning, run: RunLayout, baseline: str) -> EvaluationReport:
    """Score a run's model beside what it began with, by the command."""
    output = run.evaluation(None)
    words = ["--store", beginning.store.layout.root, "--config", run.config, "--output", output]
    words += ["--current-set", DAY, "--set", f"{DAY}={beginning.manifest}"]
    words += ["--model", f"candidate={run.training.root}", "--model", f"baseline={baseline}"]
    assert evaluate.main(words) == 0
    return EvaluationReport.load(output)
