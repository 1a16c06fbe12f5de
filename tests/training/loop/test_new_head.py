"""A masked-LM head that is new is trained alone before the model, and is what that is judged by."""

from __future__ import annotations

from pathlib import Path

import pytest

from model_registry import gate
from pipeline_store import uris
from pipeline_store.formats import EvaluationReport, NewHead, TrainingResult, VocabularyInfo
from pipeline_store.layout import RunLayout, TrainingLayout
from tests.training.exporting.test_export import Exported
from tests.training.importing.test_import_hugging_face import only
from tests.training.importing.test_import_version import DAY, Beginning
from tests.training.jobs import PREEMPTED, all_files, result, train, train_until
from tests.training.pretrained import bert_weights, write_hugging_face
from trained_models import artifacts, heritage
from training import evaluate
from training.architectures.models import build_model, named_variables
from training.exporting import card
from training.importing.loading import InitialModel
from training.model.checkpoints import load_weights

STEPS = 4


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return an encoder with a pooler, without a masked-LM head."""
    folder = tmp_path_factory.mktemp("source") / "hf"
    return write_hugging_face(folder, only(bert_weights(), "bert."))


@pytest.fixture(scope="module")
def beginning(tmp_path_factory: pytest.TempPathFactory, source: str) -> Beginning:
    """Return a lineage that begins with it."""
    folder = tmp_path_factory.mktemp("beginning") / "store"
    beginning = Beginning(folder, source, model__init_encoder_only=True)
    beginning.make()
    return beginning


@pytest.fixture(scope="module")
def updated(beginning: Beginning) -> RunLayout:
    """Return its first update."""
    return beginning.update("first")


def head_of(beginning: Beginning, run: RunLayout) -> TrainingLayout:
    return run.head(beginning.version.version_id)


def weights(beginning: Beginning, model_uri: str) -> dict[str, bytes]:
    """Return the bytes of a model's variables by name."""
    config = beginning.config
    model = build_model(config)
    load_weights(model, InitialModel(model_uri, config.model, ()))
    return {name: found.numpy().tobytes() for name, found in named_variables(model).items()}


def changed(before: dict[str, bytes], after: dict[str, bytes]) -> set[str]:
    return {name for name in before if before[name] != after[name]}


def test_the_head_is_trained_alone_then_head_and_encoder(
    beginning: Beginning, updated: RunLayout
) -> None:
    imported = weights(beginning, beginning.lineage.version(beginning.version.version_id))
    head = weights(beginning, head_of(beginning, updated).root)
    both = weights(beginning, updated.training.root)
    heads = {name for name in imported if "/cls/" in name}
    assert changed(imported, head) == heads
    assert changed(head, both) > heads


def test_head_and_model_have_as_many_steps(beginning: Beginning, updated: RunLayout) -> None:
    head = TrainingResult.load(head_of(beginning, updated).result)
    assert (head.train_steps, result(updated).train_steps) == (STEPS, STEPS)


def test_the_model_keeps_what_its_lineage_began_with(
    beginning: Beginning, updated: RunLayout, source: str
) -> None:
    kept = heritage.of_model(artifacts.model_files(updated.training.root))
    assert kept is not None
    assert kept.pooler_from == source


def new_head(model_uri: str) -> NewHead | None:
    kept = heritage.of_model(artifacts.model_files(model_uri))
    assert kept is not None
    return kept.new_head


@pytest.mark.thorough
def test_how_the_head_began_goes_from_run_to_run(beginning: Beginning, updated: RunLayout) -> None:
    imported = beginning.lineage.version(beginning.version.version_id)
    assert new_head(imported) == NewHead(steps=0)
    head = TrainingResult.load(head_of(beginning, updated).result)
    began = NewHead(steps=STEPS, loss=head.final_loss)
    assert new_head(updated.training.root) == began
    second = beginning.prepare("second")
    words = (beginning.manifest, "--init-model", updated.training.root)
    assert train(beginning.store, second, *words) == 0
    assert new_head(second.training.root) == began


def test_the_card_of_an_export_says_how_the_head_began(
    beginning: Beginning, updated: RunLayout, tmp_path: Path
) -> None:
    exported = Exported(beginning.store, updated.root, tmp_path / "exports")
    assert exported.export("--format", "hugging_face") == 0
    text = (exported.folder("hugging_face") / "README.md").read_text()
    loss = TrainingResult.load(head_of(beginning, updated).result).final_loss
    assert "The masked-LM head is new: the weights that the lineage began with had none." in text
    assert (
        f"alone for {STEPS} steps, the encoder held still, to a training loss of {loss:.4f}" in text
    )


def test_again_nothing_is_trained(beginning: Beginning, updated: RunLayout) -> None:
    before = all_files(updated.root)
    version = beginning.lineage.version(beginning.version.version_id)
    assert train(beginning.store, updated, beginning.manifest, "--init-model", version) == 0
    assert all_files(updated.root) == before


@pytest.mark.thorough
def test_interrupted_in_either_part_it_has_the_same_weights(
    beginning: Beginning, updated: RunLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = beginning.lineage.version(beginning.version.version_id)
    run = beginning.prepare("interrupted")
    words = (beginning.manifest, "--init-model", version)
    head = head_of(beginning, run)
    assert train_until(1, monkeypatch, beginning.store, run, *words) == PREEMPTED
    assert not uris.exists(head.result)
    # To the end of the head, and into the model.
    loops = STEPS // beginning.config.training.steps_per_loop
    assert train_until(loops, monkeypatch, beginning.store, run, *words) == PREEMPTED
    assert uris.exists(head.result)
    assert not uris.exists(run.training.result)
    assert train(beginning.store, run, *words) == 0
    assert result(run).weights_sha256 == result(updated).weights_sha256
    alone = TrainingResult.load(head_of(beginning, updated).result)
    assert TrainingResult.load(head.result).weights_sha256 == alone.weights_sha256


def test_none_if_none_is_wanted(beginning: Beginning) -> None:
    run = beginning.update("together", training__head_steps=0)
    assert not uris.exists(head_of(beginning, run).result)
    assert new_head(run.training.root) == NewHead(steps=0)
    inputs = artifacts.load_inputs(artifacts.model_files(run.training.root))
    vocabulary = VocabularyInfo.load(beginning.lineage.vocabulary_info)
    found = card.render(beginning.config.model, vocabulary, inputs)
    assert "No training of the head alone came before." in found


def test_without_a_registry_too(beginning: Beginning) -> None:
    run = beginning.prepare("alone")
    assert train(beginning.store, run, beginning.manifest) == 0
    assert uris.exists(run.head(None).result)


def test_a_model_with_a_head_needs_none(tmp_path: Path) -> None:
    source = write_hugging_face(tmp_path / "hf", bert_weights())
    with_head = Beginning(tmp_path / "store", source)
    with_head.make()
    run = with_head.update("first")
    assert not uris.exists(head_of(with_head, run).result)
    assert new_head(run.training.root) is None


def test_a_dry_run_says_so_and_writes_nothing(
    beginning: Beginning, capsys: pytest.CaptureFixture[str]
) -> None:
    version = beginning.lineage.version(beginning.version.version_id)
    run = beginning.prepare("dry")
    words = (beginning.manifest, "--init-model", version, "--dry-run")
    before = all_files(run.root)
    assert train(beginning.store, run, *words) == 0
    assert f"{STEPS} steps of the head alone" in capsys.readouterr().out
    assert all_files(run.root) == before


def test_the_verdict_says_what_was_compared(beginning: Beginning, updated: RunLayout) -> None:
    version_id = beginning.version.version_id
    output = updated.evaluation(version_id)
    words = ["--store", beginning.store.layout.root, "--config", updated.config]
    words += ["--current-set", DAY, "--set", f"{DAY}={beginning.manifest}", "--output", output]
    words += ["--model", f"candidate={updated.training.root}"]
    words += ["--model", f"baseline={head_of(beginning, updated).root}"]
    assert evaluate.main(words) == 0
    promotion = beginning.config.promotion.model_copy(update={"min_documents": 1})
    verdict = gate.judge(EvaluationReport.load(output), promotion, baseline_version=version_id)
    assert verdict.reference == version_id
    assert f"that of {version_id} under a head trained alone" in verdict.reason
