"""The page that shows runs side by side, and the settings of a run beside its preset's."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from model_registry import outcomes
from pages import compare_view
from pipeline_config import load_preset, with_overrides
from pipeline_store import local, uris
from pipeline_store.formats import OutcomeKind, RunRecord
from tests.model_registry.runs import FinishedRun
from tests.plugins.page_site import Site, finished, publish, run_page
from trained_models import metric_files
from trained_models.metric_files import MetricFiles


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site.over(tmp_path, monkeypatch)


def change(made: FinishedRun, **settings: object) -> None:
    """Let a run have other settings than the preset."""
    named = {name.replace("__", "."): value for name, value in settings.items()}
    config = with_overrides(load_preset("smoke"), {"corpus.partition": made.partition} | named)
    uris.write(made.run.config, config.to_bytes())


def draw(made: FinishedRun, loss: float) -> None:
    metrics = MetricFiles(made.run.training.metrics)
    for step in (10, 20, 30):
        metrics.add(metric_files.LOOP, step, loss=loss - step / 20)
    metrics.add(metric_files.HELD_OUT, 30, loss=loss)
    metrics.publish()


def compare(site: Site, *runs: str) -> str:
    answer = site.client.get("/compare", params={"lineage": "default", "run": list(runs)})
    assert answer.status_code == 200, answer.text
    return answer.text


def test_three_runs_are_side_by_side(site: Site) -> None:
    made = [finished(site, name) for name in "123"]
    for number, one in enumerate(made):
        change(one, training__train_steps=100 + number)
        draw(one, 8.0 + number)
    publish(made[0])
    outcomes.record(made[2].run, OutcomeKind.REJECTED, "worse", written_by="judge")
    page = compare(site, *(one.key for one in made))
    for chart in ("Masked-LM loss while training", "Masked-LM loss on held-out rows"):
        drawn = page[page.index(f'aria-label="{chart}"') :].split("</figure>")[0]
        assert [f'<path class="{style}"' in drawn for style in "abcd"] == [True] * 3 + [False]
    settings = page[page.index("Settings that differ") :].split("</section>")[0]
    assert "training.train_steps" in settings
    assert "<td>100</td><td>101</td><td>102</td>" in settings
    assert "training.random_seed" not in settings
    assert "<td>under way</td><td>under way</td><td>rejected</td>" in page
    assert f"{made[1].partition} {made[1].key[:6]}" in page


def test_runs_that_differ_in_nothing_say_so_and_without_steps_there_is_no_curve(
    site: Site,
) -> None:
    made = [finished(site, name) for name in "12"]
    for one in made:
        uris.write(one.run.config, load_preset("smoke").to_bytes())
    page = compare(site, *(one.key for one in made))
    assert "all that is kept of their settings is the same" in page
    assert "None of them has reported a step" in page


def test_a_version_is_compared_after_its_run_is_gone(site: Site) -> None:
    made = [finished(site, name) for name in "12"]
    publish(made[0])
    shutil.rmtree(made[0].run.root)
    page = compare(site, *(one.key for one in made))
    assert "<td>published</td><td>under way</td>" in page
    assert "corpus.partition" in page


def test_one_run_and_none_are_asked_for_others(site: Site) -> None:
    made = finished(site, "1")
    page = compare(site)
    assert "This lineage has one run" in page
    other = finished(site, "2")
    page = compare(site, made.key)
    assert "<h2>Choose runs to compare</h2>" in page
    assert f'value="{made.key}" aria-label="{made.partition} {made.key}" checked' in page
    assert f'value="{other.key}" aria-label="{other.partition} {other.key}">' in page


def test_too_many_are_cut_and_what_is_no_run_of_the_lineage_is_named(site: Site) -> None:
    made = [finished(site, str(number)) for number in range(compare_view.MOST_RUNS + 1)]
    page = compare(site, *(one.key for one in made))
    assert f"Only the first {compare_view.MOST_RUNS} are shown" in page
    assert page.count('<path class="') == 0
    elsewhere = made[0]
    record = RunRecord.load(elsewhere.run.record)
    record.model_copy(update={"lineage_id": "other"}).write(elsewhere.run.record)
    page = compare(site, "../../x", elsewhere.key, "<b>", made[1].key, made[2].key)
    for name in ("../../x", elsewhere.key, "&lt;b&gt;"):
        assert f"no run <code>{name}</code>" in page
    assert "<h2>Results</h2>" in page


@dataclass
class Reads:
    """What was read and listed, once so many reads were under way together.

    A read waits for the others, so those that are made one by one never come that far.
    """

    together: int
    read: list[str] = field(default_factory=list)
    listings: int = 0

    @contextmanager
    def counted(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        backend, meeting = local.LocalBackend, threading.Barrier(self.together)
        read, list_named = backend.read_versioned, backend.list_named

        def reading(backend: local.LocalBackend, uri: str) -> tuple[bytes, str] | None:
            self.read.append(uri)
            if uri.endswith("/run.json"):
                meeting.wait(PATIENCE_SECONDS)
            return read(backend, uri)

        def listing(backend: local.LocalBackend, *arguments: Any) -> Any:
            self.listings += 1
            return list_named(backend, *arguments)

        with monkeypatch.context() as patch:
            patch.setattr(backend, "read_versioned", reading)
            patch.setattr(backend, "list_named", listing)
            yield


PATIENCE_SECONDS = 30.0


def test_what_can_be_chosen_is_listed_once_and_read_together(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = RunRecord.load(finished(site, "1").run.record)
    runs = [site.store.run(f"{number:012x}") for number in range(11)]
    for number, run in enumerate(runs):
        key = run.root.rpartition("/")[2]
        lineage = "other" if number == 0 else record.lineage_id
        named = {"run_key": key, "lineage_id": lineage}
        record.model_copy(update=named).write(run.record)
    for run in runs[:5]:
        outcomes.record(run, OutcomeKind.REJECTED, "worse", written_by="judge")
    reads = Reads(together=len(runs) + 1)
    with reads.counted(monkeypatch):
        view = compare_view.compare_view(site.store, record.lineage_id, [])
    assert view.problems == []
    states = {offer.record.run_key: offer.state for offer in view.offers}
    assert list(states.values()).count("rejected") == 4
    assert list(states.values()).count("under way") == 7
    assert reads.listings == 1
    records = [uri for uri in reads.read if uri.endswith("/run.json")]
    ends = [uri for uri in reads.read if uri.endswith("/outcome.json")]
    # Of a run of another lineage the end does not matter, and of one that goes on there is none.
    assert (len(records), len(ends)) == (12, 4)
    assert len(reads.read) == 16


def test_the_newest_are_offered_and_what_is_damaged_is_named_in_their_order(site: Site) -> None:
    record = RunRecord.load(finished(site, "1").run.record)
    keys = [f"{number:012x}" for number in range(compare_view.MOST_OFFERED + 9)]
    for age, key in enumerate(keys):
        place = site.store.run(key).record
        if age in (3, 5):
            uris.write(place, b"{")
        else:
            record.model_copy(update={"run_key": key}).write(place)
        os.utime(place, (2e9 - age, 2e9 - age))
    view = compare_view.compare_view(site.store, record.lineage_id, [])
    offered = [offer.record.run_key for offer in view.offers]
    assert (
        offered
        == [key for age, key in enumerate(keys) if age not in (3, 5)][: compare_view.MOST_OFFERED]
    )
    assert [keys[3] in view.problems[0], keys[5] in view.problems[1]] == [True, True]


def test_it_is_loaded_anew_while_one_of_them_is_under_way(site: Site) -> None:
    first, second = finished(site, "1"), finished(site, "2")
    runs = [first.key, second.key]
    for run in (first, second):
        page = site.client.get("/compare", params={"lineage": "default", "run": runs}).text
        assert 'data-refresh="10"' in page
        outcomes.record(run.run, OutcomeKind.FAILED, "it broke", written_by="release")
    page = site.client.get("/compare", params={"lineage": "default", "run": runs}).text
    assert "data-refresh" not in page


def test_an_unknown_lineage_is_not_found(site: Site) -> None:
    assert site.status("/compare", lineage="../..") == 404


def test_models_and_the_tab_link_to_it(site: Site) -> None:
    first = finished(site, "1")
    publish(first)
    second = finished(site, "2", parent=first.version_id)
    page = site.get("/models")
    assert '<a href="compare?lineage=default">Compare runs</a>' in page
    assert f'name="run" value="{first.key}"' in page
    link = f"compare?lineage=default&amp;run={first.key}&amp;run={second.key}"
    assert f'<a href="{link}">' in run_page(site, second)


def test_the_tab_shows_settings_and_what_differs_from_the_preset(site: Site) -> None:
    made = finished(site, "1")
    change(made, training__random_seed=77)
    page = run_page(site, made)
    section = page[page.index("<h2>Settings</h2>") :].split("<details>")[0]
    seed = load_preset("smoke").training.random_seed
    assert f"<th>training.random_seed</th><td>{seed}</td><td>77</td>" in section
    assert "training.train_steps" not in section
    assert "<th>training.train_steps</th>" in page
    uris.write(made.run.config, load_preset("smoke").to_bytes())
    assert "As in the preset <code>smoke</code>" in run_page(site, made)


def test_the_tab_links_to_tensorboard_where_there_is_one(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = finished(site, "1")
    assert "TensorBoard" not in run_page(site, made)
    monkeypatch.setenv("REPRETRAIN_TENSORBOARD_URL", "http://127.0.0.1:6006/")
    address = f"http://127.0.0.1:6006/?runFilter={made.key}#timeseries"
    assert f'<a target="_blank" rel="noopener" href="{address}">' in run_page(site, made)
