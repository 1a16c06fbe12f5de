"""Compares an exported encoder's outputs in transformers with those of the model itself.

``python in_transformers.py FOLDER REFERENCE.npz`` prints the largest differences as JSON. It runs
in an environment that has PyTorch but nothing of this project.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import AutoModel, AutoModelForMaskedLM


def compare(folder: Path, reference: Path) -> dict[str, Any]:
    """Return how far logits of masked tokens and sentence embeddings are from the model's.

    An embedding is the mean of a row's last hidden states over its real tokens, scaled to length 1,
    from the model that sentence-transformers would load.
    """
    wanted = np.load(reference)
    mask = wanted["input_mask"]
    rows = {
        "input_ids": torch.tensor(wanted["input_word_ids"]),
        "attention_mask": torch.tensor(mask),
        "token_type_ids": torch.tensor(wanted["input_type_ids"]),
    }
    with torch.no_grad():
        logits = AutoModelForMaskedLM.from_pretrained(folder).eval()(**rows).logits.numpy()
        states = AutoModel.from_pretrained(folder).eval()(**rows).last_hidden_state.numpy()
    row, place = wanted["mask_places"].T
    found = logits[row, place, : wanted["logits"].shape[1]]
    real = states[mask == 1]
    return {
        "transformers": transformers.__version__,
        "rows": len(mask),
        "masks": len(row),
        "max_logit_difference": _largest(found - wanted["logits"]),
        "largest_logit": _largest(wanted["logits"]),
        "max_embedding_difference": _largest(
            _embeddings(real, mask) - _embeddings(wanted["hidden_states"], mask)
        ),
    }


def _embeddings(states: Any, mask: Any) -> Any:
    """Return unit vectors [R, H] of the hidden states of all real tokens [T, H], row by row."""
    ends = np.cumsum(mask.sum(axis=1))
    means = np.stack([part.mean(axis=0) for part in np.split(states, ends[:-1])])
    return means / np.linalg.norm(means, axis=1, keepdims=True)


def _largest(values: Any) -> float:
    return float(np.abs(values).max())


if __name__ == "__main__":
    print(json.dumps(compare(Path(sys.argv[1]), Path(sys.argv[2]))))
