"""Distribution strategies: one device, all devices of one or several machines, or a TPU slice."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2
from tensorflow.python.eager import context

from pipeline_config import PipelineConfig
from pipeline_config.rental_schema import TpuConfig
from pipeline_store.formats import PhaseName
from trained_models.errors import UserError
from training.runtime import slices
from training.runtime.phases import phase
from training.runtime.workers import Cluster

SILENCE_SECONDS = 30
"""Heartbeat timeout of a machine. TensorFlow's default of 10 is too short on a busy CPU."""

_ONE_HOST = "local"
# Which of these TensorFlow raises depends on whether it was built for TPUs.
_NO_TPU = (tf.errors.NotFoundError, tf.errors.InvalidArgumentError, tf.errors.InternalError)
# TensorFlow's name for the job of a process that is not itself part of a cluster.
_OURSELVES = "localhost"


def create_strategy(
    config: PipelineConfig, batch_sizes: Sequence[int], *, one_machine: bool = False
) -> tf.distribute.Strategy:
    """Return the distribution strategy that training.distribution_strategy names.

    Must be called before TensorFlow does anything else: machines can only be joined then.

    :param batch_sizes: rows of each kind of global batch; they are split over the replicas.
    :param one_machine: use this machine alone even if training takes several.
    :raises UserError: the machines or devices it needs are missing, or the rows cannot be split
        evenly.
    """
    name = config.training.distribution_strategy
    if one_machine and name == "multi_worker_mirrored":
        name = "mirrored"
    strategy = _tpu(config.tpu) if name == "tpu" else _STRATEGIES[name]()
    replicas = strategy.num_replicas_in_sync
    for rows in batch_sizes:
        if rows % replicas:
            raise UserError(
                f"A global batch of {rows} rows cannot be split evenly over the {replicas} "
                f"replicas of training.distribution_strategy={name}; use a multiple of {replicas}."
            )
    return strategy


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Return whether this process is the one that commits files and reports.

    Of several machines it is worker 0. Each of them reads its share of a batch, and all restore,
    compute and decide the same.
    """
    return not _has_several_workers(strategy) or strategy.cluster_resolver.task_id == 0


def drives_other_hosts(strategy: tf.distribute.Strategy) -> bool:
    """Return whether replicas are on hosts that run no program of ours.

    This is so on a TPU slice of several hosts, where worker 0 drives all chips: each host has a
    TensorFlow server, and this process is none of them.
    Source: https://cloud.google.com/tpu/docs/tensorflow-pods
    """
    if strategy.num_replicas_in_sync == 1 or _has_several_workers(strategy):
        return False
    jobs = {tf.DeviceSpec.from_string(name).job for name in strategy.extended.worker_devices}
    return not jobs <= {None, _OURSELVES}


def on_replicas(strategy: tf.distribute.Strategy, batch: Any) -> Any:
    """Return an element of :func:`training.input.data.distribute` as ``strategy.run`` takes it.

    Must be called within the compiled function that runs it. Hosts that run no program of ours are
    sent their rows; with all other strategies each element is on its replica already.
    """
    if not drives_other_hosts(strategy):
        return batch

    def share_out(rows: tf.Tensor) -> tf.distribute.DistributedValues:
        shares = tf.split(rows, strategy.num_replicas_in_sync)
        return strategy.experimental_distribute_values_from_function(
            lambda place: shares[place.replica_id_in_sync_group]
        )

    return tf.nest.map_structure(share_out, batch)


def checkpoint_options(strategy: tf.distribute.Strategy) -> tf.train.CheckpointOptions:
    """Return the options that make this process write and read all checkpoint files.

    By default TensorFlow lets the host of a variable do it; a host that runs no program of ours has
    another file system.
    """
    device = f"/job:{_OURSELVES}" if drives_other_hosts(strategy) else None
    return tf.train.CheckpointOptions(experimental_io_device=device)


def numbers_of_workers(strategy: tf.distribute.Strategy, number: int) -> list[int]:
    """Return the numbers that all processes of the training pass, in the order of the workers.

    All have to call this at the same point of their work; the first ones wait for the last.

    :param number: 64 bits, signed.
    """
    if not _has_several_workers(strategy):
        return [number]
    with phase(PhaseName.MEETING):
        of_all = _sum(strategy)(tf.constant(number, tf.int64))
        replicas = strategy.experimental_local_results(of_all)
        numbers: list[int] = replicas[0].numpy().tolist()
    return numbers[:: len(replicas)]


def _has_several_workers(strategy: tf.distribute.Strategy) -> bool:
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


@functools.cache
def _sum(strategy: tf.distribute.Strategy) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return a function that gathers the numbers of all replicas, [replicas], compiled once.

    It is a sum of one-hot vectors, as every kind of collective communication supports sums.
    """

    def add(number: tf.Tensor) -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        place, places = context.replica_id_in_sync_group, context.num_replicas_in_sync
        mine = tf.one_hot(place, places, on_value=number, off_value=tf.zeros_like(number))
        return context.all_reduce("SUM", mine)

    return tf.function(lambda number: strategy.run(add, args=(number,)))


def _one_device() -> tf.distribute.Strategy:
    # Exact resume needs sums that do not depend on the timing of threads.
    tf.config.experimental.enable_op_determinism()
    device = "/gpu:0" if tf.config.list_physical_devices("GPU") else "/cpu:0"
    return tf.distribute.OneDeviceStrategy(device)


def _mirrored() -> tf.distribute.Strategy:
    tf.config.experimental.enable_op_determinism()
    if tf.config.list_physical_devices("GPU"):
        return tf.distribute.MirroredStrategy()
    devices = [device.name for device in tf.config.list_logical_devices("CPU")]
    # In shared memory there is nothing to gain by passing partial sums around.
    reduction = tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)


def _multi_worker_mirrored() -> tf.distribute.Strategy:
    workers = Cluster.from_environment().workers
    if not workers:
        raise UserError(
            "training.distribution_strategy is 'multi_worker_mirrored', but TF_CONFIG names no "
            "machines. The agent of a TPU VM sets it on a slice of several hosts; by hand see "
            "docs/explain/hosts.md. For one machine use 'mirrored'."
        )
    tf.config.experimental.enable_op_determinism()
    _set_patience(len(workers))
    on_sigterm = signal.getsignal(signal.SIGTERM)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    # TensorFlow has replaced the handler by its own, which nothing here uses.
    signal.signal(signal.SIGTERM, on_sigterm)
    return strategy


def _set_patience(workers: int) -> None:
    """Set the heartbeat timeout of the machines. The strategy keeps an existing setting."""
    context.context().configure_coordination_service(
        service_type="standalone",
        service_leader="/job:worker/replica:0/task:0",
        heartbeat_timeout_in_ms=SILENCE_SECONDS * 1000,
        coordinated_jobs=[coordination_config_pb2.CoordinatedJob(name="worker", num_tasks=workers)],
    )


def _tpu(tpu: TpuConfig) -> tf.distribute.Strategy:
    cluster = Cluster.from_environment()
    has_other_hosts = len(cluster.workers) > 1
    if has_other_hosts:
        slices.join(cluster, tpu)
    name = ",".join(f"grpc://{each}" for each in cluster.workers) if has_other_hosts else _ONE_HOST
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
    try:
        if has_other_hosts:
            # Makes functions start on worker 0's server. That is necessary: the other servers and
            # it can reach each other, while they have no address of this process.
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except _NO_TPU as error:
        where = f"on {name}" if has_other_hosts else "on this machine"
        raise UserError(
            f"training.distribution_strategy is 'tpu', but TensorFlow finds no TPU {where} "
            f"({error}). Run on TPU VMs with tensorflow-tpu and the libtpu of its lock, or set it "
            "to 'one_device'."
        ) from error
    return tf.distribute.TPUStrategy(resolver)


_STRATEGIES: dict[str, Callable[[], tf.distribute.Strategy]] = {
    "one_device": _one_device,
    "mirrored": _mirrored,
    "multi_worker_mirrored": _multi_worker_mirrored,
}
