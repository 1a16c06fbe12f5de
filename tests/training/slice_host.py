"""A job on one host of a TPU slice whose chips are CPUs.

``python -m tests.training.slice_host training.train [its arguments]``, with ``TF_CONFIG`` as the
agent sets it. All is as on TPUs but the last step: TPUStrategy takes no CPUs, so replicas are
mirrored over the hosts' devices. TensorFlow has that, but its constructor does not let one ask for
it.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import tensorflow as tf


def mirrored(slice_: tf.distribute.cluster_resolver.TPUClusterResolver) -> Any:
    """Return a strategy with a replica on each host of a slice, and none in this process."""
    hosts = slice_.cluster_spec().num_tasks("worker")
    devices = tuple(f"/job:worker/replica:0/task:{host}/cpu:0" for host in range(hosts))
    strategy = tf.distribute.MirroredStrategy(
        ["/cpu:0"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )
    strategy.extended._initialize_single_worker(devices)
    return strategy


if __name__ == "__main__":
    tf.config.experimental.enable_op_determinism()
    tf.tpu.experimental.initialize_tpu_system = lambda slice_: None
    tf.distribute.TPUStrategy = mirrored
    sys.exit(importlib.import_module(sys.argv[1]).main(sys.argv[2:]))
