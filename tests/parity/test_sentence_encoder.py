"""A sentence encoder without a masked-LM head leaves its lineage as what it became."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from local.demo.domain import leaving
from tests.model_registry.test_import_command import TOKENS
from tests.parity.round_trip import Lineage
from tests.training.exporting.test_export_heritage import SENTENCE_FILES
from tests.training.importing.test_import_hugging_face import only
from tests.training.pretrained import SIZES, bert_weights, write_hugging_face

pytestmark = pytest.mark.parity

ROWS = {
    "masking.max_seq_length": 64,
    "masking.max_predictions_per_seq": 10,
    "training.head_steps": 4,
}


@pytest.mark.usefixtures("run_torch")
def test_from_published_to_embeddings_in_transformers(tmp_path: Path) -> None:
    sizes = SIZES | {"max_position_embeddings": 64}
    weights = only(bert_weights(sizes=sizes), "bert.")
    source = Path(write_hugging_face(tmp_path / "published", weights, sizes, tokens=TOKENS))
    (source / "1_Pooling").mkdir()
    for name, content in SENTENCE_FILES.items():
        (source / name).write_text(json.dumps(content))
    lineage = Lineage(tmp_path, str(source), ROWS)
    version = lineage.begin()
    run = lineage.update(version)
    found = leaving.export(lineage.store, run, print)
    print(found)
    assert found["compared_in"].startswith("transformers ")
    folder = Path(found["folder"])
    assert json.loads((folder / "modules.json").read_text()) == SENTENCE_FILES["modules.json"]
    assert "alone for 4 steps" in (folder / "README.md").read_text()
