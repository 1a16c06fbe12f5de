"""What a lineage began with and masked-LM training does not change: its exports have it still."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from pipeline_store.formats import CheckpointManifest, FileDigest, TrainingInputs
from pipeline_store.layout import RunLayout
from tests.training.corpora import TinyStore, tiny_config
from tests.training.exporting.test_export import Exported
from tests.training.importing.test_import_hugging_face import without
from tests.training.jobs import PREEMPTED, train, train_until
from tests.training.pretrained import SETTINGS, Weights, bert_weights, write_hugging_face
from trained_models import artifacts

POOLER = ["bert.pooler.dense.bias", "bert.pooler.dense.weight"]


@dataclass
class Lineage:
    """A store whose runs have the architecture of the weights that they begin with."""

    store: TinyStore
    manifest: str
    exports: Path

    def train(self, key: str, init: str | None = None) -> RunLayout:
        run = self.store.run(key)
        words = [] if init is None else ["--init-model", init]
        assert train(self.store, run, self.manifest, *words) == 0
        return run

    def export(self, run: RunLayout) -> Path:
        exported = Exported(self.store, run.root, self.exports / Path(run.root).name)
        assert exported.export("--format", "hugging_face") == 0
        return exported.folder("hugging_face")


@pytest.fixture
def lineage(tmp_path: Path) -> Lineage:
    config = tiny_config(
        **SETTINGS, masking__max_seq_length=16, training__train_steps=4, optimizer__warmup_steps=0
    )
    store = TinyStore.create(tmp_path / "store", config)
    return Lineage(store, store.partition("2026-01-01"), tmp_path / "exports")


def poolers(folder: Path) -> Weights:
    tensors = load_file(folder / "model.safetensors")
    return {name: value for name, value in tensors.items() if "pooler" in name}


def test_an_imported_pooler_leaves_as_it_came(
    lineage: Lineage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = bert_weights()
    source = write_hugging_face(tmp_path / "published" / "base", weights)
    first = lineage.store.run("first")
    words = (lineage.manifest, "--init-model", source)
    # Stopped and gone on with: what a run began with is told by its checkpoints from then on.
    assert train_until(1, monkeypatch, lineage.store, first, *words) == PREEMPTED
    assert train(lineage.store, first, *words) == 0
    second = lineage.train("second", first.training.root)
    for run in (first, second):
        folder = lineage.export(run)
        found = poolers(folder)
        assert sorted(found) == POOLER
        for name, value in found.items():
            assert np.abs(value - weights[name]).max() == 0, name
        names = load_file(folder / "model.safetensors").keys()
        assert not any(name.startswith("cls.seq") for name in names)
        card = (folder / "README.md").read_text()
        assert "The pooler is, unchanged, that of `published/base`" in card
        assert str(tmp_path) not in card
        query = "bert.encoder.layer.0.attention.self.query.weight"
        assert np.abs(load_file(folder / "model.safetensors")[query] - weights[query]).max() > 0


@pytest.mark.thorough
def test_a_pooler_that_nothing_trained_is_left_out(lineage: Lineage, tmp_path: Path) -> None:
    encoder = without(bert_weights(), "bert.pooler", "cls.seq")
    source = write_hugging_face(tmp_path / "hf", encoder)
    for run in (lineage.train("random"), lineage.train("imported", source)):
        folder = lineage.export(run)
        assert poolers(folder) == {}
        assert "There is no pooler: nothing trained it." in (folder / "README.md").read_text()


@pytest.mark.thorough
def test_a_pooler_that_next_sentences_trained_stays(lineage: Lineage, tmp_path: Path) -> None:
    pairs = lineage.store.using(
        tiny_config(
            **SETTINGS,
            masking__max_seq_length=16,
            masking__packing="segment_pair",
            training__train_steps=4,
            optimizer__warmup_steps=0,
        )
    )
    trained = Lineage(pairs, pairs.partition("2026-01-02"), tmp_path / "exports").train("pairs")
    folder = lineage.export(lineage.train("sentences", trained.training.root))
    assert sorted(poolers(folder)) == POOLER
    assert "was trained with next sentences in an earlier run" in (folder / "README.md").read_text()


@pytest.mark.thorough
def test_models_of_a_time_when_it_was_not_recorded(lineage: Lineage, tmp_path: Path) -> None:
    source = write_hugging_face(tmp_path / "hf", bert_weights())
    run = lineage.train("run", source)
    files = artifacts.model_files(run.training.root)
    place = Path(files.folder, files.inputs)
    content = json.loads(place.read_text())
    assert content.pop("heritage")["pooler_from"] == source
    earlier = TrainingInputs.parse(json.dumps(content).encode(), "inputs.json")
    assert earlier.heritage is None
    manifest = Path(
        run.training.root, json.loads(Path(run.training.result).read_text())["checkpoint"]
    )
    data = json.dumps(content).encode()
    place.write_bytes(data)
    stored = CheckpointManifest.load(str(manifest))
    listed = [
        FileDigest.of(file.path, data) if file.path.endswith("inputs.json") else file
        for file in stored.files
    ]
    stored.model_copy(update={"files": listed}).write(str(manifest))
    folder = lineage.export(run)
    assert poolers(folder) == {}
    assert "it is not recorded whether anything trained it" in (folder / "README.md").read_text()


SENTENCE_FILES: dict[str, object] = {
    "modules.json": [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {
            "idx": 1,
            "name": "1",
            "path": "1_Pooling",
            "type": "sentence_transformers.models.Pooling",
        },
        {
            "idx": 2,
            "name": "2",
            "path": "2_Normalize",
            "type": "sentence_transformers.models.Normalize",
        },
    ],
    "1_Pooling/config.json": {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True},
    "sentence_bert_config.json": {"max_seq_length": 16, "do_lower_case": False},
    "config_sentence_transformers.json": {"__version__": {"sentence_transformers": "2.2.2"}},
}


@pytest.mark.thorough
def test_files_of_sentence_transformers_come_along(lineage: Lineage, tmp_path: Path) -> None:
    source = Path(write_hugging_face(tmp_path / "hf", bert_weights()))
    (source / "1_Pooling").mkdir()
    for name, content in SENTENCE_FILES.items():
        (source / name).write_text(json.dumps(content))
    second = lineage.train("second", lineage.train("first", str(source)).training.root)
    folder = lineage.export(second)
    for name, content in SENTENCE_FILES.items():
        assert json.loads((folder / name).read_text()) == content
    card = (folder / "README.md").read_text()
    assert "the sentence embedding was not trained" in card
    assert 'SentenceTransformer("THIS_FOLDER")' in card
