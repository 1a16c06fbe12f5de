"""The model card has what a reader asks for."""

from __future__ import annotations

import pytest

from model_registry import registry
from pipeline_store import uris
from pipeline_store.layout import VersionLayout
from tests.model_registry.runs import FinishedRun


@pytest.fixture
def cards(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Return the cards of a first model and of one that followed it."""
    store = str(tmp_path_factory.mktemp("store"))
    texts, parent = [], None
    for name in ("1", "2"):
        run = FinishedRun(store, name, parent=parent)
        registry.publish(run.store, run.run, manifest_uri=run.manifest_uri, baseline=parent)
        registry.promote(run.lineage, run.version_id, expected_baseline=parent, reason="r")
        texts.append(uris.read(VersionLayout(run.lineage.version(run.version_id)).card).decode())
        parent = run.version_id
    return texts[0], texts[1]


def test_the_first_card(cards: tuple[str, str]) -> None:
    card = cards[0]
    assert "| started from | random weights |" in card
    assert "2 layers, 128 wide, 2 heads" in card
    assert "6 WordPiece tokens, uncased" in card
    assert "| `day-1` | 1,234 | 5,000 | 600,000 | 500 | 3 |" in card
    assert "| steps | 400 (400 in all) |" in card
    assert "candidate loss | candidate accuracy | unigram loss |" in card
    assert "| 6.0000 |" in card
    assert "pooler is untrained" in card
    assert "Promoted: On 40 held-out documents" in card


def test_the_second_card_names_its_ancestor(cards: tuple[str, str]) -> None:
    card = cards[1]
    assert "| started from | `v-" in card
    assert "`day-1`" in card
    assert "| `day-2` (new) | 40 |" in card
    assert "baseline loss | baseline accuracy | unigram loss |" in card
    assert "| steps | 400 (800 in all) |" in card


def test_tables_are_well_formed(cards: tuple[str, str]) -> None:
    for card in cards:
        blocks = [b for b in card.split("\n\n") if b.startswith("|")]
        assert len(blocks) == 4
        for block in blocks:
            assert len({line.count("|") for line in block.splitlines()}) == 1
