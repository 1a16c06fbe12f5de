"""What the exporter says of a store: right, cheap, few series, and whatever is damaged."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from corpus.text.drops import DropReason
from pipeline_config.settings import load_settings
from pipeline_metrics import files
from pipeline_metrics.__main__ import main
from pipeline_metrics.catalogue import METRICS, PREFIX, Kind
from pipeline_metrics.dashboards import DASHBOARDS
from pipeline_metrics.exporter import StoreCollector, text
from pipeline_metrics.rules import rule_file, rules
from pipeline_metrics.snapshot import SnapshotSource
from pipeline_store import local, uris
from pipeline_store.formats import (
    Alert,
    OutcomeKind,
    PartitionManifest,
    PreparedInput,
    SpentOn,
    arrival_run_id,
)
from pipeline_store.layout import StoreLayout
from tests.pipeline_metrics.faults import FAULTS, wrong
from tests.pipeline_metrics.stores import NO_FILES, TRAINED, World, ago, entry, now
from tests.pipeline_store.gcs_server import GcsState
from tests.pipeline_store.stores import cloud_storage

__all__ = ["cloud_storage"]

ROOT = Path(__file__).parents[2]
WEEKS = timedelta(weeks=12)

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World.healthy(str(tmp_path / "store"))


def scrape(source: SnapshotSource) -> Series:
    found: Series = {}
    for family in text_string_to_metric_families(text(StoreCollector(source.take, 0.0))):
        for sample in family.samples:
            key = (sample.name.removeprefix(PREFIX), frozenset(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def scraped(world: World, window: timedelta = WEEKS) -> Series:
    return scrape(SnapshotSource(world.store, window))


def value(series: Series, name: str, **labels: str) -> float:
    found = [
        v for (n, own), v in series.items() if n == name and labels.items() <= dict(own).items()
    ]
    assert len(found) == 1, (name, labels, found)
    return found[0]


def names(series: Series) -> set[str]:
    return {name for name, _ in series}


def test_a_healthy_store_in_numbers(world: World) -> None:
    found = scraped(world)
    run = {"lineage": "default", "dag": "Test.DAG"}
    assert value(found, "runs", dag="dag", outcome="promoted") == 2
    assert value(found, "runs", dag="Test.DAG", outcome="going_on") == 1
    assert value(found, "job_progress_ratio", **run) == 0.75
    assert value(found, "job_step_duration_seconds", **run) == 0.5
    assert value(found, "job_tokens_per_second", **run) == 1000
    assert value(found, "job_loss_nats", rows="training") == 5.5
    assert value(found, "job_loss_nats", rows="held_out") == 5.25
    assert value(found, "tpu_chips", state="working") == 1
    assert value(found, "tpu_chips", state="left_over") == 0
    # Two runs of 8 chips; the one at work has cost next to nothing yet.
    assert value(found, "tpu_chip_seconds", spent_on="step") == pytest.approx(2 * 8 * 850)
    assert value(found, "tpu_goodput_ratio") == pytest.approx(0.85, abs=0.02)
    assert value(found, "tpu_cost", currency="USD") == pytest.approx(16_000 / 3600 * 0.5, abs=0.1)
    saved = value(found, "tpu_saved_cost", currency="USD")
    assert saved == pytest.approx(16_000 / 3600 * 0.75, abs=0.1)
    assert value(found, "data_documents", fate="used") == 2 * 1231
    assert value(found, "data_documents", fate="empty") == 2 * 3
    assert value(found, "data_newest_unknown_ratio") == 0.01
    assert value(found, "lineage_lease_held") == 1
    assert value(found, "lineage_waiting_runs") == 1
    assert value(found, "model_partitions") == 2
    losses = {of: value(found, "model_loss_nats", of=of) for of in ("in_use", "baseline")}
    assert losses["baseline"] - losses["in_use"] == pytest.approx(0.5)
    assert value(found, "model_loss_nats", of="training") == 5.25
    assert value(found, "corpus_waiting_partitions") == 1
    assert all(v == 0 for (name, _), v in found.items() if name == "store_unreadable")


def test_a_bucket_is_read_as_a_folder_is(world: World, cloud_storage: GcsState) -> None:
    in_bucket = World.healthy("gs://bucket/store")
    found = scraped(in_bucket)
    assert cloud_storage.objects
    assert found.keys() == scraped(world).keys()
    assert all(v == 0 for (name, _), v in found.items() if name == "store_unreadable")


def test_every_metric_has_values_once_all_faults_are_there(world: World) -> None:
    for rule in FAULTS:
        next(FAULTS[rule](world))
    assert names(scraped(world)) == {metric.name for metric in METRICS}


def test_a_lineage_has_at_most_300_series(world: World) -> None:
    """Everything at once: both DAGs' worth of runs, each reason, each way to spend time."""
    for rule in FAULTS:
        next(FAULTS[rule](world))
    for kind in OutcomeKind:
        world.run(kind)
    run = world.run(OutcomeKind.REJECTED)
    world.reserved(run)
    world.bill(run, entry(1, dict.fromkeys(SpentOn, 10.0)))
    manifest = PartitionManifest.load(world.manifest_uri)
    every = manifest.model_copy(update={"dropped": dict.fromkeys(DropReason, 1)})
    every.write(world.manifest_uri)
    per_lineage = Counter(
        dict(labels).get("lineage", "") for _, labels in scraped(world) if "lineage" in dict(labels)
    )
    assert 100 < per_lineage["default"] <= 300


def test_runs_that_began_before_the_window_are_left_out(world: World) -> None:
    old = world.run(OutcomeKind.PROMOTED)
    still_open = world.run()
    for place in (old.record, old.outcome, still_open.record):
        os.utime(place, (ago(days=90).timestamp(),) * 2)
    found = scraped(world)
    assert value(found, "runs", dag="Test.DAG", outcome="promoted") == 0
    assert value(found, "runs", dag="Test.DAG", outcome="going_on") == 2


def damaged(world: World, what: str) -> str:
    """Return the place of a file, by what it is."""
    lineage, store = world.lineage, world.store
    run = world.at_work.layout.root.split("/reservations/")[0]
    [index, *_] = [uri for uri in uris.list_files(store.runs) if uri.endswith("/ledger.json")]
    [prepared, *_] = [uri for uri in uris.list_files(store.runs) if "/prepared/" in uri]
    version = max(uris.list_files(lineage.versions), key=lambda uri: uri.endswith("/verdict.json"))
    return {
        "lease": lineage.lease,
        "ticket": uris.list_files(lineage.waiting)[0],
        "pointer": lineage.production,
        "verdict": version,
        "ledger": index,
        "prepared": prepared,
        "run": f"{run}/run.json",
        "attempt": world.at_work.layout.record,
        "watch": store.watch_pass,
        "corpus": store.corpus_seen,
        "reaper": uris.list_files(store.reapers)[0],
        "arrival": next(uri for uri in uris.list_files(store.arrivals) if "partitions" in uri),
    }[what]


@pytest.mark.parametrize(
    ("what", "source", "lost"),
    [
        (
            "lease",
            "lineages",
            {"lineage_lease_held", "lineage_lease_acquired_timestamp_seconds"},
        ),
        (
            "ticket",
            "lineages",
            {"lineage_waiting_runs", "lineage_waiting_oldest_timestamp_seconds"},
        ),
        ("pointer", "models", {"model_info", "model_loss_nats", "model_partitions"}),
        ("ledger", "spending", set()),
        ("prepared", "data", set()),
        ("run", "runs", {"job_progress_ratio", "tpu_chips"}),
        ("run", "tpus", {"tpu_chips"}),
        ("attempt", "tpus", {"job_progress_ratio", "tpu_chips"}),
        ("watch", "watch", {"watch_pass_timestamp_seconds", "watch_problems"}),
        ("corpus", "arrivals", {"corpus_grown_timestamp_seconds"}),
        ("reaper", "reaper", {"reaper_pass_timestamp_seconds", "reaper_problems"}),
        (
            "arrival",
            "arrivals",
            {"corpus_waiting_partitions", "corpus_waiting_oldest_timestamp_seconds"},
        ),
    ],
)
def test_a_damaged_file_costs_its_metrics_and_no_scrape(
    world: World, what: str, source: str, lost: set[str]
) -> None:
    before = names(scraped(world))
    reader = SnapshotSource(world.store, WEEKS)
    place = damaged(world, what)
    kept = world.damage(place)
    once, twice = scrape(reader), scrape(reader)
    assert lost <= before
    assert not lost & names(once)
    others = {"runs", "tpu_chips", "lineage_lease_held", "corpus_waiting_partitions"} - lost
    assert others <= names(once)
    assert value(once, "store_unreadable", source=source) >= 1
    errors = value(once, "store_read_errors_total", source=source)
    assert value(twice, "store_read_errors_total", source=source) == 2 * errors
    uris.write(place, kept)
    mended = scrape(reader)
    assert names(mended) == before
    assert value(mended, "store_unreadable", source=source) == 0
    assert value(mended, "store_read_errors_total", source=source) == 2 * errors


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count calls of the store that read or list."""
    calls: Counter[str] = Counter()

    def counting(name: str) -> Callable[..., Any]:
        real = getattr(local.LocalBackend, name)

        def call(self: Any, *arguments: Any) -> Any:
            calls[name] += 1
            return real(self, *arguments)

        return call

    with monkeypatch.context() as patch:
        for name in ("read", "read_versioned", "size", "list", "list_details", "list_named"):
            patch.setattr(local.LocalBackend, name, counting(name))
        yield calls


def test_a_scrape_reads_no_run_again_that_has_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended() -> None:
        run = world.run(OutcomeKind.REJECTED)
        world.reserved(run)
        world.bill(run, entry(1, TRAINED))

    source = SnapshotSource(world.store, WEEKS)
    scrape(source)
    with counted(monkeypatch) as few:
        scrape(source)
    for _ in range(200):
        ended()
    with counted(monkeypatch) as first:
        scrape(source)
    with counted(monkeypatch) as many:
        found = scrape(source)
    assert value(found, "runs", dag="Test.DAG", outcome="rejected") == 200
    assert first["read_versioned"] > 200
    assert many == few
    # The one that is at work, the lineage, and everybody who watches.
    assert sum(many.values()) <= 60


def test_a_run_that_goes_on_after_its_end_is_seen(world: World) -> None:
    source = SnapshotSource(world.store, WEEKS)
    run = world.run(OutcomeKind.FAILED)
    assert value(scrape(source), "runs_failed_in_a_row", dag="Test.DAG") == 1
    uris.delete(run.outcome)
    found = scrape(source)
    assert value(found, "runs_failed_in_a_row", dag="Test.DAG") == 0
    assert value(found, "runs", dag="Test.DAG", outcome="going_on") == 2


def test_a_tpu_that_cannot_be_read_any_more_is_as_it_was(world: World) -> None:
    """Else its critical alert would end while it is billed."""
    source = SnapshotSource(world.store, WEEKS)
    run = world.run(OutcomeKind.SKIPPED)
    record = world.rent(run, since=ago(hours=2))
    oldest = value(scrape(source), "tpu_state_oldest_timestamp_seconds", state="left_over")
    kept = world.damage(record.layout.record)
    for _ in range(3):
        found = scrape(source)
        assert value(found, "tpu_chips", state="left_over") == 1
        assert value(found, "tpu_state_oldest_timestamp_seconds", state="left_over") == oldest
        assert value(found, "store_unreadable", source="tpus") == 1
    uris.write(record.layout.record, kept)
    world.give_back(record)
    found = scrape(source)
    assert value(found, "tpu_chips", state="left_over") == 0
    assert value(found, "store_unreadable", source="tpus") == 0


def test_an_outcome_that_cannot_be_read_is_no_run_that_goes_on(world: World) -> None:
    run = world.run(OutcomeKind.PROMOTED)
    world.damage(run.outcome)
    found = scraped(world)
    assert value(found, "runs", dag="Test.DAG", outcome="going_on") == 1
    assert value(found, "runs", dag="Test.DAG", outcome="promoted") == 0


def test_an_outage_is_not_the_end_of_what_is_known(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(20):
        world.run(OutcomeKind.REJECTED)
    source = SnapshotSource(world.store, WEEKS)
    scrape(source)
    with counted(monkeypatch) as before:
        scrape(source)
    with monkeypatch.context() as patch:
        for name in ("read", "read_versioned", "list", "list_details", "list_named"):
            patch.setattr(local.LocalBackend, name, _away)
        scrape(source)
    with counted(monkeypatch) as after:
        scrape(source)
    assert after == before


def _away(*_: Any) -> Any:
    raise OSError("no route to the store")


def test_who_waits_for_a_tpu_waits_over_all_attempts(world: World) -> None:
    """Each ends after an hour; the time counts from the first since the last that came."""
    queued = FAULTS["RepretrainTpuQueueLong"](world)
    next(queued)
    found = scraped(world)
    since = value(found, "tpu_state_oldest_timestamp_seconds", state="queued")
    assert since == pytest.approx(ago(hours=8).timestamp(), abs=60)
    assert value(found, "tpu_chips", state="queued") == 0
    next(queued, None)
    states = {dict(labels).get("state") for name, labels in scraped(world) if "oldest" in name}
    assert "queued" not in states


def test_partitions_that_wait_are_those_of_the_corpus_as_it_is(world: World) -> None:
    def waiting() -> float:
        return value(scraped(world), "corpus_waiting_partitions")

    assert waiting() == 1
    # Withdrawn, and one of a corpus that is not watched any more.
    world.arrive(ago(hours=9), run_id=None, partition="day-2")
    world.arrive(ago(hours=9), run_id=None, pattern="old/{partition}/*")
    assert waiting() == 1
    world.arrive(ago(hours=9), run_id=arrival_run_id("day-3", NO_FILES))
    assert waiting() == 0
    # Delivered again, with other files: its run is still to come.
    world.arrive(ago(hours=9), run_id=arrival_run_id("day-3", "1" * 64))
    assert waiting() == 1
    uris.delete(world.store.corpus_seen)
    assert waiting() == 3


def test_what_retention_has_removed_is_not_looked_for_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(20):
        run = world.run(OutcomeKind.REJECTED)
        PreparedInput(manifest=world.lineage.manifest("day-1", "9" * 16)).write(
            run.prepared_partition
        )
    source = SnapshotSource(world.store, WEEKS)
    scrape(source)
    with counted(monkeypatch) as calls:
        scrape(source)
    assert sum(calls.values()) <= 60


def test_an_alert_of_a_later_program_is_counted(world: World) -> None:
    uris.write(world.store.alert("run-1", "new-cause.detail"), b"{}")
    found = scraped(world)
    assert value(found, "alerts_open", cause="other", severity="warning") == 1
    assert value(found, "alerts_open", cause="watch-silent", severity="critical") == 0


def test_alerts_say_of_which_lineage_they_are(world: World) -> None:
    """Else Alertmanager took the second for the first, and told nobody."""
    for number, lineage in enumerate(("default", "other", "other")):
        Alert(
            scope=f"run-{number}",
            cause="task-failed.tpu.train",
            title="failed",
            reason="no chips",
            time=now(),
            lineage_id=lineage,
            dag_id="dag",
        ).create(world.store.alert(f"run-{number}", "task-failed.tpu.train"))
    source = SnapshotSource(world.store, WEEKS)
    for _ in range(2):
        found = scrape(source)
        assert value(found, "alerts_open", cause="task-failed", lineage="default", dag="dag") == 1
        assert value(found, "alerts_open", cause="task-failed", lineage="other") == 2


def test_a_time_without_a_zone_costs_no_scrape(world: World) -> None:
    run = world.run(OutcomeKind.FAILED)
    text = uris.read(run.record).decode()
    uris.write(run.record, re.sub(r'("created": "[^"]*?)(Z|\+00:00)"', r'\1"', text).encode())
    assert uris.read(run.record) != text.encode()
    assert value(scraped(world), "runs_failed_in_a_row", dag="Test.DAG") == 1


def test_an_outage_of_the_store_is_no_zero(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("read", "read_versioned", "list", "list_details", "list_named"):
        monkeypatch.setattr(local.LocalBackend, name, _away)
    found = scraped(world)
    assert names(found) == {
        "store_read_errors_total",
        "store_unreadable",
        "store_read_duration_seconds",
        "store_read_timestamp_seconds",
    }


def test_servers_that_ask_at_once_share_a_reading(world: World) -> None:
    source, taken = SnapshotSource(world.store, WEEKS), []

    def take() -> Any:
        taken.append(1)
        return source.take()

    collector = StoreCollector(take, 60.0)
    assert text(collector) == text(collector)
    assert len(taken) == 1


def test_names_keep_to_prometheus_conventions() -> None:
    for metric in METRICS:
        assert re.fullmatch("[a-z]+(_[a-z]+)*", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
        assert metric.help.endswith(".")
        if metric.unit.startswith("seconds"):
            assert "_seconds" in metric.name
        if metric.unit == "share":
            assert metric.name.endswith("_ratio")
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_rules_and_dashboards_use_metrics_that_there_are_and_all_of_them() -> None:
    settings = load_settings({})
    queries = [rule.query for rule in rules(settings)]
    shown = [e for board in DASHBOARDS for panel in board.panels for e in panel.expressions]
    known = {metric.full_name for metric in METRICS}
    named = {name for query in queries + shown for name in re.findall(rf"{PREFIX}\w+", query)}
    assert named == known
    assert not any("~" in query.replace("=~", "") for query in queries + shown)


def test_each_rule_but_that_of_a_dead_exporter_has_a_fault() -> None:
    assert {"RepretrainExporterDown", *FAULTS} == {one.name for one in rules(load_settings({}))}


def test_the_kept_files_are_as_written() -> None:
    for name, content in files.contents(load_settings({})).items():
        assert (files.FOLDER / name).read_text() == content, "run make docs"
    page = (ROOT / files.DOCUMENT).read_text()
    assert files.with_tables(page, load_settings({})) == page, "run make docs"


def test_files_follow_the_installations_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRETRAIN_OVERDUE_HOURS", "50")
    monkeypatch.setenv("REPRETRAIN_DOCS_URL", "https://docs.example.com/")
    assert main(["files", "--output", str(tmp_path)]) == 0
    written = (tmp_path / files.RULES).read_text()
    assert "> 180000" in written
    assert "RepretrainTpuIdle" in written
    assert "https://docs.example.com/operate/metrics.html#repretrainrunoverdue" in written
    assert "https://docs.example.com/operate/alerts.html#{{ $labels.cause }}" in written


def test_what_is_never_reported_has_no_rule_and_no_address_no_link() -> None:
    never = rule_file(load_settings({"REPRETRAIN_IDLE_TPU_MINUTES": "0"}))["groups"][0]["rules"]
    assert {one["alert"] for one in never} == {*FAULTS, "RepretrainExporterDown"} - {
        "RepretrainTpuIdle"
    }
    for one in never:
        assert one["annotations"].keys() == {"summary", "description"}
        assert "](" not in one["annotations"]["description"]


def test_the_exporter_answers_on_this_machine_alone(world: World) -> None:
    with served(world) as url:
        assert url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - our own
            assert answer.headers["Content-Type"].startswith("text/plain")
            assert f"{PREFIX}runs{{" in answer.read().decode()


@contextmanager
def served(world: World, *words: str) -> Iterator[str]:
    """Run the command, and give the address that it prints."""
    command = [sys.executable, "-m", "pipeline_metrics", "serve", "--port", "0"]
    with subprocess.Popen(
        [*command, "--store", world.store.root, *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def test_without_its_library_the_command_says_what_to_install(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "pipeline_metrics.exporter")
    monkeypatch.delattr("pipeline_metrics.exporter", raising=False)
    assert main(["print", "--store", world.store.root]) == 1
    assert "requirements-observe.txt" in capsys.readouterr().err


def test_no_address_of_a_store_is_no_start(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["print", "--store", "relative/store"])
    assert "relative/store: it is relative" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["print", "--store", __file__])
    assert "there is no such folder" in capsys.readouterr().err


def test_a_store_without_anything_is_scraped(tmp_path: Path) -> None:
    found = scrape(SnapshotSource(StoreLayout(str(tmp_path / "none")), WEEKS))
    assert value(found, "corpus_waiting_partitions") == 0
    assert "runs" not in names(found)


@pytest.mark.parametrize("rule", FAULTS)
def test_a_fault_shows_in_the_metrics_of_its_rule(world: World, rule: str) -> None:
    """Without Prometheus, which `make observe-check` has: what the rule looks at changes."""
    [one] = [known for known in rules(load_settings({})) if known.name == rule]
    looked_at = {name.removeprefix(PREFIX) for name in re.findall(rf"{PREFIX}\w+", one.query)}
    source = SnapshotSource(world.store, WEEKS)

    def of_interest() -> Series:
        return {key: v for key, v in scrape(source).items() if key[0] in looked_at}

    before = of_interest()
    with wrong(world, rule):
        assert of_interest() != before


def test_a_port_that_is_taken_is_named(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["serve", "--store", world.store.root, "--port", str(port)]) == 1
    said = capsys.readouterr().err
    assert f"127.0.0.1:{port}: Address already in use" in said
    assert "--port" in said
