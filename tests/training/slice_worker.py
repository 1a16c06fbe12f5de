"""Stands for the TPU runtime of one host of a slice: TensorFlow's worker, and nothing of ours.

``python -m tests.training.slice_worker ADDRESSES INDEX``. It has one device and runs whatever
worker 0's program sends it, by TensorFlow's own protocol, until it is killed.
"""

from __future__ import annotations

import sys

import tensorflow as tf

if __name__ == "__main__":
    tf.config.experimental.enable_op_determinism()
    addresses, index = sys.argv[1].split(","), int(sys.argv[2])
    cluster = tf.train.ClusterSpec({"worker": addresses})
    tf.distribute.Server(cluster, job_name="worker", task_index=index).join()
