"""What the library transformers makes of models. Runs beside PyTorch, in another environment.

``python in_transformers.py write MODEL_TYPE FOLDER ROWS.npz LOGITS.npy`` writes a model of random
weights at the library's own sizes; ``read FOLDER ROWS.npz LOGITS.npy`` reads one. Both write its
logits.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForMaskedLM, PreTrainedModel

# Added to every weight, so that biases and layer norms are not what they are initialized to.
_NOISE = 0.02


def write(model_type: str, folder: Path) -> PreTrainedModel:
    """Return a new model, after it was written."""
    torch.manual_seed(1)
    model = AutoModelForMaskedLM.from_config(AutoConfig.for_model(model_type))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * _NOISE)
    model.save_pretrained(folder)
    return model


def read(folder: Path) -> PreTrainedModel:
    """Return a model that was written elsewhere; stop if a weight is missing or left over."""
    model, loading = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    amiss = {name: sorted(keys) for name, keys in loading.items() if "keys" in name and keys}
    if amiss:
        raise SystemExit(json.dumps(amiss))
    return model


def main() -> None:
    """Write or read a model, and its logits."""
    task, *arguments, rows, logits = sys.argv[1:]
    model = write(arguments[0], Path(arguments[1])) if task == "write" else read(Path(arguments[0]))
    inputs = {name: torch.tensor(values).long() for name, values in np.load(rows).items()}
    with torch.no_grad():
        np.save(logits, model.eval()(**inputs).logits.numpy())


if __name__ == "__main__":
    main()
