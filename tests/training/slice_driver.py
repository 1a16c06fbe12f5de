"""The trainer with ``distribution_strategy=tpu`` on worker 0 of a slice whose chips are CPUs.

``python -m tests.training.slice_driver [trainer's arguments]``, with ``TF_CONFIG`` and ``TPU_NAME``
as the agent sets them, naming :mod:`tests.training.slice_worker` processes. The slice is found and
joined as one of TPUs is. Only TPUStrategy takes no CPUs, so replicas are mirrored over the devices
of the other processes. TensorFlow has that, but its constructor does not let one ask for it.
"""

from __future__ import annotations

import os
import sys

import tensorflow as tf

from training import strategies, train


def find_slice() -> tf.distribute.Strategy:
    """Return a strategy with a replica on each worker, and none in this process."""
    tf.config.experimental.enable_op_determinism()
    slice_ = tf.distribute.cluster_resolver.TPUClusterResolver(os.environ["TPU_NAME"])
    tf.config.experimental_connect_to_cluster(slice_)
    strategy = tf.distribute.MirroredStrategy(
        ["/cpu:0"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )
    strategy.extended._initialize_single_worker(
        tuple(
            f"/job:worker/replica:0/task:{index}/cpu:0"
            for index in range(slice_.cluster_spec().num_tasks("worker"))
        )
    )
    return strategy


if __name__ == "__main__":
    strategies._STRATEGIES["tpu"] = find_slice
    sys.exit(train.main(sys.argv[1:]))
