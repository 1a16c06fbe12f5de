"""A store of an earlier version is read by this one, file by file and as a whole."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from model_registry import consistency, lease, registry
from model_registry.retention import pruning
from pipeline_alerts.delivery import list_alerts
from pipeline_alerts.facts import read_facts
from pipeline_config import FinetuningConfig, PipelineConfig, TaskConfig, parse_rental_config
from pipeline_config.compression import CompressionConfig
from pipeline_config.finetuning import TextToTextSettings
from pipeline_config.loading import parse_config, parse_finetuning_config
from pipeline_config.rental_schema import HangConfig
from pipeline_store.formats import AttemptEvent, Holder, StoredFile
from pipeline_store.layout import StoreLayout
from tests.golden.build_store import ROOT, STORE
from tests.golden.discovery import subclasses
from tests.golden.stored_names import lines
from tests.pipeline_store.gcs_server import GcsState
from tests.pipeline_store.stores import cloud_storage
from tpu_lifecycle.control.reaper_status import newest_pass
from tpu_lifecycle.records.reservation import open_reservation
from trained_models import metric_files

__all__ = ["cloud_storage"]

KINDS: dict[str, Any] = {kind.kind: kind for kind in subclasses(StoredFile, rigs=True)}
FILES = sorted(path for path in STORE.rglob("*") if path.is_file())
JSON = [path for path in FILES if path.suffix == ".json" and path.read_bytes().startswith(b"{")]
SECTIONS = {"pipeline-config": parse_config, "finetuning-config": parse_finetuning_config}
CONFIGS = {"pipeline-config": PipelineConfig, "finetuning-config": FinetuningConfig}

ELSEWHERE = {
    "agent-record": "on the disk of a TPU VM, read by the same code bundle that wrote it",
    "agent-job-record": "as above",
    "agent-log-record": "as above",
    "local-stack": "in the state folder of a stack on a laptop, deleted when that goes down",
    "rollback-mark": "while a person's rollback is under way, deleted at its end",
    "task-outcome": "between the processes of one data job, deleted at its end",
}
"""Kinds that are in no store, or in none for longer than a task, with the reason."""
_HANG = HangConfig().model_dump(mode="json")
_PRICE = ("budget", "on_demand_price_per_chip_hour", None)
LATER: dict[str, list[tuple[str, str, Any]]] = {
    "alert": [("", "remedy", "")],
    "agent-hello": [("", name, None) for name in ("first_started", "boot_began", "image_pulled")],
    "best-scores": [
        ("sets.{}.scores", "retrieval", None),
        ("", "retrieval", {}),
        ("", "probes", {}),
        ("", "left", []),
    ],
    "evaluation": [
        ("models.[].sets.[]", "retrieval", None),
        ("", "samples", {}),
        ("", "scored_by", ""),
    ],
    "finetuning-config": [
        _PRICE,
        ("budget", "max_hangs", 3),
        ("", "hang", _HANG),
        ("budget", "price_per_egress_gb", 0.02),
        ("tpu", "allow_other_regions", False),
        ("tpu", "disk_gigabytes", 100),
        ("", "text_to_text", TextToTextSettings().model_dump(mode="json")),
        ("", "compression", CompressionConfig().model_dump(mode="json")),
    ],
    "heartbeat": [
        ("", "phase", None),
        ("", "phase_limit_seconds", None),
        ("usage.[]", "ended", None),
        ("usage.[]", "seconds", {}),
        ("usage.[]", "unsaved_seconds", 0.0),
        ("usage.[]", "unsaved_after", {}),
        ("usage.[]", "begun_at", None),
        ("usage.[]", "last_step", None),
    ],
    "job-status": [
        ("", "usage", None),
        ("usage", "unsaved_after", {}),
        ("usage", "begun_at", None),
        ("usage", "last_step", None),
    ],
    "ledger": [
        ("", "provisioning_model", ""),
        ("", "on_demand_price_per_chip_hour", None),
        ("entries.[]", "seconds", {}),
        ("entries.[]", "unbilled_seconds", {}),
        ("entries.[]", "loss", ""),
    ],
    "model-version": [("", "manifests", {})],
    "pipeline-config": [
        ("masking", "mean_span_tokens", 3.0),
        ("model", "attention_head_size", None),
        _PRICE,
        ("budget", "max_hangs", 3),
        ("", "hang", _HANG),
        ("evaluation", "pattern", None),
        ("model", "architecture", "bert"),
        ("model", "from_scratch", False),
        ("corpus", "document", "auto"),
        ("corpus", "group_field", None),
        ("corpus", "split_by", "auto"),
        ("evaluation", "max_sets", 10),
        ("promotion", "approvers", []),
        ("promotion", "judge_retrieval", "sentence_encoders"),
        ("promotion", "max_retrieval_loss", 0.02),
        ("promotion", "max_total_forgetting", 0.2),
        ("promotion", "max_total_probe_loss", 0.02),
        ("promotion", "max_total_retrieval_loss", 0.04),
        ("budget", "price_per_egress_gb", 0.02),
        ("tpu", "allow_other_regions", False),
        ("training", "head_steps", None),
        ("training", "max_passes", None),
        ("training", "max_train_steps", 1_000_000),
        ("tpu", "disk_gigabytes", 100),
    ],
    "pruned-version": [("model", "manifests", {})],
    "production-pointer": [
        ("", "earlier", []),
        ("", "changed_by", None),
        ("", "run_id", None),
        ("earlier.[]", "run_id", None),
    ],
    "reaper-pass": [
        ("", "standing", []),
        ("standing.[]", "looks", 1),
        ("standing.[]", "phase", None),
    ],
    "reservation": [
        ("", "installation", None),
        ("", "provisioning_model", ""),
        ("", "on_demand_price_per_chip_hour", None),
    ],
    "run-approval": [("", "answered_by_id", None)],
    "run-plan": [("", "train_steps", None)],
    "run-record": [("", "backfill", None)],
    "training-inputs": [("heritage", "new_head", None), ("", "heritage", None)],
    "verdict": [
        ("", "forgetting", []),
        ("", "retrieval", None),
        ("", "retrieval_totals", []),
        ("", "probe_totals", []),
    ],
}
"""Keys, by kind, that were added after a kind's first file was kept: section, if any, name, and the
default that they have where they are missing. Of what is in a list, or by name, each has the key:
``models.[].sets.[]``, ``sets.{}.scores``."""


@pytest.mark.parametrize("path", JSON, ids=lambda path: str(path.relative_to(STORE)))
def test_a_kept_file_is_read_and_written_as_it_was(path: Path) -> None:
    data = path.read_bytes()
    kind = json.loads(data)["format"]
    if kind in SECTIONS:
        config = SECTIONS[kind](data, str(path))
        written = config.to_bytes()
        assert parse_rental_config(data, str(path)) == config
    else:
        written = KINDS[kind].parse(data, str(path)).to_bytes()
    kept, content = json.loads(data), json.loads(written)
    if content.keys() != kept.keys():
        # That of the file was compared when it was read; with further keys there is another.
        for record in (content, kept):
            record.pop("record_sha256", None)
    for section, name, default in LATER.get(kind, ()):
        words = section.split(".") if section else []
        for before, now in zip(_sections(kept, words), _sections(content, words), strict=True):
            if name not in before:
                assert now.pop(name) == default
    assert content == kept
    if kind not in LATER and len(content) == len(json.loads(written)):
        assert written == data


def _sections(content: Any, path: list[str]) -> Iterator[dict[str, Any]]:
    """Yield every part of a file that a path of :data:`LATER` leads to."""
    if not path:
        yield content
        return
    name, *rest = path
    if name in ("[]", "{}"):
        parts = content if name == "[]" else content.values()
    else:
        # A section that was added itself is in no file that is older.
        parts = [content[name]] if content.get(name) is not None else []
    for part in parts:
        yield from _sections(part, rest)


def test_only_bytes_of_models_are_no_records() -> None:
    others = {path.name for path in FILES if path.suffix == ".json"} - {path.name for path in JSON}
    assert others <= {"inputs.json"}


def test_every_kind_is_kept_or_has_a_reason_not_to_be() -> None:
    found = {json.loads(path.read_bytes())["format"] for path in JSON} - set(SECTIONS)
    assert found <= set(KINDS)
    assert set(KINDS) - found == set(ELSEWHERE), "run: python -m tests.golden.build_store"


@pytest.mark.parametrize("kind", sorted(set(KINDS) - set(ELSEWHERE)))
def test_every_key_of_a_kind_is_kept_with_a_value(kind: str) -> None:
    stored = [json.loads(path.read_bytes()) for path in JSON]
    stored = [content for content in stored if content["format"] == kind]
    keys = (line for line in lines(KINDS[kind].model_json_schema()) if not line.endswith(": null"))
    missing = []
    for line in keys:
        words = re.findall(r"\w+|\[\w*\]|\{[^}]*\}", line.partition(":")[0])
        if not any(_values(stored, ["[]", *words])):
            missing.append(line)
    assert missing == []


def _values(content: Any, path: list[str]) -> Iterator[bool]:
    """Yield whether there is something at each place that a path of a schema leads to."""
    if not path:
        yield content is not None
    elif path[0] == "[]":
        for item in content if isinstance(content, list) else ():
            yield from _values(item, path[1:])
    elif path[0].startswith("{"):
        for item in content.values() if isinstance(content, dict) else ():
            yield from _values(item, path[1:])
    elif isinstance(content, dict) and path[0] in content:
        yield from _values(content[path[0]], path[1:])


def test_a_task_that_a_person_has_described_is_read() -> None:
    [path] = STORE.glob("tasks/*/task.toml")
    assert TaskConfig.model_validate(tomllib.loads(path.read_text())).text_column == "sentence"


@pytest.fixture
def store(cloud_storage: GcsState) -> StoreLayout:
    bucket, _, folder = ROOT.removeprefix("gs://").partition("/")
    for path in FILES:
        name = f"{folder}/{path.relative_to(STORE).as_posix()}"
        cloud_storage.put(bucket, name, path.read_bytes(), None, {})
    return StoreLayout(ROOT)


def test_a_kept_store_is_read_as_a_whole(store: StoreLayout) -> None:
    """Each part finds by today's layout what was written by that of then."""
    lineage = store.lineage("default")
    report = consistency.check(lineage)
    assert (report.versions, report.problems) == (2, [])
    model = registry.load_version(lineage, report.in_use or "")
    assert registry.manifests(lineage, model).keys() == {"day-1", "day-2"}
    assert lease.read(lineage) is not None
    run = store.run(model.run_key)
    reservation = open_reservation(run.root)
    [attempt] = reservation.attempts()
    assert set(attempt.marks) == set(AttemptEvent)
    assert Holder.load(run.holder).token == attempt.attempt.token
    assert read_facts(run, with_text=True).unreadable == ""
    assert newest_pass(store, "owner") is not None
    assert len(list_alerts(store)) == 2
    assert [record["kind"] for record in metric_files.read(run.training.metrics)] == ["loop"]


def test_retention_knows_every_kept_file(store: StoreLayout) -> None:
    found = pruning.plan(store, pruning.RetentionPolicy(keep_versions=1))
    # The watch's own two files are left alone for being unknown, as they were then.
    assert found.unknown == ["alerts/corpus.json", "alerts/watch.json"]
