"""Compares models of each architecture with the library transformers, in both directions.

``python -m verification.architecture_check --torch .venv-torch/bin/python`` prints a line of JSON
for each check, with ``name``, ``value``, ``limit`` and ``holds``, and exits with 1 if one does not
hold. Sizes are the library's own, of the published base models; weights are random. What is
compared of T5, no architecture of pretraining, is in
:mod:`verification.architecture_check.text_to_text`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_config import PipelineConfig, with_overrides
from trained_models.architectures import architecture
from trained_models.importing.descriptions import describe
from trained_models.importing.sources import SourceKind
from verification.architecture_check import text_to_text

LIMIT = 1e-4
"""Largest difference of a logit, relative to the largest logit."""
ROWS, LENGTH = 4, 128
_PROGRAM = Path(__file__).with_name("in_transformers.py")
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_NOISE = 0.02

Floats = npt.NDArray[np.float32]


def main(arguments: list[str] | None = None) -> int:
    """Run the checks of the chosen architectures; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--torch", type=Path, required=True, help="Python that has PyTorch")
    every = (*architecture.names(), "t5")
    parser.add_argument("--only", choices=every, help="this architecture")
    options = parser.parse_args(arguments)
    found = []
    for name in [options.only] if options.only else every:
        is_t5 = name == "t5"
        for result in text_to_text.checks(options.torch) if is_t5 else check(name, options.torch):
            print(json.dumps(result), flush=True)
            found.append(result["holds"])
    return 0 if all(found) else 1


def check(name: str, python: Path) -> Iterator[dict[str, Any]]:
    """Yield the results of an architecture."""
    with tempfile.TemporaryDirectory() as scratch:
        for direction, compare in {"import": _imported, "export": _exported}.items():
            folder = Path(scratch, direction)
            folder.mkdir()
            wanted, given = compare(name, folder, python)
            value = float(np.abs(given - wanted).max() / np.abs(wanted).max())
            yield {
                "name": f"{name}_{direction}_logits",
                "value": value,
                "limit": LIMIT,
                # A comparison with NaN is false.
                "holds": value <= LIMIT,
            }


def _imported(name: str, folder: Path, python: Path) -> tuple[Floats, Floats]:
    """Return the logits of a model that the library wrote: the library's, and ours."""
    form = architecture.named(name).hugging_face
    rows = _rows(name, folder)
    wanted = _run(python, folder, "write", form.model_type, str(folder))
    config = _config(folder)
    tokens = [*_SPECIAL, *(f"w{n}" for n in range(len(_SPECIAL), config.model.vocab_size))]
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))

    from training.architectures.models import build_model
    from training.importing.loading import InitialModel
    from training.model.checkpoints import load_weights

    model = build_model(config)
    load_weights(model, InitialModel(str(folder), config.model, tuple(tokens)))
    return wanted, _logits(model, rows)


def _exported(name: str, folder: Path, python: Path) -> tuple[Floats, Floats]:
    """Return the logits of a model that was exported: ours, and the library's."""
    from training.architectures.models import build_model, named_variables
    from training.exporting import hugging_face

    config = with_overrides(PipelineConfig(), {"model.architecture": name})
    rows, model = _rows(name, folder), build_model(config)
    random = np.random.default_rng(1)
    for variable in model.variables:
        noise = random.normal(0.0, _NOISE, variable.shape)
        variable.assign_add(noise.astype(np.float32))
    values = {name: variable.numpy() for name, variable in named_variables(model).items()}
    hugging_face.write_configuration(folder, config.model)
    hugging_face.write_weights(folder, config.model, values, pooler=False, next_sentence=False)
    return _logits(model, rows), _run(python, folder, "read", str(folder))


def _config(folder: Path) -> PipelineConfig:
    found = describe(str(folder), SourceKind.HUGGING_FACE)
    if found is None:
        raise FileNotFoundError(folder / "config.json")
    settings = {f"model.{name}": value for name, value in found.settings.items()}
    return with_overrides(PipelineConfig(), settings)


def _rows(name: str, folder: Path) -> dict[str, npt.NDArray[np.int32]]:
    """Write rows of several lengths as the library takes them, and return them."""
    random = np.random.default_rng(2)
    mask = (np.arange(LENGTH) < [[LENGTH], [100], [57], [9]]).astype(np.int32)
    rows = {
        "input_ids": random.integers(5, 30000, (ROWS, LENGTH)).astype(np.int32) * mask,
        "token_type_ids": (np.arange(LENGTH) > LENGTH // 4).astype(np.int32) * mask,
        "attention_mask": mask,
    }
    inputs = architecture.named(name).hugging_face.inputs
    taken = {key: values for key, values in rows.items() if key in inputs}
    with (folder / "rows.npz").open("wb") as file:
        np.savez(file, allow_pickle=False, **taken)
    return rows


def _logits(model: Any, rows: dict[str, npt.NDArray[np.int32]]) -> Floats:
    places = np.broadcast_to(np.arange(LENGTH, dtype=np.int32), (ROWS, LENGTH))
    outputs = model(
        {
            "input_word_ids": rows["input_ids"],
            "input_mask": rows["attention_mask"],
            "input_type_ids": rows["token_type_ids"],
            "masked_lm_positions": places,
        },
        training=False,
    )
    found: Floats = outputs["mlm_logits"].numpy()
    return found


def _run(python: Path, folder: Path, *arguments: str) -> Floats:
    """Return the logits that the program beside PyTorch writes."""
    rows, logits = folder / "rows.npz", folder / "logits.npy"
    command = [str(python), str(_PROGRAM), *arguments, str(rows), str(logits)]
    subprocess.run(command, check=True, stdout=sys.stderr)
    found: Floats = np.load(logits)
    return found


if __name__ == "__main__":
    sys.exit(main())
