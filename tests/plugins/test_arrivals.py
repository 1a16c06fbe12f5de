"""What the tasks of the arrivals do: announce, work out the run, remember that it was started."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.sdk.execution_time.context import OutletEventAccessors

from operators.arrivals import (
    ReceivePartitionOperator,
    RememberStartOperator,
    WatchCorpusOperator,
)
from operators.pipeline_assets import CORPUS_PARTITION
from pipeline_store import uris
from tests.pipeline_store.stores import any_store, cloud_storage

__all__ = ["any_store", "cloud_storage"]


class Corpus:
    """The corpus of a store, and the tasks over it."""

    def __init__(self, root: str, preset: str = "smoke") -> None:
        self.root = root
        self.settings = {"store_uri": root, "preset": preset}

    def write(self, partition: str, *names: str) -> None:
        for name in names:
            uris.write(uris.join(self.root, "corpus", partition, name), b"text")

    def look(self) -> set[str]:
        """Return the keys of the events that a look emits."""
        events = OutletEventAccessors()
        operator = WatchCorpusOperator(task_id="look", settle=timedelta(minutes=5), **self.settings)
        context: Any = {"outlet_events": events}
        returned = operator.execute(context)
        assert operator.outlets == [CORPUS_PARTITION]
        assert returned == sorted(events[CORPUS_PARTITION].partition_keys)
        return events[CORPUS_PARTITION].partition_keys

    def receive(self, key: str | None) -> dict[str, str]:
        operator = ReceivePartitionOperator(task_id="receive", **self.settings)
        context: Any = {"dag_run": SimpleNamespace(partition_key=key)}
        return operator.execute(context)

    def remember(self, received: dict[str, str]) -> None:
        RememberStartOperator(task_id="remember", **self.settings, **received).execute({})


@pytest.fixture
def corpus(any_store: str) -> Corpus:
    """Return a corpus that was looked at when it was empty."""
    corpus = Corpus(any_store)
    with pytest.raises(AirflowSkipException, match="First look"):
        corpus.look()
    return corpus


def test_every_settled_partition_is_an_event_until_it_has_a_run(corpus: Corpus) -> None:
    corpus.write("2026-01-01", "a.txt", "_READY")
    corpus.write("2026-01-02", "a.txt", "_SUCCESS")
    corpus.write("2026-01-03", "a.txt")
    assert corpus.look() == {"2026-01-01", "2026-01-02"}
    corpus.remember(corpus.receive("2026-01-01"))
    assert corpus.look() == {"2026-01-02"}
    corpus.remember(corpus.receive("2026-01-02"))
    with pytest.raises(AirflowSkipException, match=r"0 of 3 .* arrived, 1 not settled yet"):
        corpus.look()


def test_why_a_partition_waits_is_logged(
    corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus.write("2026-01-01", "part-0-of-2.txt")
    with pytest.raises(AirflowSkipException):
        corpus.look()
    output = capsys.readouterr().out
    assert "Partition 2026-01-01 waits: " in output
    assert "part-1-of-2.txt" in output


def test_same_files_are_the_same_run_and_other_files_another(corpus: Corpus) -> None:
    corpus.write("2026-01-01", "a.txt")
    first = corpus.receive("2026-01-01")
    assert first["partition"] == "2026-01-01"
    assert first["run_id"].startswith("arrival__2026-01-01__")
    corpus.remember(first)
    assert corpus.receive("2026-01-01") == first
    corpus.remember(first)
    corpus.write("2026-01-01", "b.txt")
    assert corpus.receive("2026-01-01")["run_id"] != first["run_id"]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (None, "no partition key"),
        ("2031-01-01", r"'2031-01-01' was announced, but: .*no file of partition"),
        ("../secrets", r"Partition '\.\./secrets' is not a valid id"),
    ],
)
def test_an_event_that_can_start_nothing_is_refused(
    corpus: Corpus, key: str | None, expected: str
) -> None:
    with pytest.raises(AirflowFailException, match=expected):
        corpus.receive(key)


def test_a_wrong_configuration_is_not_tried_again(any_store: str) -> None:
    with pytest.raises(AirflowFailException, match="no_such_preset"):
        Corpus(any_store, "no_such_preset").look()
