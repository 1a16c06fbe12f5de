"""The models and the data of every side's training; uses only the standard library."""

from __future__ import annotations

from dataclasses import dataclass

VOCABULARY_SIZE = 30522
ROWS = 32
LENGTH = 128
PREDICTIONS = 20
LEARNING_RATE = 1e-4
WEIGHT_DECAY = 0.01
EPSILON = 1e-6
CLIP_NORM = 1.0

# What verification.benchmarks.train.prepare leaves in the folder of a measurement: a store with
# records, the URI
# of their manifest, and some batches, each feature [batches, rows, ...], for those who read no
# records.
STORE = "store"
MANIFEST = "manifest"
BATCHES = "batches.npz"


@dataclass(frozen=True)
class Shape:
    """The size of a BERT encoder."""

    layers: int
    hidden: int
    heads: int
    inner: int


# BERT-mini (arXiv 1908.08962) and MiniLM-L6-H384 (arXiv 2002.10957).
SHAPES = {"mini": Shape(4, 256, 4, 1024), "minilm": Shape(6, 384, 12, 1536)}
