"""The data job: makes a vocabulary, masked-LM records and their manifests from raw text."""

from __future__ import annotations

import gc

# Garbage collection over all that Beam imports took a sixth of startup, as in `training`.
gc.set_threshold(100_000, 20, 20)
