"""A published model of each format goes all the way through a lineage, and transformers agrees."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.parity.conftest import RunTorch
from tests.parity.published import FORMATS, LAYOUT, publish
from tests.parity.round_trip import DAY, Lineage, round_trip

pytestmark = pytest.mark.parity

CLOSE = 1e-4
"""Of a difference of logits, as a share of the largest."""


@pytest.mark.parametrize("form", FORMATS)
def test_from_published_to_transformers(form: str, run_torch: RunTorch, tmp_path: Path) -> None:
    lineage = Lineage(tmp_path, publish(tmp_path / "published", form))
    went = round_trip(lineage, tmp_path, run_torch, LAYOUT["vocab_size"])
    print(f"{form}: {went.difference:.1e} of {went.largest:.2f}, moved by {went.moved:.2f}")
    assert math.isfinite(went.imported.metrics[f"candidate/{DAY}/masked_lm_loss"])
    assert went.verdict.reference == went.imported.version_id
    assert went.found["class"] == "BertForMaskedLM"
    assert went.found["missing_keys"] == went.found["mismatched_keys"] == []
    assert went.difference < CLOSE * went.largest
    # Trained on, so it is not what was published that came out again.
    assert went.moved > 100 * went.difference
