"""What TensorFlow is told about TPUs before it is imported."""

from __future__ import annotations

import importlib
import os

PJRT_FAMILIES = frozenset({"v5litepod", "v5p", "v6e"})
"""TPUs that TensorFlow reaches through PJRT only; those before them it reaches without."""


def use_chips(accelerator_type: str) -> None:
    """Let TensorFlow take the chips of this host, once it is imported.

    ``tensorflow-tpu`` reaches TPUs up to v4 by itself. Later ones are a plugin to it, in
    ``libtpu``, that has to be named; with v4 it must not be. Without ``libtpu`` nothing changes,
    and TensorFlow will find no TPU.

    Source: https://cloud.google.com/tpu/docs/run-calculation-tensorflow

    :param accelerator_type: such as ``v5litepod-8``.
    """
    os.environ.pop("TPU_LOAD_LIBRARY", None)
    if accelerator_type.rpartition("-")[0] not in PJRT_FAMILIES:
        return
    try:
        libtpu = importlib.import_module("libtpu")
    except ImportError:
        return
    os.environ["PJRT_DEVICE"] = "TPU"
    os.environ["NEXT_PLUGGABLE_DEVICE_USE_C_API"] = "true"
    os.environ["TF_PLUGGABLE_DEVICE_LIBRARY_PATH"] = libtpu.get_library_path()


def leave_chips() -> None:
    """Keep TensorFlow off the chips of this host: another process has them."""
    os.environ["TPU_LOAD_LIBRARY"] = "0"
