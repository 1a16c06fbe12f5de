"""Runs T5 models in the library transformers, in a separate environment with PyTorch.

``python t5_in_transformers.py write SIZES.json FOLDER INPUTS.npz OUTPUTS.npz`` writes a model with
random weights; ``read FOLDER INPUTS.npz OUTPUTS.npz`` reads one. Both write its outputs for
``source`` [R, S]: ``logits`` for ``target`` [R, T], if there are targets; greedy and beam ids, if
there are ``settings``: ``length, beams, length_penalty, …``, with beam ids for each penalty.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import T5Config, T5ForConditionalGeneration

_ROWS = 32
_END = 1

Arrays = dict[str, npt.NDArray[Any]]


def write(sizes: Path, folder: Path) -> T5ForConditionalGeneration:
    """Write a new model, and return it."""
    torch.manual_seed(1)
    content = json.loads(sizes.read_text())
    noise, embedding = content.pop("noise"), content.pop("embedding")
    end = content.pop("end", 1.0)
    config = T5Config(**content, decoder_start_token_id=0)
    model = T5ForConditionalGeneration(config)
    if not config.scale_decoder_outputs:
        # The library creates new 1.1 models with one matrix for both; published ones have two.
        model.lm_head.weight = torch.nn.Parameter(model.shared.weight.detach().clone())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = embedding if name == "shared.weight" else noise
            parameter.add_(torch.randn_like(parameter) * scale)
        # By this some texts end, and others do not.
        for matrix in {model.shared.weight, model.lm_head.weight}:
            matrix[1] *= end
    model.save_pretrained(folder)
    return model


def read(folder: Path) -> T5ForConditionalGeneration:
    """Return a model that was written elsewhere; stop if a weight is missing or left over."""
    model, loading = T5ForConditionalGeneration.from_pretrained(folder, output_loading_info=True)
    amiss = {name: sorted(keys) for name, keys in loading.items() if "keys" in name and keys}
    if amiss:
        raise SystemExit(json.dumps(amiss))
    return model


def compute(model: T5ForConditionalGeneration, inputs: Arrays) -> Arrays:
    """Return the outputs by name."""
    source = torch.tensor(inputs["source"]).long()
    mask, outputs = (source != 0).long(), Arrays()
    if "target" in inputs:
        target = torch.tensor(inputs["target"]).long()
        found = model(input_ids=source, attention_mask=mask, labels=target)
        outputs["logits"] = found.logits.numpy()
    if "settings" not in inputs:
        return outputs
    length, beams, *penalties = inputs["settings"].tolist()
    searches = [("greedy", 1, 1.0), *((f"beam_{one}", int(beams), one) for one in penalties)]
    for name, count, penalty in searches:
        ids = np.zeros((len(source), int(length)), np.int32)
        for begin in range(0, len(source), _ROWS):
            rows = slice(begin, begin + _ROWS)
            part = model.generate(
                input_ids=source[rows],
                attention_mask=mask[rows],
                max_new_tokens=int(length),
                num_beams=count,
                do_sample=False,
                length_penalty=penalty,
                early_stopping=False,
            ).numpy()[:, 1:]
            # A finished beam is filled with </s>: the library treats the padding 0 as unset.
            part[np.cumsum(np.cumsum(part == _END, axis=1), axis=1) > 1] = 0
            ids[rows, : part.shape[1]] = part
        outputs[name] = ids
    return outputs


def main() -> None:
    """Write or read a model, and write its outputs."""
    task, *arguments, inputs, outputs = sys.argv[1:]
    paths = [Path(argument) for argument in arguments]
    model = write(*paths) if task == "write" else read(*paths)
    with torch.no_grad():
        np.savez(outputs, allow_pickle=False, **compute(model.eval(), dict(np.load(inputs))))


if __name__ == "__main__":
    main()
