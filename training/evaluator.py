"""Scores of models on held-out documents: sums per document, from identical rows and masks."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from official.nlp.modeling.models import BertPretrainerV2

from pipeline_config import PipelineConfig
from pipeline_store.formats import DocumentSetScore, EvaluationReport, ModelScore
from pipeline_store.layout import StoreLayout
from training import artifacts, checkpoints, corpus, data, unigram
from training.errors import BadDataError
from training.evaluation_sets import EvaluationSet, open_set
from training.model import build_model
from training.records import RecordReader
from training.step import masked_lm_losses
from training.strategies import create_strategy

log = logging.getLogger("training")

# Of a batch: a replica's share of (model inputs, row weights) -> sums per row, [R, 3].
ScoreBatch = Callable[[tuple[dict[str, tf.Tensor], tf.Tensor]], tf.Tensor]


def evaluate(
    *,
    store: StoreLayout,
    config: PipelineConfig,
    current_set: str,
    manifest_uris: dict[str, str],
    model_uris: dict[str, str],
) -> EvaluationReport:
    """Score every model on every set.

    :param manifest_uris: partition manifest by set name.
    :param model_uris: model by name (``candidate``, ``baseline``).
    :raises JobError: see :mod:`training.errors`.
    """
    vocabulary = corpus.vocabulary_info(store, config)
    for uri in model_uris.values():
        checkpoints.check_architecture(uri, config, vocabulary.sha256)
    sets = [open_set(name, uri, store, config) for name, uri in manifest_uris.items()]

    strategy = create_strategy(config, config.evaluation.global_batch_size)
    with strategy.scope():
        model = build_model(config)
    score_batch = make_score_batch(strategy, model)
    scores = []
    for name, uri in model_uris.items():
        checkpoints.load_weights(model, uri)
        log.info("Scoring %s (%s).", name, uri)
        set_scores = [_score_set(chosen, score_batch, config, strategy) for chosen in sets]
        sha256 = artifacts.model_files(uri).sha256
        scores.append(ModelScore(name=name, model_uri=uri, files_sha256=sha256, sets=set_scores))

    train = RecordReader(corpus.training_sources(list(manifest_uris.values()), store, config))
    return EvaluationReport(
        partition=current_set,
        current_set=current_set,
        evaluated={chosen.name: chosen.manifest_sha256 for chosen in sets},
        models=scores,
        unigram_losses=_unigram_losses(sets, train, config, vocabulary.size),
    )


def make_score_batch(strategy: tf.distribute.Strategy, model: BertPretrainerV2) -> ScoreBatch:
    """Return a compiled function from a distributed batch to sums per row.

    Columns: loss in nats over the row's masked tokens, right predictions, masked tokens. Rows of
    weight 0 have sums of 0.
    """

    def replica_scores(batch: dict[str, tf.Tensor], row_weights: tf.Tensor) -> tf.Tensor:
        weights = batch["masked_lm_weights"] * row_weights[:, None]
        logits = model(batch, training=False)["mlm_logits"]
        losses = masked_lm_losses(logits, batch["masked_lm_ids"])
        predicted = tf.argmax(logits, axis=-1, output_type=tf.int32)
        right = tf.cast(predicted == batch["masked_lm_ids"], tf.float32)
        columns = [losses * weights, right * weights, weights]
        return tf.stack([tf.reduce_sum(values, axis=1) for values in columns], axis=1)

    @tf.function
    def score_batch(batch: tuple[dict[str, tf.Tensor], tf.Tensor]) -> tf.Tensor:
        # One share a replica, in order, so together they are in the order of the global batch.
        shares = strategy.experimental_local_results(strategy.run(replica_scores, args=batch))
        return tf.concat(shares, axis=0)

    return score_batch


def _score_set(
    chosen: EvaluationSet,
    score_batch: ScoreBatch,
    config: PipelineConfig,
    strategy: tf.distribute.Strategy,
) -> DocumentSetScore:
    batches = data.evaluation_dataset(chosen.reader, chosen.rows, config, strategy)
    rows = np.concatenate([score_batch(batch).numpy() for batch in batches])[: len(chosen.rows)]
    sums = np.zeros((len(chosen.document_ids), 3))
    np.add.at(sums, chosen.documents, rows)
    if not sums[:, 2].any():
        raise BadDataError(
            f"Set {chosen.name!r} has {len(chosen.rows)} rows without a single masked token: there "
            "is nothing to score. Its documents are too short."
        )
    if not np.all(np.isfinite(sums)):
        raise BadDataError(
            f"The scores on set {chosen.name!r} are not finite: the model's weights are broken. "
            "It cannot be compared with anything."
        )
    loss_sums, correct_sums, token_counts = sums.T.tolist()
    return DocumentSetScore(
        set_name=chosen.name,
        document_ids=chosen.document_ids,
        loss_sums=loss_sums,
        correct_sums=correct_sums,
        token_counts=token_counts,
    )


def _unigram_losses(
    sets: list[EvaluationSet], train: RecordReader, config: PipelineConfig, vocabulary_size: int
) -> dict[str, float]:
    everything = np.arange(len(train), dtype=np.int64)
    train_counts = unigram.token_counts(train, everything, config)
    return {
        chosen.name: unigram.cross_entropy(
            train_counts, unigram.token_counts(chosen.reader, chosen.rows, config), vocabulary_size
        )
        for chosen in sets
    }
