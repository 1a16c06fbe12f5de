"""Measures the memory in use on accelerators, where TensorFlow reports it."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

ACCELERATORS = ("TPU", "GPU")


class DeviceMemory(NamedTuple):
    """Bytes in use on the fullest device of this host: now, and the peak since startup."""

    memory_bytes: int
    peak_memory_bytes: int


def device_memory() -> DeviceMemory | None:
    """Return the memory in use; None on a CPU, of which TensorFlow counts nothing.

    See https://www.tensorflow.org/api_docs/python/tf/config/experimental/get_memory_info.
    """
    devices = [device for kind in ACCELERATORS for device in tf.config.list_logical_devices(kind)]
    infos = [info for device in devices if (info := _memory_info(device.name)) is not None]
    if not infos:
        return None
    return DeviceMemory(
        memory_bytes=max(info["current"] for info in infos),
        peak_memory_bytes=max(info["peak"] for info in infos),
    )


def _memory_info(device: str) -> dict[str, int] | None:
    try:
        info: dict[str, int] = tf.config.experimental.get_memory_info(device)
    except (ValueError, tf.errors.OpError):
        # Not every runtime of every accelerator keeps count.
        return None
    return info
