"""What a masked-LM record is: its features and how tokens are masked. Needs only numpy.

The Beam job writes records with it; the trainer reads records, and may mask rows, with it.
"""

from __future__ import annotations

from mlm_records.masking import MaskedRows, document_key, mask_rows, row_keys
from mlm_records.schema import FEATURES, Feature, feature_arrays

__all__ = [
    "FEATURES",
    "Feature",
    "MaskedRows",
    "document_key",
    "feature_arrays",
    "mask_rows",
    "row_keys",
]
