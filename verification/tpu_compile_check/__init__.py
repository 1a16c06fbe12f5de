"""Compiles the trainer's own steps with the real TPU compiler, without a TPU.

The export side (TensorFlow) and the compile side (jax, libtpu) run in two environments and share
files, not imports: this package's top level needs neither.
"""

from __future__ import annotations

# Before anything imports TensorFlow: it sets up TensorFlow's environment, and needs nothing itself.
import training  # noqa: F401
