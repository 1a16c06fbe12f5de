"""Reads an exported classifier's folder with the library transformers. Runs beside PyTorch.

``python read_classifiers.py FOLDER REQUEST.json`` prints what it found as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline


def read(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Return what the model makes of rows, and of texts in the way that the card says."""
    model, loading = AutoModelForSequenceClassification.from_pretrained(
        folder, output_loading_info=True
    )
    rows = {name: torch.tensor(values) for name, values in request["rows"].items()}
    with torch.no_grad():
        logits = model.eval()(**rows).logits
    classify = pipeline("text-classification", model=str(folder))
    limit = {"truncation": True, "max_length": request["max_length"]}
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return {
        "class": type(model).__name__,
        **{name: sorted(keys) for name, keys in loading.items() if "keys" in name},
        "problem_type": model.config.problem_type,
        "logits": logits.tolist(),
        "ids": [tokenizer(**text, **limit)["input_ids"] for text in request["texts"]],
        "answers": [
            classify(text, **request["arguments"], **limit, padding=True)
            for text in request["texts"]
        ],
    }


if __name__ == "__main__":
    asked = json.loads(Path(sys.argv[2]).read_text())
    print(json.dumps(read(Path(sys.argv[1]), asked)))
