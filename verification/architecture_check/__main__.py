"""Compares models of each architecture with the library transformers, in both directions.

``python -m verification.architecture_check --torch .venv-torch/bin/python`` prints a line of JSON
for each check, with ``name``, ``value``, ``limit`` and ``holds``, and exits with 1 if one does not
hold. Sizes are those of the published base models; weights are random. Tokens are compared for the
tokenizer that is exported with a model and, for byte-level BPE, for the published merges of GPT-2,
which RoBERTa uses. The comparisons of T5 are in
:mod:`verification.architecture_check.text_to_text`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_config import PipelineConfig, with_overrides
from pipeline_config.training_schema import ModelConfig
from trained_models.architectures import architecture
from trained_models.importing.descriptions import describe
from trained_models.importing.sources import SourceKind
from verification.architecture_check import text_to_text, token_texts

LIMIT = 1e-4
"""Largest difference of a logit, relative to the largest logit."""
ROWS, LENGTH = 4, 128
TEXTS = 10_000
T5 = "t5"
_PROGRAM = Path(__file__).with_name("in_transformers.py")
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_NOISE = 0.02

Floats = npt.NDArray[np.float32]


def main(arguments: list[str] | None = None) -> int:
    """Run the checks of the chosen architectures; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--torch", type=Path, required=True, help="Python that has PyTorch")
    every = (*architecture.names(), T5)
    parser.add_argument("--only", choices=every, help="this architecture")
    options = parser.parse_args(arguments)
    found = []
    for name in [options.only] if options.only else every:
        for result in _checks(name, options.torch):
            print(json.dumps(result), flush=True)
            found.append(result["holds"])
    return 0 if all(found) else 1


def _checks(name: str, python: Path) -> Iterator[dict[str, Any]]:
    if name == T5:
        return text_to_text.checks(python)
    return chain(check_tokens(name, python), check(name, python))


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


def check_tokens(name: str, python: Path) -> Iterator[dict[str, Any]]:
    """Yield how many texts get other tokens than from the library's tokenizer."""
    texts = token_texts.make(TEXTS)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "texts.json").write_text(json.dumps(texts))
        for direction, made in token_texts.tokenizers(name, folder, python, _PROGRAM):
            ids, lengths = made.tokenizer.encode(texts)
            ours = [part.tolist() for part in np.split(ids, np.cumsum(lengths))[:-1]]
            _start(python, "tokens", made.folder, folder / "texts.json", folder / "ids.json")
            theirs = json.loads((folder / "ids.json").read_text())
            value = sum(mine != other for mine, other in zip(ours, theirs, strict=True))
            yield {
                "name": f"{name}_{direction}_tokens",
                "value": value,
                "limit": 0,
                "holds": value == 0,
                "texts": len(texts),
                "vocabulary": len(made.vocabulary.tokens),
            }


def _imported(name: str, folder: Path, python: Path) -> tuple[Floats, Floats]:
    """Return the library's and our logits of a model that the library wrote."""
    form = architecture.named(name).hugging_face
    rows = _rows(name, folder)
    published = dict(form.constants)
    for ours, more in form.more.items():
        published[form.settings[ours]] = getattr(ModelConfig(), ours) + more
    wanted = _run(python, folder, "write", form.model_type, json.dumps(published), str(folder))
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
    """Return our and the library's logits of a model that we exported."""
    from training.architectures.models import build_model, named_variables
    from training.exporting import hugging_face

    config = with_overrides(PipelineConfig(), _settings(name))
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
    return with_overrides(PipelineConfig(), settings | _settings(found.settings["architecture"]))


def _settings(name: str) -> dict[str, Any]:
    model = ModelConfig.model_validate({"architecture": name})
    own = {"vocabulary.kind": "bpe", "vocabulary.do_lower_case": False}
    return {"model.architecture": name} | (own if model.has_byte_tokens else {})


def _rows(name: str, folder: Path) -> dict[str, npt.NDArray[np.int32]]:
    """Write rows of several lengths in the library's format, and return them."""
    random = np.random.default_rng(2)
    mask = (np.arange(LENGTH) < [[LENGTH], [100], [57], [9]]).astype(np.int32)
    ids = random.integers(5, 30000, (ROWS, LENGTH))
    form = architecture.named(name).hugging_face
    rows = {
        "input_ids": np.where(mask, ids, form.constants["pad_token_id"]).astype(np.int32),
        "token_type_ids": (np.arange(LENGTH) > LENGTH // 4).astype(np.int32) * mask,
        "attention_mask": mask,
    }
    taken = {key: values for key, values in rows.items() if key in form.inputs}
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
    """Return the logits that the program in the PyTorch environment writes."""
    logits = folder / "logits.npy"
    _start(python, *arguments, folder / "rows.npz", logits)
    found: Floats = np.load(logits)
    return found


def _start(python: Path, *arguments: str | Path) -> None:
    command = [str(python), str(_PROGRAM), *map(str, arguments)]
    subprocess.run(command, check=True, stdout=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
