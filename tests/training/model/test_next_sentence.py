"""Next-sentence prediction: trained, saved, scored, and not mixed silently with models without."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pipeline_store.formats import CheckpointManifest, EvaluationReport, PartitionManifest, Split
from pipeline_store.layout import RunLayout
from tests.training.conftest import TwoDays
from tests.training.corpora import ROWS_PER_DOCUMENT, TinyStore, tiny_config
from tests.training.jobs import result, train
from trained_models import artifacts, record_sources
from training import evaluate
from training.architectures.models import build_model, named_variables, trained_variables
from training.importing.tensorflow_checkpoints import keys_by_name
from training.input import examples
from training.model import checkpoints
from training.model.losses import next_sentence_scores

PAIRS = {"masking__packing": "segment_pair"}
HEAD = {"bert/next_sentence/logits/kernel", "bert/next_sentence/logits/bias"}
POOLER = {"bert_encoder/pooler_transform/kernel", "bert_encoder/pooler_transform/bias"}


@pytest.fixture
def pairs(tiny: TinyStore) -> TinyStore:
    return tiny.using(tiny_config(**PAIRS))


class OnePairedDay:
    """A store with a partition of pairs and a model for it."""

    def __init__(self, store: TinyStore) -> None:
        self.store = store
        self.manifest = store.partition("2026-01-01")
        self.run: RunLayout = store.run("pairs")
        assert train(store, self.run, self.manifest) == 0


@pytest.fixture(scope="module")
def paired_day(tmp_path_factory: pytest.TempPathFactory) -> OnePairedDay:
    """Return a trained day; tests must not change it."""
    folder = tmp_path_factory.mktemp("pairs")
    return OnePairedDay(TinyStore.create(folder, tiny_config(**PAIRS)))


def weights(run: RunLayout) -> dict[str, np.ndarray]:
    files = artifacts.model_files(run.training.root)
    reader = tf.train.load_checkpoint(f"{files.folder}/{files.prefix}")
    keys = keys_by_name(reader)
    return {name: reader.get_tensor(key) for name, key in keys.items()}


@pytest.mark.thorough
def test_model_learns_which_segment_is_next(
    pairs: TinyStore, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny_config(
        **PAIRS,
        training__train_steps=300,
        training__checkpoint_interval=50,
        training__steps_per_loop=50,
        training__global_batch_size=32,
        training__max_to_keep=10,
        optimizer__learning_rate=1e-2,
    )
    manifest = pairs.partition("2026-01-01", shards=1, documents=16)
    run = pairs.run("r", config)
    assert train(pairs, run, manifest) == 0
    first = CheckpointManifest.load(run.training.checkpoint(50))
    done = result(run)
    assert first.next_sentence_loss is not None
    assert done.next_sentence_loss is not None
    # Guessing is worth 0.69 nats and right half of the time.
    assert first.next_sentence_loss > 0.1
    assert done.next_sentence_loss < 0.05
    assert done.next_sentence_accuracy == pytest.approx(1.0, abs=0.01)
    assert done.final_loss < first.loss
    assert "(100.0% right)" in capsys.readouterr().out


def test_scores_are_logged_saved_and_in_tensorboard(
    paired_day: OnePairedDay, capsys: pytest.CaptureFixture[str]
) -> None:
    training = paired_day.run.training
    assert train(paired_day.store, paired_day.run, paired_day.manifest) == 0
    done, last = result(paired_day.run), CheckpointManifest.load(training.checkpoint(12))
    assert done.next_sentence_loss == last.next_sentence_loss
    assert done.next_sentence_accuracy == last.next_sentence_accuracy
    text = f"next sentence {done.next_sentence_loss:.4f} ({done.next_sentence_accuracy:.1%} right)"
    assert text in capsys.readouterr().out
    events = EventAccumulator(training.events).Reload()
    assert {"loss", "next_sentence_loss", "next_sentence_accuracy"} <= set(events.Tags()["tensors"])
    shown = tf.make_ndarray(events.Tensors("next_sentence_loss")[-1].tensor_proto)
    assert float(shown) == pytest.approx(done.next_sentence_loss)


def test_pooler_and_head_are_trained(paired_day: OnePairedDay) -> None:
    config = paired_day.store.config
    start = build_model(config)
    names = {variable.name.removesuffix(":0") for variable in trained_variables(start, config)}
    assert names >= HEAD | POOLER
    trained = weights(paired_day.run)
    for name in HEAD | POOLER:
        moved = np.abs(trained[name] - named_variables(start)[name].numpy()).max()
        assert moved > 1e-3, name


def test_head_stands_upon_the_encoders_pooler(paired_day: OnePairedDay) -> None:
    model = build_model(paired_day.store.config)
    row = tf.ones([2, 16], tf.int32)
    outputs = model({"input_word_ids": row, "input_mask": row, "input_type_ids": row})
    (head,) = model.classification_heads
    np.testing.assert_array_equal(outputs["next_sentence"], head.out_proj(outputs["pooled_output"]))


def test_tf_models_finds_the_pooler(paired_day: OnePairedDay) -> None:
    model = build_model(tiny_config(training__random_seed=5))
    pooler = model.encoder_network.pooler_layer
    files = artifacts.model_files(paired_day.run.training.root)
    # As official.nlp.tasks.sentence_prediction does it with `init_cls_pooler`.
    items = {"encoder": model.encoder_network, "next_sentence.pooler_dense": pooler}
    status = tf.train.Checkpoint(**items).read(f"{files.folder}/{files.prefix}")
    status.expect_partial().assert_existing_objects_matched()
    kernel = weights(paired_day.run)["bert_encoder/pooler_transform/kernel"]
    np.testing.assert_array_equal(pooler.kernel.numpy(), kernel)


def test_head_begins_anew_where_the_model_has_none(
    pairs: TinyStore, two_days: TwoDays, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, run = pairs.partition("2026-01-03"), pairs.run("r")
    assert train(pairs, run, manifest, "--init-model", two_days.first.training.root) == 0
    output = capsys.readouterr().out
    assert "28 variables loaded, 2 new, 0 dropped, 0 of another shape" in output
    for name in HEAD:
        assert f"new        {name}" in output
    assert "trained without next-sentence prediction" in output
    assert weights(run).keys() >= HEAD


def test_head_is_dropped_where_nothing_trains_it(
    tiny: TinyStore, paired_day: OnePairedDay, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, run = tiny.partition("2026-01-03"), tiny.run("r")
    assert train(tiny, run, manifest, "--init-model", paired_day.run.training.root) == 0
    output = capsys.readouterr().out
    assert "28 variables loaded, 0 new, 2 dropped, 0 of another shape" in output
    assert "dropped    bert/next_sentence/logits/kernel" in output
    assert not HEAD & weights(run).keys()
    for name in POOLER:
        np.testing.assert_array_equal(weights(run)[name], weights(paired_day.run)[name])


def test_run_does_not_go_on_with_or_without_the_head(
    paired_day: OnePairedDay, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = TinyStore.create(tmp_path / "store", tiny_config(**PAIRS))
    run = store.run("r", tiny_config(**PAIRS, training__train_steps=4))
    assert train(store, run, store.partition("2026-01-01")) == 0
    other = store.using(tiny_config(training__train_steps=4))
    Path(run.config).write_bytes(other.config.to_bytes())
    assert train(store, run, other.partition("2026-01-02")) != 0
    assert "masking.packing was 'segment_pair' and is 'doc_sentences'" in capsys.readouterr().out


def evaluated(
    store: TinyStore, run: RunLayout, manifests: dict[str, str], models: dict[str, str], path: Path
) -> EvaluationReport:
    sets = [word for name, uri in manifests.items() for word in ("--set", f"{name}={uri}")]
    named = [word for name, uri in models.items() for word in ("--model", f"{name}={uri}")]
    words = ["--store", store.layout.root, "--config", run.config, "--output", str(path)]
    assert evaluate.main([*words, "--current-set", next(iter(manifests)), *sets, *named]) == 0
    return EvaluationReport.load(str(path))


def test_evaluation_scores_both_and_compares_masked_lm(
    paired_day: OnePairedDay,
    two_days: TwoDays,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = paired_day.store
    models = {
        "candidate": paired_day.run.training.root,
        "baseline": two_days.second.training.root,
    }
    old = TinyStore(store.layout, tiny_config()).partition("2025-12-31")
    sets = {"2026-01-01": paired_day.manifest, "2025-12-31": old}
    report = evaluated(store, paired_day.run, sets, models, tmp_path / "report.json")
    table = capsys.readouterr().out
    candidate, baseline = (model.sets[0] for model in report.models)

    manifest = PartitionManifest.load(paired_day.manifest)
    sources = record_sources.record_sources(manifest, Split.VALIDATION, store.layout, store.config)
    model = build_model(store.config)
    checkpoints.load_weights(model, paired_day.run.training.root)
    expected: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(2))
    for record in tf.data.TFRecordDataset([source.data_uri for source in sources]).batch(1):
        row = examples.parse(record, sources[0].row_format)
        inputs = examples.model_inputs(row)
        right = float(next_sentence_scores(model(inputs), inputs).correct[0])
        document = f"{int(row['document_id'][0, 0]) % 2**64:016x}"
        expected[document] += [right, 1]
    sums = [candidate.next_sentence_correct_sums, candidate.row_counts]
    np.testing.assert_array_equal(
        np.array(sums).T, [expected[document] for document in candidate.document_ids]
    )
    assert set(candidate.row_counts or []) == {ROWS_PER_DOCUMENT}
    assert f"{candidate.next_sentence_accuracy:.1%}" in table
    assert "next sentence" in table

    # The baseline was never trained for it, and the older set has no pairs.
    assert baseline.next_sentence_accuracy is None
    assert [model.sets[1].next_sentence_accuracy for model in report.models] == [None, None]
    assert candidate.token_counts == baseline.token_counts
    assert candidate.loss != baseline.loss


def test_models_with_the_head_are_compared_without_pairs_too(
    tiny: TinyStore, paired_day: OnePairedDay, two_days: TwoDays, tmp_path: Path
) -> None:
    run = tiny.run("r")
    models = {
        "candidate": two_days.second.training.root,
        "baseline": paired_day.run.training.root,
    }
    sets = {"2026-01-03": tiny.partition("2026-01-03")}
    report = evaluated(tiny, run, sets, models, tmp_path / "report.json")
    assert [model.sets[0].next_sentence_accuracy for model in report.models] == [None, None]
    assert report.models[0].sets[0].loss != report.models[1].sets[0].loss
