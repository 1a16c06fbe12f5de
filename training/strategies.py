"""Where the steps run: one device, or all cores of the TPU slice that this machine is part of."""

from __future__ import annotations

import tensorflow as tf

from pipeline_config import PipelineConfig
from training.errors import UserError


def create_strategy(config: PipelineConfig, global_batch_size: int) -> tf.distribute.Strategy:
    """Return the distribution strategy that training.distribution_strategy names.

    :param global_batch_size: rows that are split over the replicas.
    :raises UserError: there is no TPU here, or the rows cannot be split evenly.
    """
    if config.training.distribution_strategy == "one_device":
        # Exact resume needs sums that do not depend on the timing of threads.
        tf.config.experimental.enable_op_determinism()
        device = "/gpu:0" if tf.config.list_physical_devices("GPU") else "/cpu:0"
        return tf.distribute.OneDeviceStrategy(device)
    strategy = _tpu_strategy()
    replicas = strategy.num_replicas_in_sync
    if global_batch_size % replicas:
        raise UserError(
            f"A global batch of {global_batch_size} rows cannot be split evenly over the "
            f"{replicas} cores of this slice; use a multiple of {replicas}."
        )
    return strategy


def _tpu_strategy() -> tf.distribute.TPUStrategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="local")
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError, ValueError) as error:
        raise UserError(
            "training.distribution_strategy is 'tpu', but TensorFlow finds no TPU on this machine "
            f"({error}). Run on a TPU VM with tensorflow-tpu, or set it to 'one_device'."
        ) from error
    return tf.distribute.TPUStrategy(resolver)
