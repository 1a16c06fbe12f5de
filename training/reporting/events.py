"""Writes TensorBoard events to the store: each file is uploaded once, complete, and never changed.

TensorFlow would append to one file. But object stores cannot append, TensorFlow's support for
``gs://`` is a separate package, and TensorBoard keeps reading the old file when one is replaced. A
sequence of small files in a folder works with all of them.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

from pipeline_store import uris


class EventFiles:
    """Scalars of a training, gathered on the local disk until they are published."""

    def __init__(self, folder_uri: str) -> None:
        self._folder_uri = folder_uri
        self._scratch = tempfile.TemporaryDirectory()
        self._writer: tf.summary.SummaryWriter | None = None

    def add(self, step: int, scalars: dict[str, float]) -> None:
        """Add some values of a step."""
        with _here():
            if self._writer is None:
                self._writer = tf.summary.create_file_writer(self._scratch.name)
            with self._writer.as_default(step=step):
                for name, value in scalars.items():
                    tf.summary.scalar(name, value)

    def publish(self) -> None:
        """Upload what was added since the last time."""
        if self._writer is None:
            return
        with _here():
            self._writer.close()
        self._writer = None
        for path in sorted(Path(self._scratch.name).iterdir()):
            uris.upload(str(path), uris.join(self._folder_uri, _name()))
            path.unlink()


def _here() -> Any:
    # On a slice of several hosts the default device is on another host, with other files.
    return tf.device(context.context().host_address_space())


def _name() -> str:
    """Return a name that comes after all before it, as TensorBoard reads files in that order.

    TensorFlow's own have whole seconds and a number in them: the tenth would come before the ninth.
    """
    return f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}.{os.getpid()}"
