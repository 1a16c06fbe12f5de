"""Scores of models on held-out documents: sums per document, from identical rows and masks."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tf_keras

from corpus.mlm_records import token_table
from pipeline_config import PipelineConfig
from pipeline_store.formats import (
    DocumentSetScore,
    EvaluationReport,
    ExtraRowScores,
    ModelScore,
)
from pipeline_store.layout import StoreLayout
from trained_models import record_sources
from trained_models.errors import BadDataError
from trained_models.importing.sources import files_sha256
from trained_models.loaded_weights import LoadedWeights
from trained_models.record_sources import lineage_tokens
from trained_models.weight_names import OUTPUT_BIAS, WORD_EMBEDDINGS
from training.architectures.models import build_model, named_variables
from training.evaluation import unigram
from training.evaluation.earlier import Earlier, scored_by
from training.evaluation.evaluation_sets import EvaluationSet, Rows, open_set
from training.evaluation.retrieval import make_embed, open_halves, score_retrieval
from training.importing.loading import scored_model
from training.input import data
from training.model import checkpoints
from training.model.checkpoints import load_weights
from training.model.losses import masked_lm_losses, next_sentence_scores
from training.runtime.phases import each
from training.runtime.strategies import create_strategy, on_replicas

# Variables that foreign weights may lack, wholly or in some rows.
_PARTIAL = (WORD_EMBEDDINGS, OUTPUT_BIAS, "pooler_transform/kernel", "pooler_transform/bias")


class ScoredModels:
    """A built model that can be set to other weights, without leftovers of the previous ones."""

    def __init__(self, model: tf_keras.Model, store: StoreLayout, config: PipelineConfig) -> None:
        self._model = model
        self._store = store
        self._config = config
        self._initial = {
            name: variable.numpy()
            for name, variable in named_variables(model).items()
            if name.endswith(_PARTIAL)
        }

    def load(self, uri: str) -> LoadedWeights:
        """Set the model to weights of this project or to foreign weights.

        :raises UserError: they do not fit, or cannot be scored; the message says why.
        :raises FormatError: a file of a model of ours does not verify.
        :raises BadDataError: a file of another model is damaged.
        """
        variables = named_variables(self._model)
        for name, value in self._initial.items():
            variables[name].assign(value)
        return load_weights(self._model, scored_model(uri, self._store, self._config))


log = logging.getLogger("training")

_SUMS = ("loss_sums", "correct_sums", "reciprocal_rank_sums", "token_counts")
# From a distributed batch of (model inputs, row weights) to sums per row, [R, 4], or [R, 6] with
# next-sentence prediction.
ScoreBatch = Callable[[tuple[dict[str, tf.Tensor], tf.Tensor]], tf.Tensor]


def evaluate(
    *,
    store: StoreLayout,
    config: PipelineConfig,
    current_set: str,
    manifest_uris: dict[str, str],
    model_uris: dict[str, str],
    earlier: Earlier | None = None,
    takes_scores: bool = True,
) -> EvaluationReport:
    """Score every model on every set.

    :param manifest_uris: partition manifest by set name.
    :param model_uris: model by name (``candidate``, ``baseline``), ours or foreign.
    :param earlier: earlier evaluation, whose sets keep their documents; None: there is none.
    :param takes_scores: whether scores that ``earlier`` has are reused instead of computed.
    :raises JobError: see :mod:`trained_models.errors`.
    """
    earlier = earlier or Earlier()
    vocabulary = record_sources.vocabulary_info(store, config)
    for uri in model_uris.values():
        checkpoints.check_architecture(uri, config, vocabulary.sha256)
    sets = [
        open_set(name, uri, store, config, earlier.sample(name))
        for name, uri in manifest_uris.items()
    ]

    batch_sizes = [config.evaluation.global_batch_size]
    if any(chosen.extra for chosen in sets):
        batch_sizes.append(_extra_batch_size(config))
    strategy = create_strategy(config, batch_sizes, one_machine=True)
    with strategy.scope():
        model = build_model(config)
    scorers = {head: make_score_batch(strategy, model, head) for head in (False, True)}
    embed = make_embed(model.encoder_network, strategy, config.evaluation.global_batch_size)
    halves = {chosen.name: open_halves(chosen) for chosen in sets}
    models, scores = ScoredModels(model, store, config), []
    for name, uri in model_uris.items():
        sha256 = files_sha256(uri)
        known = earlier.scores(sha256, sets, config) if takes_scores else {}
        if known:
            log.info("Scores of %s that are known already: %s", name, ", ".join(known))
        if missing := [chosen for chosen in sets if chosen.name not in known]:
            loaded = models.load(uri)
            log.info("Scoring %s (%s): %s", name, uri, loaded)
        for chosen in missing:
            # Without a head of its own, the model has the previous model's head or a random one.
            next_sentence = loaded.has_next_sentence_head and chosen.reader.row_format.next_sentence
            score = _score_set(chosen, scorers[next_sentence], config, strategy)
            retrieval = score_retrieval(halves[chosen.name], embed)
            known[chosen.name] = score.model_copy(update={"retrieval": retrieval})
        in_order = [known[chosen.name] for chosen in sets]
        scores.append(ModelScore(name=name, model_uri=uri, files_sha256=sha256, sets=in_order))

    manifests = {
        uri: record_sources.load_manifest(uri, store, config) for uri in manifest_uris.values()
    }
    maskable = token_table(lineage_tokens(store, config), vocabulary.vocabulary_kind).maskable
    train_counts = unigram.training_counts(
        record_sources.union_of_training_records(manifests, store, config),
        maskable,
        config.model.vocab_size,
    )
    return EvaluationReport(
        partition=current_set,
        current_set=current_set,
        evaluated={chosen.name: chosen.manifest_sha256 for chosen in sets},
        models=scores,
        unigram_losses=_unigram_losses(sets, train_counts, maskable),
        samples={chosen.name: chosen.sample_sha256 for chosen in sets},
        scored_by=scored_by(config),
    )


def make_score_batch(
    strategy: tf.distribute.Strategy, model: tf_keras.Model, next_sentence: bool
) -> ScoreBatch:
    """Return a compiled function from a distributed batch to sums per row.

    Columns: loss in nats over the row's masked tokens, correct predictions, reciprocal ranks of the
    correct tokens, masked tokens; with next-sentence prediction also 1 if it is correct, and 1.
    Rows of weight 0 have sums of 0.
    """

    def replica_scores(batch: dict[str, tf.Tensor], row_weights: tf.Tensor) -> tf.Tensor:
        weights = batch["masked_lm_weights"] * row_weights[:, None]
        outputs = model(batch, training=False)
        logits = outputs["mlm_logits"]
        losses = masked_lm_losses(logits, batch["masked_lm_ids"])
        predicted = tf.argmax(logits, axis=-1, output_type=tf.int32)
        right = tf.cast(predicted == batch["masked_lm_ids"], tf.float32)
        values = [losses, right, reciprocal_ranks(logits, batch["masked_lm_ids"])]
        columns = [value * weights for value in values] + [weights]
        sums = [tf.reduce_sum(column, axis=1) for column in columns]
        if next_sentence:
            sums += [next_sentence_scores(outputs, batch).correct * row_weights, row_weights]
        return tf.stack(sums, axis=1)

    @tf.function
    def score_batch(batch: tuple[dict[str, tf.Tensor], tf.Tensor]) -> tf.Tensor:
        # One share per replica, in order, so together they have the order of the global batch.
        placed = on_replicas(strategy, batch)
        shares = strategy.experimental_local_results(strategy.run(replica_scores, args=placed))
        return tf.concat(shares, axis=0)

    return score_batch


def reciprocal_ranks(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Return 1 / rank of each correct token among the whole vocabulary, float32 [R, P].

    The rank is 1 plus the number of tokens that are strictly more likely, plus half of the others
    that are equally likely, so that one pass of comparisons finds it; nothing is sorted. Ties are
    frequent in bfloat16: ranking the correct token first would raise the mean by some percent.

    :param logits: [R, P, V].
    :param labels: int32 [R, P].
    """
    right = tf.gather(logits, labels, axis=2, batch_dims=2)
    before = tf.cast(logits > right[:, :, None], tf.float32)
    # The correct token ties with itself, so half a rank is subtracted again.
    tied = tf.cast(logits == right[:, :, None], tf.float32)
    return 1.0 / (0.5 + tf.reduce_sum(before + 0.5 * tied, axis=2))


def _score_set(
    chosen: EvaluationSet,
    score_batch: ScoreBatch,
    config: PipelineConfig,
    strategy: tf.distribute.Strategy,
) -> DocumentSetScore:
    main = Rows(chosen.reader, chosen.rows, chosen.documents)
    sums = _sums(chosen, main, score_batch, config.evaluation.global_batch_size, strategy)
    if not sums[:, 3].any():
        raise BadDataError(
            f"Set {chosen.name!r} has {len(chosen.rows)} rows without a single masked token: there "
            "is nothing to score. Its documents are too short."
        )
    extra = None
    if chosen.extra is not None:
        batch_size = _extra_batch_size(config)
        longer = _sums(chosen, chosen.extra, score_batch, batch_size, strategy).T.tolist()
        extra = ExtraRowScores(
            max_seq_length=chosen.extra.reader.row_format.max_seq_length,
            **dict(zip(_SUMS, longer, strict=False)),
        )
    loss_sums, correct_sums, reciprocal_rank_sums, token_counts, *next_sentence = sums.T.tolist()
    right, row_counts = next_sentence or (None, None)
    return DocumentSetScore(
        set_name=chosen.name,
        document_ids=chosen.document_ids,
        loss_sums=loss_sums,
        correct_sums=correct_sums,
        reciprocal_rank_sums=reciprocal_rank_sums,
        token_counts=token_counts,
        next_sentence_correct_sums=right,
        row_counts=row_counts,
        units=chosen.units,
        extra=extra,
    )


def _extra_batch_size(config: PipelineConfig) -> int:
    """Return the batch size for rows of the second length: that of a part of a training step."""
    training = config.training
    return training.extra_global_batch_size // training.gradient_accumulation_steps


def _sums(
    chosen: EvaluationSet,
    part: Rows,
    score_batch: ScoreBatch,
    batch_size: int,
    strategy: tf.distribute.Strategy,
) -> npt.NDArray[np.float64]:
    """Return sums per document of the set, [D, 4] or [D, 6]; columns as of a ScoreBatch."""
    batches = data.evaluation_dataset(part.reader, part.rows, batch_size, strategy)
    scored = [score_batch(batch).numpy() for batch in each(batches)]
    rows = np.concatenate(scored)[: len(part.rows)]
    sums = np.zeros((len(chosen.document_ids), rows.shape[1]))
    np.add.at(sums, part.documents, rows)
    if not np.all(np.isfinite(sums)):
        raise BadDataError(
            f"The scores on set {chosen.name!r} are not finite: the model's weights are broken. "
            "It cannot be compared with anything."
        )
    return sums


def _unigram_losses(
    sets: list[EvaluationSet],
    train_counts: npt.NDArray[np.float64],
    maskable: npt.NDArray[np.bool_],
) -> dict[str, float]:
    losses = {}
    for chosen in sets:
        counts = unigram.held_out_counts(chosen.reader, chosen.rows, len(train_counts))
        known = unigram.with_targets_own(train_counts, counts, maskable)
        losses[chosen.name] = unigram.cross_entropy(known, counts, len(maskable))
    return losses
