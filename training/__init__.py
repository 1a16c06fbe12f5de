"""Masked-LM pretraining of BERT on TensorFlow 2: trainer, evaluation and verified checkpoints."""

from __future__ import annotations

import gc
import os

# With this, `import tensorflow` does not also load Keras 3, which nothing here uses: the models of
# tf-models-official are built on tf_keras. Saves seconds in every process.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
# TensorFlow's C++ side reports absent GPUs as errors; real ones reach Python as exceptions.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# TensorFlow and the graphs that are built with it are millions of objects that live as long as the
# process. By Python's own thresholds, looking through them for garbage took a tenth of the import,
# and a sixth of what a small training takes until its first step.
gc.set_threshold(100_000, 20, 20)
