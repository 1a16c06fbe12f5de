"""Writes small models with the library transformers, and what they compute. Runs beside PyTorch.

``python save_pretrained.py FOLDER``: a folder for each model, with ``outputs.npz`` in it; and
``tensors.bin`` of PyTorch, with ``tensors.npz``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
import transformers

SIZES = {
    "vocab_size": 320,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 24,
    "type_vocab_size": 2,
}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
MODELS = {
    "pretraining": (transformers.BertForPreTraining, "gelu", "1GB"),
    "masked_lm": (transformers.BertForMaskedLM, "gelu", "1GB"),
    "tanh": (transformers.BertForMaskedLM, "gelu_pytorch_tanh", "1GB"),
    "sharded": (transformers.BertForPreTraining, "gelu_new", "20KB"),
    "encoder": (transformers.BertModel, "gelu", "1GB"),
    "pickle": (transformers.BertForPreTraining, "gelu", "1GB"),
    "classifier": (transformers.BertForSequenceClassification, "gelu", "1GB"),
}


def save(folder: Path, kind: type, activation: str, shard: str) -> None:
    """Write one model and its outputs on random rows."""
    torch.manual_seed(len(folder.name))
    config = transformers.BertConfig(**SIZES, hidden_act=activation)
    model = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    model.save_pretrained(folder, max_shard_size=shard)
    if folder.name == "pickle":
        # As transformers did before safetensors, now without its help.
        (folder / "model.safetensors").unlink()
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    tokens = [*SPECIAL, *(f"w{number}" for number in range(5, SIZES["vocab_size"]))]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    transformers.BertTokenizer(vocab=vocabulary).save_pretrained(folder)

    ids = torch.randint(5, SIZES["vocab_size"], (4, 16))
    mask = (torch.arange(16) < torch.tensor([[16], [12], [9], [16]])).int()
    types = (torch.arange(16) > 6).int() * mask
    rows = {"input_ids": ids * mask, "attention_mask": mask, "token_type_ids": types}
    with torch.no_grad():
        found = model(**rows, output_hidden_states=True)
    outputs = {"encoder_outputs": torch.stack(found.hidden_states[1:])}
    names = {"logits": "mlm_logits", "prediction_logits": "mlm_logits"}
    names |= {"seq_relationship_logits": "next_sentence"}
    if kind is not transformers.BertForSequenceClassification:
        outputs |= {ours: found[theirs] for theirs, ours in names.items() if theirs in found}
    arrays = {name: value.numpy() for name, value in (rows | outputs).items()}
    np.savez(folder / "outputs.npz", **arrays)


def save_tensors(file: Path) -> None:
    """Write tensors of all kinds, some of them views, with PyTorch alone; and what they are."""
    whole = torch.randn(3, 4, 5)
    tensors = {
        "whole": whole,
        "transposed": whole.transpose(0, 2),
        "part": whole[1:, ::2],
        "half": whole.half(),
        "bfloat16": whole.bfloat16().transpose(0, 1),
        "int64": torch.arange(7),
        "scalar": torch.tensor(3.5),
        "parameter": torch.nn.Parameter(whole[0]),
    }
    torch.save(tensors, file)
    values = {name: tensor.detach() for name, tensor in tensors.items()}
    values["bfloat16"] = values["bfloat16"].float()
    np.savez(file.with_suffix(".npz"), **{name: value.numpy() for name, value in values.items()})


if __name__ == "__main__":
    save_tensors(Path(sys.argv[1], "tensors.bin"))
    for name, (kind, activation, shard) in MODELS.items():
        save(Path(sys.argv[1], name), kind, activation, shard)
