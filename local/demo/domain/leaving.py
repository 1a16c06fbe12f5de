"""Exports the continued encoder of `make demo-domain` as a Hugging Face folder and checks it."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from local.commands import run_module
from local.demo.follow import DemoError
from local.stack.paths import REPOSITORY
from pipeline_store.layout import RunLayout, StoreLayout

TORCH_PYTHON = REPOSITORY / ".venv-torch/bin/python"
"""Python of the environment that `make parity` creates; optional."""
CLOSE = 1e-4
"""Tolerance of a difference: as a share of the largest logit, and of an embedding's length."""
_FORMAT = "hugging_face"


def export(store: StoreLayout, run: RunLayout, say: Callable[[str], None]) -> dict[str, Any]:
    """Export a run's candidate, and compare the folder with it in transformers, if installed.

    The candidate is exported whatever the verdict: if it was rejected, the model in use is the
    published encoder, which is available anyway. Without transformers the comparison is the
    exporter's own, in which the importer reads the folder. A candidate that the DAG has already
    exported is not written again.

    :returns: the folder, the program that compared it, and the largest differences.
    :raises DemoError: transformers computes something else.
    :raises subprocess.CalledProcessError: it cannot be exported or read.
    """
    say("exporting the continued encoder")
    words = ["--model", run.training.root, "--store", store.root, "--config", run.config]
    words += ["--output", run.exports.root, "--format", _FORMAT]
    with tempfile.TemporaryDirectory() as scratch:
        reference = Path(scratch, "reference.npz")
        has_torch = TORCH_PYTHON.exists()
        if has_torch:
            words += ["--reference", str(reference)]
        written = json.loads(run_module("training.export_model", *words))[_FORMAT]
        folder = str(written["folder"])
        if not has_torch:
            figures = {name: written[name] for name in ("rows", "masks", "max_logit_difference")}
            return {"folder": folder, "compared_in": "training.export_model", **figures}
        say("comparing it in transformers")
        found = _in_transformers(folder, reference)
    version = found.pop("transformers")
    _require_same(folder, found)
    return {"folder": folder, "compared_in": f"transformers {version}", **found}


def _in_transformers(folder: str, reference: Path) -> dict[str, Any]:
    program = Path(__file__).with_name("in_transformers.py")
    done = subprocess.run(
        [str(TORCH_PYTHON), str(program), folder, str(reference)],
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.decode().splitlines()[-1])
    return found


def _require_same(folder: str, found: dict[str, Any]) -> None:
    largest = CLOSE * found["largest_logit"]
    # A comparison with NaN is false.
    if not (found["max_logit_difference"] < largest and found["max_embedding_difference"] < CLOSE):
        raise DemoError(
            f"{folder} is not the model in transformers: logits differ by "
            f"{found['max_logit_difference']:.1e} (less than {largest:.1e} is asked for), "
            f"embeddings by {found['max_embedding_difference']:.1e} ({CLOSE:g}). This is an error "
            "of the export; do not use the folder."
        )
