"""T5 models compute and decode what they do in the library transformers, at a small size."""

from __future__ import annotations

import pytest

from tests.parity.conftest import TORCH_PYTHON, RunTorch
from trained_models.text_to_text.sizes import Form
from verification.architecture_check.text_to_text import Sizes, ids, models

pytestmark = pytest.mark.parity

SMALL: Sizes = {
    "vocab_size": 128,
    "d_model": 48,
    "d_kv": 12,
    "d_ff": 96,
    "num_layers": 2,
    "num_heads": 4,
    "noise": 0.1,
    "embedding": 1.0,
}


@pytest.mark.parametrize("form", ["1.0", "1.1"])
def test_logits_and_weights_are_those_of_transformers(form: Form, run_torch: RunTorch) -> None:
    for row in models(form, "tiny", SMALL, TORCH_PYTHON, length=20):
        assert row["holds"], row


@pytest.mark.parametrize("form", ["1.0", "1.1"])
def test_ids_are_those_of_transformers(form: Form, run_torch: RunTorch) -> None:
    for row in ids(form, SMALL, TORCH_PYTHON, rows=96):
        assert row["holds"], row
