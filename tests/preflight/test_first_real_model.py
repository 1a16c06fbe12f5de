"""The page about the first real model gives the steps and costs that the preset would get."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from pipeline_config import load_preset
from preflight.estimates import estimates
from preflight.estimates.auto_steps import decide
from preflight.estimates.sizes import CHARACTERS_A_TOKEN
from preflight.estimates.speed import find_speed
from trained_models import decided_steps
from trained_models.decided_steps import RowCounts, decided_config
from trained_models.errors import UserError

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "first-real-model.md"
CONFIG = load_preset("bert_base_v5e")
MEGABYTES = {
    "1 MB": 1,
    "10 MB": 10,
    "100 MB": 100,
    "1 GB": 1_000,
    "10 GB": 10_000,
    "100 GB": 100_000,
}


def row(text: str) -> list[str]:
    """Return the cells behind a size of text in the page's table."""
    found = re.search(rf"^\| {text} \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert found is not None
    return [cell.strip() for cell in found[1].split("|")]


@pytest.mark.parametrize("text", MEGABYTES)
def test_the_table_is_what_the_plan_would_decide(text: str) -> None:
    training = MEGABYTES[text] * 1e6 * (1 - CONFIG.corpus.validation_fraction)
    rows = RowCounts(math.ceil(training / CHARACTERS_A_TOKEN / CONFIG.masking.max_seq_length), 0)
    cells = row(text)
    assert cells[0] == f"{rows.new:,}"
    if text == "1 MB":
        assert cells[1].startswith("refused")
        with pytest.raises(UserError, match=r"training\.global_batch_size"):
            decide(CONFIG, rows, None)
        return
    found = decide(CONFIG, rows, None)
    assert found is not None
    assert cells[1] == f"{found.steps:,}"
    decided = decided_config(CONFIG, found.steps)
    assert float(cells[2]) == pytest.approx(decided_steps.passes(decided, rows), rel=0.02)
    words = estimates.time_and_cost(decided, find_speed(decided, None))
    assert words.endswith(cells[4])
    number, unit = re.match(r"([\d.]+) (min|h) of TPU", words).groups()  # type: ignore[union-attr]
    shown, shown_unit = cells[3].split()
    assert unit == shown_unit
    assert float(shown) == pytest.approx(float(number), rel=0.04)
