"""The data job: raw text to a vocabulary, masked-LM records and the manifests that name them."""

from __future__ import annotations

import gc

# Looking through all that Beam imports for garbage took a sixth of the start, as in `training`.
gc.set_threshold(100_000, 20, 20)
