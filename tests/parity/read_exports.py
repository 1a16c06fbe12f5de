"""Reads exported folders with the library transformers, as they are. Runs beside PyTorch.

``python read_exports.py FOLDER REQUEST.json RESULT.npz`` prints what it found as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer, BertForPreTraining


def read(folder: Path, request: dict[str, Any], result: Path) -> dict[str, Any]:
    """Return tokens of texts, and, if there are weights, what the model makes of rows and masks."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = request["texts"]
    found: dict[str, Any] = {
        "tokenizer": type(tokenizer).__name__,
        "length": tokenizer.model_max_length,
        "ids": tokenizer(texts)["input_ids"],
    }
    if "rows" not in request:
        return found
    model, loading = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    found |= {name: sorted(keys) for name, keys in loading.items() if "keys" in name}
    found["class"] = type(model).__name__
    rows = {name: torch.tensor(values) for name, values in request["rows"].items()}
    with torch.no_grad():
        outputs = model.eval()(**rows, output_hidden_states=True)
        found["words"] = [five_words(tokenizer, model, text) for text in request["masked"]]
        arrays = {"logits": outputs.logits, "hidden_states": outputs.hidden_states[-1]}
        if request["pairs"]:
            both, loading = BertForPreTraining.from_pretrained(folder, output_loading_info=True)
            found["pairs"] = {k: sorted(keys) for k, keys in loading.items() if "keys" in k}
            arrays["next_sentence"] = both.eval()(**rows).seq_relationship_logits
    np.savez(result, **{name: value.numpy() for name, value in arrays.items()})
    assert AutoConfig.from_pretrained(folder).tie_word_embeddings
    return found


def five_words(tokenizer: Any, model: Any, text: str) -> list[list[str]]:
    """Return the five most likely words for each mask of a text."""
    row = tokenizer(text, return_tensors="pt", truncation=True)
    logits = model(**row).logits[0, row["input_ids"][0] == tokenizer.mask_token_id]
    best = logits[:, : len(tokenizer)].topk(5).indices
    return [tokenizer.convert_ids_to_tokens(ids.tolist()) for ids in best]


if __name__ == "__main__":
    asked = json.loads(Path(sys.argv[2]).read_text())
    print(json.dumps(read(Path(sys.argv[1]), asked, Path(sys.argv[3]))))
