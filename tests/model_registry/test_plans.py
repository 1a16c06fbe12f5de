"""What a run trains on, starts from and is compared on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from model_registry import panel, plans, registry
from model_registry.earlier_passes import EarlierPasses
from model_registry.lease import acquire
from pipeline_config import PipelineConfig, with_overrides
from pipeline_store import uris
from pipeline_store.formats import (
    BestScores,
    LineageLease,
    PartitionManifest,
    RunPlan,
    RunRecord,
    Split,
)
from tests.beam_jobs.manifests import shard
from tests.model_registry.runs import CONFIG, NOW, FinishedRun, change_manifest
from trained_models.decided_steps import RowCounts, passes, replay_passes
from trained_models.errors import UserError


def in_use(store: str, name: str, parent: str | None = None) -> FinishedRun:
    """Return a run whose candidate was published and promoted."""
    run = FinishedRun(store, name, parent=parent)
    registry.publish(run.store, run.run)
    registry.promote(run.lineage, run.version_id, expected_baseline=parent, reason="better")
    return run


@pytest.fixture
def versions(tmp_path: Path) -> list[FinishedRun]:
    """Two runs, each of whose models came into use, the second from the first."""
    first = in_use(str(tmp_path), "1")
    return [first, in_use(str(tmp_path), "2", first.version_id)]


def new_run(versions: list[FinishedRun], name: str, **settings: Any) -> FinishedRun:
    """Return a further run, which has no plan yet."""
    run = FinishedRun(versions[0].store.root, name)
    uris.delete(run.run.plan)
    configure(run, **settings)
    return run


def configure(run: FinishedRun, **settings: Any) -> None:
    dotted = {name.replace("__", "."): value for name, value in settings.items()}
    config = with_overrides(CONFIG, dotted | {"corpus.partition": run.partition})
    uris.write(run.run.config, config.to_bytes())


def held(run: FinishedRun) -> LineageLease:
    record = RunRecord.load(run.run.record)
    standing = acquire(
        run.lineage, record, expires=NOW, poll_seconds=1.0, has_ended=lambda lease: True
    )
    assert standing.lease is not None
    return standing.lease


def make_plan(run: FinishedRun) -> RunPlan:
    return plans.make_plan(run.store, run.run, held(run), run.manifest_uri, as_many_as_rows)


def as_many_as_rows(config: PipelineConfig, rows: RowCounts) -> int | None:
    """Return other steps for other rows, so that what was counted shows."""
    if config.training.train_steps != "auto":
        return None
    return rows.new + 1_000_000 * rows.replayed


def prepare(run: FinishedRun, partition: str, manifest_id: str = "0" * 16, **changes: Any) -> str:
    """Write another manifest, of a partition that was prepared but perhaps never trained on."""
    changes = {"partition": partition, **changes}
    manifest = PartitionManifest.load(run.manifest_uri).model_copy(update=changes)
    manifest.write(uri := run.lineage.manifest(partition, manifest_id))
    return uri


def replayed(plan: RunPlan) -> list[str]:
    return [PartitionManifest.load(uri).partition for uri in plan.replayed.values()]


def test_the_first_run_of_a_lineage_starts_from_nothing(tmp_path: Path) -> None:
    run = FinishedRun(str(tmp_path), "1")
    uris.delete(run.run.plan)
    configure(run)
    plan = make_plan(run)
    assert plan == RunPlan.load(run.run.plan)
    assert plan.parent_version is None
    assert plan.trained == plan.evaluated == {"day-1": run.manifest_uri}
    assert plan.replayed == {}


def test_a_try_overtaken_by_another_takes_that_ones_plan(
    versions: list[FinishedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(versions, "3")
    create = RunPlan.create

    def overtaken(plan: RunPlan, uri: str) -> bool:
        other = plan.model_copy(update={"not_replayed": {"day-1": "said by the other try"}})
        assert create(other, uri)
        return create(plan, uri)

    monkeypatch.setattr(RunPlan, "create", overtaken)
    assert make_plan(run).not_replayed == {"day-1": "said by the other try"}


def test_a_run_continues_the_model_in_use(versions: list[FinishedRun]) -> None:
    run = new_run(versions, "3")
    plan = make_plan(run)
    assert plan.parent_version == versions[1].version_id
    assert plan.trained == {"day-3": run.manifest_uri}
    assert list(plan.evaluated) == ["day-1", "day-2", "day-3"]
    assert plan.lease_sequence == held(run).sequence - 1


def test_partitions_of_the_parent_are_replayed(versions: list[FinishedRun]) -> None:
    assert replayed(make_plan(new_run(versions, "3"))) == ["day-1", "day-2"]


def test_without_a_share_nothing_is_replayed(versions: list[FinishedRun]) -> None:
    assert replayed(make_plan(new_run(versions, "3", training__replay_fraction=0.0))) == []


def test_a_partition_that_is_trained_on_again_is_not_replayed(versions: list[FinishedRun]) -> None:
    run = new_run(versions, "2", training__train_again=True)
    plan = make_plan(run)
    assert plan.trained == {"day-2": run.manifest_uri}
    assert replayed(plan) == ["day-1"]


def test_a_partition_of_another_recipe_is_left_out_with_the_reason(
    versions: list[FinishedRun],
) -> None:
    change_manifest(versions[0].lineage, versions[1].version_id, "day-1", packing="full_sentences")
    plan = make_plan(new_run(versions, "3"))
    assert replayed(plan) == ["day-2"]
    assert "packed as 'full_sentences'" in plan.not_replayed["day-1"]


def test_a_damaged_manifest_of_the_model_in_use_is_not_trusted(
    versions: list[FinishedRun],
) -> None:
    parent = registry.load_version(versions[0].lineage, versions[1].version_id)
    seen = registry.manifests(versions[0].lineage, parent)["day-1"]
    uris.write(seen, uris.read(seen).replace(b"1234", b"4321"))
    run = new_run(versions, "3")
    with pytest.raises(registry.DamagedVersionError, match=r"partitions/day-1/0+\.json has other"):
        make_plan(run)
    assert not uris.exists(run.run.plan)


def test_a_partition_that_was_seen_as_it_is_is_not_trained_on_again(
    versions: list[FinishedRun],
) -> None:
    run = new_run(versions, "1")
    wanted = f"day-1 was seen already by {versions[1].version_id}.*training.train_again"
    with pytest.raises(plans.SeenAlreadyError, match=wanted):
        make_plan(run)
    assert not uris.exists(run.run.plan)


def test_a_partition_that_has_changed_is_trained_on(versions: list[FinishedRun]) -> None:
    run = new_run(versions, "1")
    run.manifest_uri = prepare(run, "day-1", "1" * 16, documents=7)
    plan = make_plan(run)
    assert plan.trained == {"day-1": run.manifest_uri}
    assert plan.evaluated["day-1"] == run.manifest_uri


def test_what_only_a_model_out_of_use_has_seen_is_trained_on(versions: list[FinishedRun]) -> None:
    registry.rollback(versions[0].lineage, versions[0].version_id, reason="test")
    plan = make_plan(new_run(versions, "2"))
    assert plan.parent_version == versions[0].version_id
    assert list(plan.trained) == ["day-2"]


def test_every_unseen_partition_is_trained_on_once_for_all(versions: list[FinishedRun]) -> None:
    run = new_run(
        versions,
        "3",
        training__partitions="unseen",
        evaluation__general_partition="general",
    )
    five = prepare(run, "day-5")
    prepare(run, "day-6", packing="full_sentences")
    prepare(run, "general")
    plan = make_plan(run)
    # Not what the parent has seen, what does not fit, and what is never trained on.
    assert plan.trained == {"day-3": run.manifest_uri, "day-5": five}
    assert replayed(plan) == ["day-1", "day-2"]
    assert list(plan.evaluated) == ["day-1", "day-2", "day-3", "day-5", "general"]


def test_other_partitions_are_left_alone_unless_it_is_asked_for(
    versions: list[FinishedRun],
) -> None:
    run = new_run(versions, "3")
    prepare(run, "day-5")
    assert list(make_plan(run).trained) == ["day-3"]


def test_nothing_is_left_to_do_for_the_other_runs_of_a_backfill(
    versions: list[FinishedRun],
) -> None:
    run = new_run(versions, "3", training__partitions="unseen")
    prepare(run, "day-5")
    make_plan(run)
    registry.publish(run.store, _compared(run, versions[1].version_id).run)
    registry.promote(
        run.lineage, run.version_id, expected_baseline=versions[1].version_id, reason="better"
    )
    other = new_run(versions, "5", training__partitions="unseen")
    with pytest.raises(plans.SeenAlreadyError, match=run.version_id):
        make_plan(other)


def _compared(run: FinishedRun, baseline: str) -> FinishedRun:
    run.evaluate(baseline=baseline, gain=0.5)
    return run


def test_of_several_manifests_the_newest_of_this_configuration_is_taken(
    versions: list[FinishedRun],
) -> None:
    run = new_run(versions, "3", training__partitions="unseen")
    settings = CONFIG.data_sha256
    uri = {
        name: prepare(run, "day-5", name * 16, config_sha256=sha256)
        for name, sha256 in (("a", settings), ("b", settings), ("c", settings), ("d", "other"))
    }
    for age, name in enumerate("dbca"):
        os.utime(uri[name], (1_700_000_000 - age, 1_700_000_000 - age))
    assert make_plan(run).trained["day-5"] == uri["b"]


def test_general_text_is_scored_on_and_never_trained_on(versions: list[FinishedRun]) -> None:
    run = new_run(versions, "3", evaluation__general_partition="general")
    uri = prepare(run, "general", masked=False)
    plan = make_plan(run)
    assert plan.evaluated["general"] == uri
    assert "general" not in plan.trained | plan.replayed
    # Also if it was trained on before it was named.
    run = new_run(versions, "4", evaluation__general_partition="day-1")
    plan = make_plan(run)
    assert replayed(plan) == ["day-2"]
    assert "evaluation.general_partition" in plan.not_replayed["day-1"]


def test_checkpoints_are_scored_on_partitions_of_a_pattern(versions: list[FinishedRun]) -> None:
    rows = {"evaluation__rows_per_checkpoint": 100}
    run = new_run(versions, "3", evaluation__pattern="dev-?, general", **rows)
    with pytest.raises(registry.RegistryError, match=r"'dev-\?, general' matches none of the pre"):
        make_plan(run)
    uri = {name: prepare(run, name, masked=False) for name in ("dev-1", "dev-22", "general")}
    plan = make_plan(run)
    assert plan.scored == {"dev-1": uri["dev-1"], "general": uri["general"]}
    assert make_plan(new_run(versions, "4")).scored == {}
    prepare(run, "dev-2", max_seq_length=512)
    run = new_run(versions, "5", evaluation__pattern="dev-?", **rows)
    with pytest.raises(registry.RegistryError, match=r"matches dev-2, of .* max_seq_length=512"):
        make_plan(run)


def test_general_text_that_is_not_prepared_is_refused(versions: list[FinishedRun]) -> None:
    run = new_run(versions, "3", evaluation__general_partition="general")
    with pytest.raises(registry.RegistryError, match=r"'general' has no manifest.*prepare_corpus"):
        make_plan(run)
    prepare(run, "general", max_seq_length=512)
    with pytest.raises(registry.RegistryError, match=r"max_seq_length=512.*prepare_corpus"):
        make_plan(run)
    assert not uris.exists(run.run.plan)


def test_a_partition_that_does_not_fit_is_refused(versions: list[FinishedRun]) -> None:
    run = new_run(versions, "3")
    run.manifest_uri = prepare(run, "day-3", "1" * 16, packing="full_sentences")
    with pytest.raises(UserError, match="packed as 'full_sentences'"):
        make_plan(run)


def test_a_plan_is_made_once(versions: list[FinishedRun]) -> None:
    run = new_run(versions, "3", training__partitions="unseen")
    plan = make_plan(run)
    prepare(run, "day-5")
    configure(run)
    assert make_plan(run) == plan


def test_a_run_cannot_go_on_after_a_rollback(versions: list[FinishedRun]) -> None:
    run = new_run(versions, "3")
    make_plan(run)
    registry.rollback(run.lineage, versions[0].version_id, reason="test")
    wanted = f"planned from {versions[1].version_id}, but {versions[0].version_id} is in use now"
    with pytest.raises(registry.StalePlanError, match=f"{wanted}.*trigger a new run"):
        make_plan(run)


def test_a_run_whose_model_is_in_use_can_be_repeated(versions: list[FinishedRun]) -> None:
    run = new_run(versions, "3")
    plan = make_plan(run)
    registry.publish(run.store, _compared(run, versions[1].version_id).run)
    registry.promote(
        run.lineage, run.version_id, expected_baseline=versions[1].version_id, reason="better"
    )
    assert make_plan(run) == plan


AUTO: dict[str, Any] = {"training__train_steps": "auto", "training__max_passes": 40}


def test_steps_are_decided_with_the_rows_and_once(versions: list[FinishedRun]) -> None:
    run = new_run(versions, "3", **AUTO)
    plan = make_plan(run)
    assert plan.train_steps == 5000 + 1_000_000 * 10_000
    assert plans.row_counts(plan, run.lineage) == RowCounts(new=5000, replayed=10_000)

    def refuse(config: PipelineConfig, rows: RowCounts) -> int | None:
        raise UserError("asked again")

    again = plans.make_plan(run.store, run.run, held(run), run.manifest_uri, refuse)
    assert again == plan


def test_a_backfill_counts_the_rows_of_all_that_it_trains_on(versions: list[FinishedRun]) -> None:
    run = new_run(versions, "3", **AUTO, training__partitions="unseen")
    prepare(run, "day-4")
    prepare(run, "day-5", records={Split.TRAIN: 70, Split.VALIDATION: 5})
    assert plans.row_counts(make_plan(run), run.lineage) == RowCounts(new=10_070, replayed=10_000)
    alone = new_run(versions, "4", **AUTO, training__replay_fraction=0.0)
    assert plans.row_counts(make_plan(alone), alone.lineage).replayed == 0


def test_passes_of_earlier_runs_are_counted(versions: list[FinishedRun]) -> None:
    run = new_run(versions, "3")
    plan, store = make_plan(run), run.store
    # Of shards that are not there any more nobody knows how many rows they had.
    assert plans.row_counts(plan, run.lineage) == RowCounts(new=5000, replayed=10_000)
    shard(0).write(store.shard_manifest("a" * 32))
    once = passes(CONFIG, RowCounts(5000))
    counted = plans.row_counts(plan, run.lineage)
    # The partitions of these runs are of one shard.
    assert counted.new_before == counted.replayed_before == pytest.approx(2 * once)
    # Of a partition that was prepared anew what is the same is known.
    shard(1).write(store.shard_manifest("b" * 32))
    uri = prepare(run, "day-4", shards=[store.shard_manifest(key * 32) for key in "ab"])
    model = registry.production(run.lineage)
    assert EarlierPasses(run.lineage, model).over([uri]) == pytest.approx(once)
    assert EarlierPasses(run.lineage, None).over([uri]) == 0
    # What replays counts as well, by its share of the rows.
    versions[1].plan(replayed={"day-1": versions[0].manifest_uri})
    uris.write(
        f"{run.lineage.version(versions[1].version_id)}/plan.json", uris.read(versions[1].run.plan)
    )
    rows = RowCounts(5000, replayed=5000)
    assert replay_passes(CONFIG, rows) > 0
    again = once + passes(CONFIG, rows) + replay_passes(CONFIG, rows)
    assert EarlierPasses(run.lineage, model).over([versions[0].manifest_uri]) == pytest.approx(
        again
    )


def test_a_run_that_is_refused_has_no_plan(versions: list[FinishedRun]) -> None:
    run = new_run(versions, "3")

    def refuse(config: PipelineConfig, rows: RowCounts) -> int | None:
        raise UserError("too often")

    with pytest.raises(UserError, match="too often"):
        plans.make_plan(run.store, run.run, held(run), run.manifest_uri, refuse)
    assert not uris.exists(run.run.plan)


def test_a_plan_of_an_earlier_commit_has_no_steps(versions: list[FinishedRun]) -> None:
    run = new_run(versions, "3")
    assert make_plan(run).train_steps is None
    stored = json.loads(uris.read(run.run.plan))
    del stored["train_steps"], stored["record_sha256"]
    uris.write(run.run.plan, json.dumps(stored).encode())
    assert make_plan(run).train_steps is None


def test_the_sets_that_are_scored_are_bounded(versions: list[FinishedRun]) -> None:
    run = new_run(versions, "3", evaluation__max_sets=3)
    assert list(make_plan(run).evaluated) == ["day-1", "day-2", "day-3"]
    run = new_run(versions, "4", evaluation__max_sets=2, evaluation__general_partition="general")
    prepare(run, "general")
    assert list(make_plan(run).evaluated) == ["day-4", "general"]


def test_the_same_sets_are_scored_from_update_to_update() -> None:
    most, seen = 6, ["general"]
    panels: list[set[str]] = []
    for number in range(1, 101):
        own = f"day-{number:03d}"
        seen.append(own)
        scored = panel.scored_sets(dict.fromkeys(seen), {own, "general"}, most)
        assert {own, "general"} <= {*scored}
        assert len(scored) <= most
        # What left is not scored again: the best scores of the others are all that is needed.
        assert not panels or {*scored} - panels[-1] <= {own}
        panels.append({*scored})
    assert (
        len({frozenset(name for name in panel if name < "day-090") for panel in panels[90:]}) == 1
    )
    assert {*panels[-1]} == {"day-040", "day-048", "day-073", "day-087", "day-100", "general"}


def test_a_set_that_has_left_comes_back_only_as_one_that_is_always_scored() -> None:
    most, best = 6, BestScores(sets={})
    seen: list[str] = []
    for number in range(1, 101):
        seen.append(own := f"day-{number:03d}")
        always = {own, "general"} if 40 <= number < 60 else {own}
        found = dict.fromkeys([*seen, *always])
        scored = panel.scored_sets(found, always, most, best.left)
        assert not {*scored} & {*best.left} - always
        assert len(scored) == min(most, len(found))
        best = best.model_copy(update={"sets": best.sets | scored})
        best = panel.bounded(best, scored, most)
        assert len(best.sets) <= most
    again = panel.scored_sets(dict.fromkeys(seen), {"day-001"}, most, best.left)
    assert "day-001" in best.left
    assert "day-001" in again
    assert {*again} - {"day-001"} <= {*best.sets}
