"""A look before training: do configuration, model and records fit together?"""

from __future__ import annotations

import logging
import math

import tensorflow as tf

from trained_models.phases import phases
from training.architectures.models import build_model, has_next_sentence_head
from training.input.data import training_dataset
from training.loop.pretraining import Pretraining
from training.model import checkpoints
from training.model.losses import masked_lm_losses, next_sentence_scores

log = logging.getLogger("training")

ROWS = 8


def dry_run(job: Pretraining) -> None:
    """Build the model and one batch, score a few of its rows, print what was found; write nothing.

    Runs on any machine: no TPU is needed to find out whether model and records fit together.
    """
    model = build_model(job.config)
    if job.init_model is not None:
        log.info("%s: %s", job.init_model, checkpoints.load_weights(model, job.init_model))
    parameters = sum(math.prod(variable.shape) for variable in model.trainable_variables)
    log.info("model: %s parameters in %d variables", f"{parameters:,}", len(model.variables))

    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    for phase in phases(job.config):
        dataset = training_dataset(job.data, phase, phase.first_step, 0, strategy)
        (batch,) = next(iter(dataset))
        log.info("global batch of the steps from %d on:", phase.first_step + 1)
        for name, value in sorted(batch.items()):
            log.info("  %-22s %-8s %s", name, value.dtype.name, tuple(value.shape))

    few = {name: value[:ROWS] for name, value in batch.items()}
    weights = few["masked_lm_weights"]
    outputs = model(few)
    losses = masked_lm_losses(outputs["mlm_logits"], few["masked_lm_ids"]) * weights
    mean = float(tf.reduce_sum(losses) / tf.maximum(tf.reduce_sum(weights), 1.0))
    uniform = math.log(job.config.model.vocab_size)
    log.info("loss of its first rows: %.4f (guessing all tokens alike: %.4f)", mean, uniform)
    if has_next_sentence_head(model):
        mean = float(tf.reduce_mean(next_sentence_scores(outputs, few).losses))
        log.info("their next-sentence loss: %.4f (guessing: %.4f)", mean, math.log(2))
    log.info("Dry run: nothing was written.")
