"""A published model becomes a lineage's first version, which its first update has to beat."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from model_registry import consistency, gate, importing, registry
from pipeline_config import with_overrides
from pipeline_store import uris
from pipeline_store.formats import (
    EvaluationReport,
    InitialWeights,
    ModelVersion,
    Verdict,
)
from pipeline_store.layout import RunLayout, VersionLayout
from tests.training.corpora import TinyStore, tiny_config
from tests.training.importing.test_import_hugging_face import only
from tests.training.jobs import BAD_DATA, USER_ERROR, result, train_arguments
from tests.training.pretrained import SETTINGS, bert_weights, write_hugging_face
from trained_models import artifacts, heritage
from training import evaluate, import_version, train
from training.architectures.models import build_model, weights_sha256
from training.importing.loading import InitialModel
from training.model.checkpoints import load_weights

DAY = "2026-01-01"


class Beginning:
    """A lineage that is to begin with a model, and its first partition."""

    def __init__(self, folder: Path, source: str, **settings: object) -> None:
        wanted = {name.replace(".", "__"): value for name, value in SETTINGS.items()}
        # How many steps an update has is decided after the import.
        own = {"model__init_checkpoint": source, "training__train_steps": "auto"}
        config = tiny_config(**(wanted | own | settings))
        self.store = TinyStore.create(folder, config)
        self.config = config
        self.lineage = self.store.layout.lineage(config.model.lineage_id)
        self.manifest = self.store.partition(DAY)

    def begin(self, run_id: str = "1") -> RunLayout | None:
        return importing.begin_import(
            self.store.layout,
            self.config,
            run_id=run_id,
            partition=DAY,
            evaluated={DAY: self.manifest},
            lease_sequence=1,
        )

    def load(self, run: RunLayout) -> int:
        return import_version.main(importing.arguments(self.store.layout, run))

    def make(self) -> None:
        run = self.begin()
        assert run is not None
        self.run = run
        assert self.load(run) == 0
        importing.finish_import(self.store.layout, run)

    @property
    def version(self) -> ModelVersion:
        version = registry.production(self.lineage)
        assert version is not None
        return version

    def prepare(self, key: str, **settings: object) -> RunLayout:
        """Return a run of four steps that has not begun."""
        named = {name.replace("__", "."): value for name, value in settings.items()}
        return self.store.run(key, with_overrides(self.config, named | {"training.train_steps": 4}))

    def update(self, key: str, **settings: object) -> RunLayout:
        """Train from the version in use; return the run."""
        run = self.prepare(key, **settings)
        words = train_arguments(self.store, run, self.manifest)
        parent = self.lineage.version(self.version.version_id)
        assert train.main([*words, "--init-model", parent]) == 0
        return run


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a Hugging Face folder."""
    return write_hugging_face(tmp_path_factory.mktemp("source") / "hf", bert_weights())


@pytest.fixture(scope="module")
def beginning(tmp_path_factory: pytest.TempPathFactory, source: str) -> Beginning:
    """Return a lineage that has begun with it."""
    beginning = Beginning(tmp_path_factory.mktemp("beginning") / "store", source)
    beginning.make()
    return beginning


def test_it_is_a_version_like_any_other(beginning: Beginning, source: str) -> None:
    version = beginning.version
    assert (version.parent, version.partitions_seen, version.train_steps_total) == (None, [], 0)
    assert consistency.check(beginning.lineage, quick=False).problems == []
    folder = VersionLayout(beginning.lineage.version(version.version_id))
    report = EvaluationReport.load(folder.evaluation)
    loss = report.models[0].sets[0].loss
    assert version.metrics[f"candidate/{DAY}/masked_lm_loss"] == loss
    card = uris.read(folder.card).decode()
    assert f"as it was published elsewhere. Imported from {source}." in card
    assert "pooler is untrained" not in card
    kept = heritage.of_model(artifacts.model_files(folder.root))
    assert kept is not None
    assert (kept.pooler_from, kept.pooler_trained) == (source, False)
    # Bit for bit what was published.
    model, original = build_model(beginning.config), build_model(beginning.config)
    load_weights(model, folder.root)
    tokens = tuple(uris.read(folder.vocabulary).decode().splitlines())
    load_weights(original, InitialModel(source, beginning.config.model, tokens))
    assert weights_sha256(model) == weights_sha256(original)
    found = InitialWeights.load(beginning.run.training.initial_weights)
    assert found.uri == source
    assert any("SHA-256" in note for note in found.notes)


def test_doing_it_again_changes_nothing(
    beginning: Beginning, capsys: pytest.CaptureFixture[str]
) -> None:
    before, version = result(beginning.run), beginning.version
    assert beginning.load(beginning.run) == 0
    assert result(beginning.run) == before
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert printed["held_out_loss"] == {
        DAY: round(version.metrics[f"candidate/{DAY}/masked_lm_loss"], 4)
    }
    assert importing.finish_import(beginning.store.layout, beginning.run)[0] == version
    # From now on there is nothing to import.
    assert beginning.begin("2") is None


def test_there_is_nothing_to_import_without_a_model(tmp_path: Path, source: str) -> None:
    assert Beginning(tmp_path / "store", source, model__init_checkpoint=None).begin() is None


def test_the_first_update_is_compared_with_it(beginning: Beginning) -> None:
    version = beginning.version
    parent = beginning.lineage.version(version.version_id)
    run = beginning.update("run-a")
    words = ["--store", beginning.store.layout.root, "--config", run.config, "--current-set", DAY]
    words += ["--set", f"{DAY}={beginning.manifest}", "--output", run.evaluation("baseline")]
    words += ["--model", f"candidate={run.training.root}", "--model", f"baseline={parent}"]
    assert evaluate.main(words) == 0
    report = EvaluationReport.load(run.evaluation("baseline"))
    promotion = beginning.config.promotion
    verdict = gate.judge(report, promotion, baseline_version=version.version_id)
    assert verdict.reference == version.version_id
    # The import's own scores are of the same documents and masks.
    own = EvaluationReport.load(VersionLayout(parent).evaluation).models[0].sets[0]
    baseline = next(model for model in report.models if model.name == "baseline").sets[0]
    assert own.document_ids == baseline.document_ids
    assert own.loss_sums == pytest.approx(baseline.loss_sums, rel=1e-5)


def test_an_update_has_its_own_rate_and_no_moments_to_carry(
    beginning: Beginning, capsys: pytest.CaptureFixture[str]
) -> None:
    beginning.update("run-b", optimizer__carry_slots=True, optimizer__update_learning_rate=1e-4)
    output = capsys.readouterr().out
    assert "peak rate 0.0001, and the optimizer begins with zeros" in output


def test_a_head_that_is_new_is_told(tmp_path: Path) -> None:
    source = write_hugging_face(tmp_path / "hf", only(bert_weights(), "bert."))
    # On labelled tasks an import is compared with nothing.
    settings = {"model__init_encoder_only": True, "promotion__probe_tasks": ["things"]}
    beginning = Beginning(tmp_path / "store", source, **settings)
    run = beginning.begin()
    assert run is not None
    assert beginning.load(run) == 0
    _, verdict = importing.finish_import(beginning.store.layout, run)
    assert "masked-LM head is new" in str(importing.doubt(verdict))


def test_a_doubt_is_only_told_of_what_is_no_better_than_frequencies(beginning: Beginning) -> None:
    verdict = Verdict.load(beginning.run.verdict(None))
    better = verdict.model_copy(update={"improvement_low": 0.5})
    assert importing.doubt(better) is None
    assert importing.doubt(verdict.model_copy(update={"improvement_low": -0.5})) is not None


@pytest.mark.parametrize("damage", ["cut", "head"])
def test_what_cannot_be_imported_leaves_nothing(tmp_path: Path, damage: str) -> None:
    weights = bert_weights() if damage == "cut" else only(bert_weights(), "bert.")
    source = write_hugging_face(tmp_path / "hf", weights)
    if damage == "cut":
        file = Path(source, "model.safetensors")
        file.write_bytes(file.read_bytes()[:-100])
    beginning = Beginning(tmp_path / "store", source)
    run = beginning.begin()
    assert run is not None
    assert beginning.load(run) == (BAD_DATA if damage == "cut" else USER_ERROR)
    assert not uris.exists(run.training.result)
    with pytest.raises(FileNotFoundError):
        importing.finish_import(beginning.store.layout, run)
    assert registry.production(beginning.lineage) is None
    assert not Verdict.load_or_none(run.verdict(None))
    with pytest.raises(FileNotFoundError):
        artifacts.result_checkpoint(run.training.root)
