"""Defines masked-LM records: their features, and how tokens are masked. Needs only numpy.

The data job writes records with it; the trainer reads records, and may mask rows, with it.
"""

from __future__ import annotations

from corpus.mlm_records.hashing import document_key, row_keys
from corpus.mlm_records.masking import MaskedRows, MaskingRecipe, mask_rows
from corpus.mlm_records.schema import Feature, feature_arrays, record_features
from corpus.mlm_records.tokens import TokenTable, token_table

__all__ = [
    "Feature",
    "MaskedRows",
    "MaskingRecipe",
    "TokenTable",
    "document_key",
    "feature_arrays",
    "mask_rows",
    "record_features",
    "row_keys",
    "token_table",
]
