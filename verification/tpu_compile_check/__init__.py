"""Compiles the trainer's own steps with the real TPU compiler, without a TPU.

The export side (TensorFlow) and the compile side (jax, libtpu) run in two environments and exchange
files: this package's top level imports neither library.
"""

from __future__ import annotations

# Before any import of TensorFlow: it sets up TensorFlow's environment, and has no dependencies.
import training  # noqa: F401
