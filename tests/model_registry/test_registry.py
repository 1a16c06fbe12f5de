"""Publishing, promoting and rolling back, on a directory and on ``gs://``."""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from model_registry import consistency, publishing, registry
from pipeline_config import parse_config
from pipeline_store import identity, uris
from pipeline_store.formats import (
    EvaluationReport,
    FileDigest,
    FormatError,
    ModelVersion,
    PartitionManifest,
    ProductionPointer,
    RunPlan,
    TrainingResult,
    Verdict,
    VocabularyInfo,
)
from pipeline_store.layout import VersionLayout
from tests.model_registry.runs import VOCABULARY, FinishedRun, change_manifest
from trained_models.artifacts import model_files


def publish(run: FinishedRun) -> ModelVersion:
    return registry.publish(run.store, run.run)


def promote(run: FinishedRun, baseline: str | None = None) -> ProductionPointer:
    return registry.promote(
        run.lineage, run.version_id, expected_baseline=baseline, reason="it is better"
    )


def in_use(store: str, name: str, parent: str | None = None) -> FinishedRun:
    """Return a run whose candidate was published and promoted."""
    run = FinishedRun(store, name, parent=parent)
    publish(run)
    promote(run, parent)
    return run


def test_nothing_is_in_use_at_first(any_store: str) -> None:
    lineage = FinishedRun(any_store, "1").lineage
    assert registry.production(lineage) is None
    assert registry.list_versions(lineage) == []


def test_a_version_has_all_that_is_needed(any_store: str) -> None:
    run = FinishedRun(any_store, "1")
    model = publish(run)
    folder = VersionLayout(run.lineage.version(model.version_id))
    assert ModelVersion.load(folder.model) == model
    assert [file.path for file in model.files] == [
        "MODEL_CARD.md",
        "best_scores.json",
        "checkpoint/inputs.json",
        "checkpoint/model.data-00000-of-00001",
        "checkpoint/model.index",
        "config.json",
        "evaluation.json",
        "hugging_face/below/weights",
        "plan.json",
        "saved_model/below/weights",
        "verdict.json",
        "vocab.txt",
    ]
    assert uris.read(folder.vocabulary) == VOCABULARY
    assert parse_config(uris.read(folder.config), "").corpus.partition == "day-1"
    assert Verdict.load(folder.verdict).reason
    assert EvaluationReport.load(folder.evaluation).current_set == "day-1"
    assert registry.manifests(run.lineage, model) == {"day-1": run.manifest_uri}
    data = uris.read(run.manifest_uri)
    path = run.manifest_uri.removeprefix(f"{run.lineage.root}/")
    assert model.manifests == {"day-1": FileDigest.of(path, data)}
    assert (model.parent, model.partitions_seen, model.train_steps_total) == (None, ["day-1"], 400)
    assert model.metrics["unigram/day-1/masked_lm_loss"] == 6.0
    assert model.metrics["candidate/day-1/masked_lm_loss"] == pytest.approx(5.5, abs=0.1)
    assert model.metrics["improvement"] == pytest.approx(0.5, abs=0.1)


def test_the_trainer_finds_the_weights_in_a_version(any_store: str) -> None:
    run = FinishedRun(any_store, "1")
    model = publish(run)
    found = model_files(run.lineage.version(model.version_id))
    assert found.prefix == model.checkpoint_prefix == "checkpoint/model"
    assert len(found.files) == 3
    assert all(uris.exists(uris.join(found.folder, file.path)) for file in found.files)


def test_publishing_again_changes_nothing(any_store: str) -> None:
    run = FinishedRun(any_store, "1")
    model = publish(run)
    uris.delete_tree(run.run.training.root)
    assert publish(run) == model
    assert registry.list_versions(run.lineage) == [model]


def test_concurrent_tries_publish_one_version(any_store: str) -> None:
    run = FinishedRun(any_store, "1")
    barrier = threading.Barrier(4)

    def one(_: int) -> ModelVersion:
        barrier.wait()
        return publish(run)

    with ThreadPoolExecutor(4) as pool:
        models = list(pool.map(one, range(4)))
    assert len({model.created for model in models}) == 1
    registry.verify(run.lineage, run.version_id)


def test_a_rejected_candidate_is_not_published(any_store: str) -> None:
    run = FinishedRun(any_store, "1", gain=-0.5)
    with pytest.raises(registry.RegistryError, match="'rejected: worse'"):
        publish(run)
    assert uris.list_files(run.lineage.versions) == []


def test_a_candidate_that_was_not_exported_is_not_published(any_store: str) -> None:
    run = FinishedRun(any_store, "1")
    uris.delete(run.run.exports.record)
    with pytest.raises(registry.RegistryError, match="was not exported"):
        publish(run)
    assert registry.list_versions(run.lineage) == []


def test_exports_of_another_model_are_not_published(any_store: str) -> None:
    run = FinishedRun(any_store, "1")
    run.export(files_sha256="3" * 64)
    with pytest.raises(registry.RegistryError, match=f"of the model {'3' * 64}, but the candidate"):
        publish(run)


def test_fewer_formats_than_asked_for_are_not_published(any_store: str) -> None:
    run = FinishedRun(any_store, "1")
    run.export("saved_model")
    with pytest.raises(registry.RegistryError, match=r"exported as \['saved_model'\]"):
        publish(run)
    # One that was left out for a reason is accounted for.
    run.export("saved_model", left_out={"hugging_face": "no tokenizer"})
    card = uris.read(VersionLayout(run.lineage.version(publish(run).version_id)).card).decode()
    assert "Not as `hugging_face`: no tokenizer." in card


def test_damaged_exports_are_not_published(any_store: str) -> None:
    run = FinishedRun(any_store, "1")
    uris.write(uris.join(run.run.exports.root, "one-try/saved_model/below/weights"), b"other")
    with pytest.raises(FormatError, match="saved_model/below/weights has 5 bytes"):
        publish(run)
    assert registry.list_versions(run.lineage) == []


def test_damaged_weights_are_not_published(any_store: str) -> None:
    run = FinishedRun(any_store, "1")
    [data] = [uri for uri in uris.list_files(run.run.training.root) if ".data-" in uri]
    uris.write(data, uris.read(data)[:-1] + b"?")
    with pytest.raises(FormatError, match="damaged"):
        publish(run)
    assert registry.list_versions(run.lineage) == []


def test_another_vocabulary_is_not_published(any_store: str) -> None:
    run = FinishedRun(any_store, "1")
    uris.write(run.lineage.vocabulary, VOCABULARY + b"more\n")
    with pytest.raises(registry.RegistryError, match="token ids would mean different words"):
        publish(run)


def test_a_sentencepiece_model_is_published_with_its_tokens(any_store: str) -> None:
    run = FinishedRun(any_store, "1")
    data = b"serialized SentencePiece model"
    sha256 = hashlib.sha256(data).hexdigest()
    info = VocabularyInfo.load(run.lineage.vocabulary_info)
    changed = {"vocabulary_kind": "sentencepiece", "sha256": sha256}
    info.model_copy(update=changed).write(run.lineage.vocabulary_info)
    manifest = PartitionManifest.load(run.manifest_uri)
    manifest.model_copy(update={"vocabulary_sha256": sha256}).write(run.manifest_uri)
    uris.write(run.lineage.sentencepiece_model, b"another model")
    with pytest.raises(registry.RegistryError, match=r"sentencepiece\.model: token ids"):
        publish(run)

    uris.write(run.lineage.sentencepiece_model, data)
    model = publish(run)
    folder = VersionLayout(run.lineage.version(model.version_id))
    assert uris.read(folder.sentencepiece_model) == data
    assert uris.read(folder.vocabulary) == VOCABULARY
    assert model.vocabulary_sha256 == sha256
    assert "6 SentencePiece tokens" in uris.read(folder.card).decode()
    registry.verify(run.lineage, model.version_id)


def test_a_partition_of_another_vocabulary_is_not_published(any_store: str) -> None:
    run = FinishedRun(any_store, "1")
    manifest = PartitionManifest.load(run.manifest_uri)
    manifest.model_copy(update={"vocabulary_sha256": "0" * 64}).write(run.manifest_uri)
    with pytest.raises(registry.RegistryError, match="the vocabulary of partition day-1: token"):
        publish(run)


def test_an_interrupted_try_leaves_no_version_and_is_completed(any_store: str) -> None:
    run = FinishedRun(any_store, "1")
    result = TrainingResult.load(run.run.training.result)
    uris.delete(run.run.training.result)
    with pytest.raises(FileNotFoundError):
        publish(run)
    assert registry.list_versions(run.lineage) == []
    with pytest.raises(registry.RegistryError, match="does not exist"):
        promote(run)
    result.write(run.run.training.result)
    # Left behind by a try that died after it had written the card.
    uris.write(VersionLayout(run.lineage.version(run.version_id)).card, b"half a ca")
    publish(run)
    registry.verify(run.lineage, run.version_id)


def test_the_first_promotion(any_store: str) -> None:
    run = in_use(any_store, "1")
    model = registry.production(run.lineage)
    assert model is not None
    assert model.version_id == run.version_id
    pointer = ProductionPointer.load(run.lineage.production)
    assert (pointer.sequence, pointer.reason) == (1, "it is better")


def test_lineage_and_partitions_accumulate(any_store: str) -> None:
    first = in_use(any_store, "1")
    second = in_use(any_store, "2", first.version_id)
    model = registry.production(second.lineage)
    assert model is not None
    assert model.parent == first.version_id
    assert model.partitions_seen == ["day-1", "day-2"]
    assert model.train_steps_total == 800
    assert set(registry.manifests(second.lineage, model)) == {"day-1", "day-2"}
    assert all(map(uris.exists, registry.manifests(second.lineage, model).values()))
    assert ProductionPointer.load(second.lineage.production).sequence == 2
    assert [m.version_id for m in registry.list_versions(second.lineage)] == [
        first.version_id,
        second.version_id,
    ]


def test_all_partitions_that_were_trained_on_are_seen(any_store: str) -> None:
    first = in_use(any_store, "1")
    other = FinishedRun(any_store, "4")
    run = FinishedRun(any_store, "5", parent=first.version_id)
    plan = run.plan(
        trained={run.partition: run.manifest_uri, other.partition: other.manifest_uri},
        replayed={first.partition: first.manifest_uri},
    )
    model = publish(run)
    assert model.partitions_seen == ["day-1", "day-5", "day-4"]
    folder = VersionLayout(run.lineage.version(model.version_id))
    assert RunPlan.load(folder.plan) == plan
    assert registry.manifests(run.lineage, model)["day-4"] == other.manifest_uri
    card = uris.read(folder.card).decode()
    assert "on partition `day-5` and, as nobody had trained on them, on `day-4`." in card
    assert "| replayed | 20% of each batch, from `day-1` |" in card


def test_a_partition_that_has_changed_is_seen_once_with_its_newest_manifest(any_store: str) -> None:
    first = in_use(any_store, "1")
    again = FinishedRun(any_store, "2", parent=first.version_id)
    changed = PartitionManifest.load(first.manifest_uri).model_copy(update={"documents": 7})
    changed.write(uri := again.lineage.manifest("day-1", "1" * 16))
    again.plan(trained={"day-1": uri})
    model = publish(again)
    assert model.partitions_seen == ["day-1"]
    assert registry.manifests(again.lineage, model) == {"day-1": uri}


def test_of_older_versions_manifests_are_copied_only_where_there_is_no_original(
    any_store: str,
) -> None:
    first = FinishedRun(any_store, "1")
    keys = [uri.split("/")[-2] for uri in PartitionManifest.load(first.manifest_uri).shards]
    original = first.lineage.manifest("day-1", identity.manifest_id("day-1", keys))
    uris.write(original, uris.read(first.manifest_uri))
    publish(first)
    promote(first)
    change_manifest(first.lineage, first.version_id, "day-1")
    second = in_use(any_store, "2", first.version_id)
    model = registry.load_version(second.lineage, second.version_id)
    assert registry.manifests(second.lineage, model) == {
        "day-1": original,
        "day-2": second.manifest_uri,
    }
    # A copy that differs from what is among the partitions stays one.
    change_manifest(second.lineage, second.version_id, "day-1", documents=7)
    third = in_use(any_store, "3", second.version_id)
    model = registry.verify(third.lineage, third.version_id)
    copy = VersionLayout(third.lineage.version(third.version_id)).manifest("day-1")
    assert registry.manifests(third.lineage, model)["day-1"] == copy
    assert PartitionManifest.load(copy).documents == 7
    assert consistency.check(third.lineage).problems == []
    uris.write(second.manifest_uri, uris.read(first.manifest_uri))
    with pytest.raises(registry.DamagedVersionError, match=r"partitions/day-2/0+\.json has other"):
        registry.verify(third.lineage, third.version_id)


def test_promoting_again_changes_nothing(any_store: str) -> None:
    run = in_use(any_store, "1")
    before = uris.read_versioned(run.lineage.production)
    assert promote(run).sequence == 1
    assert uris.read_versioned(run.lineage.production) == before


def test_a_comparison_with_an_old_model_does_not_promote(any_store: str) -> None:
    first = in_use(any_store, "1")
    slow = FinishedRun(any_store, "2", parent=first.version_id)
    publish(slow)
    fast = in_use(any_store, "3", first.version_id)
    with pytest.raises(registry.ProductionMovedError, match=r"in use now.*trigger a new run"):
        promote(slow, first.version_id)
    pointer = ProductionPointer.load(slow.lineage.production)
    assert (pointer.version_id, pointer.sequence) == (fast.version_id, 2)


def test_production_that_moves_while_files_are_copied_stops_the_version(
    any_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = in_use(any_store, "1")
    slow = FinishedRun(any_store, "2", parent=first.version_id)
    copy = publishing.copy_checkpoint_files

    def overtaken(*arguments: str) -> tuple[list[FileDigest], str]:
        with monkeypatch.context() as patch:
            patch.setattr(publishing, "copy_checkpoint_files", copy)
            in_use(any_store, "3", first.version_id)
        return copy(*arguments)

    monkeypatch.setattr(publishing, "copy_checkpoint_files", overtaken)
    with pytest.raises(registry.ProductionMovedError, match=r"trigger a new run"):
        publish(slow)
    assert not uris.exists(slow.lineage.model(slow.version_id))


def test_a_try_overtaken_by_another_returns_what_that_one_published(
    any_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = FinishedRun(any_store, "1")
    copy = publishing.copy_checkpoint_files

    def overtaken(*arguments: str) -> tuple[list[FileDigest], str]:
        with monkeypatch.context() as patch:
            patch.setattr(publishing, "copy_checkpoint_files", copy)
            publish(run)
            promote(run)
        return copy(*arguments)

    monkeypatch.setattr(publishing, "copy_checkpoint_files", overtaken)
    assert publish(run) == registry.production(run.lineage)
    assert len(registry.list_versions(run.lineage)) == 1


def test_publishing_stops_early_when_production_moved(any_store: str) -> None:
    first = in_use(any_store, "1")
    late = FinishedRun(any_store, "2")
    with pytest.raises(registry.ProductionMovedError, match=f"no model in use.*{first.version_id}"):
        publish(late)
    assert not uris.list_files(late.lineage.version(late.version_id))


def test_of_concurrent_promotions_one_wins(any_store: str) -> None:
    runs = [FinishedRun(any_store, str(number)) for number in range(6)]
    for run in runs:
        publish(run)
    barrier = threading.Barrier(len(runs))

    def one(run: FinishedRun) -> bool:
        barrier.wait()
        try:
            promote(run)
        except registry.ProductionMovedError:
            return False
        return True

    with ThreadPoolExecutor(len(runs)) as pool:
        won = list(pool.map(one, runs))
    assert won.count(True) == 1
    pointer = ProductionPointer.load(runs[0].lineage.production)
    assert pointer.version_id == runs[won.index(True)].version_id
    assert pointer.sequence == 1


def test_a_version_with_missing_files_is_not_promoted(any_store: str) -> None:
    run = FinishedRun(any_store, "1")
    publish(run)
    uris.delete(uris.join(run.lineage.version(run.version_id), "checkpoint/model.index"))
    with pytest.raises(registry.DamagedVersionError, match=r"checkpoint/model\.index is missing"):
        promote(run)
    assert registry.production(run.lineage) is None


def test_a_version_whose_bytes_changed_after_the_copy_is_not_promoted(any_store: str) -> None:
    run = FinishedRun(any_store, "1")
    publish(run)
    weights = uris.join(run.lineage.version(run.version_id), "checkpoint/model.index")
    uris.write(weights, bytes(len(uris.read(weights))))
    with pytest.raises(registry.DamagedVersionError, match="has other content than was published"):
        promote(run)
    assert registry.production(run.lineage) is None


def test_rollback(any_store: str) -> None:
    first = in_use(any_store, "1")
    second = in_use(any_store, "2", first.version_id)
    pointer = registry.rollback(second.lineage, first.version_id, reason="bad answers", by="ada")
    assert (pointer.sequence, pointer.version_id) == (3, first.version_id)
    assert (pointer.reason, pointer.changed_by) == ("bad answers", "ada")
    assert pointer.rolled_back == [second.version_id]
    model = registry.production(second.lineage)
    assert model is not None
    assert model.version_id == first.version_id
    # Again: nothing to do.
    assert registry.rollback(second.lineage, first.version_id, reason="again") == pointer


def test_a_retried_run_does_not_undo_a_rollback(any_store: str) -> None:
    first = in_use(any_store, "1")
    second = in_use(any_store, "2", first.version_id)
    registry.rollback(second.lineage, first.version_id, reason="bad answers")
    with pytest.raises(registry.RegistryError, match="a person rolled it back"):
        promote(second, first.version_id)
    # A person may put it back, and then it counts as any other.
    pointer = registry.rollback(second.lineage, second.version_id, reason="it was fine")
    assert pointer.rolled_back == [first.version_id]
    assert promote(second, first.version_id) == pointer


def test_a_rollback_stays_known_over_promotions(any_store: str) -> None:
    first = in_use(any_store, "1")
    second = in_use(any_store, "2", first.version_id)
    registry.rollback(second.lineage, first.version_id, reason="bad answers")
    in_use(any_store, "3", first.version_id)
    assert ProductionPointer.load(first.lineage.production).rolled_back == [second.version_id]


def test_rollback_needs_a_sound_version(any_store: str) -> None:
    first = in_use(any_store, "1")
    in_use(any_store, "2", first.version_id)
    folder = VersionLayout(first.lineage.version(first.version_id))
    uris.write(folder.vocabulary, VOCABULARY.replace(b"word", b"worm"))
    with pytest.raises(registry.DamagedVersionError, match=r"vocab\.txt has other content"):
        registry.rollback(first.lineage, first.version_id, reason="")
    with pytest.raises(registry.RegistryError, match="'v-none' does not exist"):
        registry.rollback(first.lineage, "v-none", reason="")


def test_rollback_without_a_model_in_use(any_store: str) -> None:
    run = FinishedRun(any_store, "1")
    publish(run)
    with pytest.raises(registry.RegistryError, match="nothing to roll back"):
        registry.rollback(run.lineage, run.version_id, reason="")


def test_verify_names_every_problem(any_store: str) -> None:
    run = in_use(any_store, "1")
    folder = VersionLayout(run.lineage.version(run.version_id))
    uris.delete(folder.card)
    uris.write(folder.vocabulary, VOCABULARY[:-1])
    uris.write(folder.config, uris.read(folder.config).replace(b"smoke", b"smoky")[::-1])
    with pytest.raises(registry.DamagedVersionError) as caught:
        registry.verify(run.lineage, run.version_id)
    assert caught.value.problems == [
        "MODEL_CARD.md is missing",
        "config.json has other content than was published",
        f"vocab.txt has {len(VOCABULARY) - 1} bytes instead of {len(VOCABULARY)}",
    ]


def test_a_pointer_to_nothing_is_an_error(any_store: str) -> None:
    run = in_use(any_store, "1")
    uris.delete_tree(run.lineage.version(run.version_id))
    with pytest.raises(registry.RegistryError, match=f"'{run.version_id}' does not exist"):
        registry.production(run.lineage)


def test_a_copied_version_folder_is_an_error(any_store: str) -> None:
    run = in_use(any_store, "1")
    uris.copy(run.lineage.model(run.version_id), run.lineage.model("v-copy"))
    with pytest.raises(registry.RegistryError, match="copied or renamed"):
        registry.load_version(run.lineage, "v-copy")
