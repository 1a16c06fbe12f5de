"""Which machines there are, who has a part in what, and which one was lost."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import pytest

from pipeline_store.formats import ExitKind
from tests.training.corpora import TinyStore, tiny_config
from tests.training.jobs import train
from trained_models.errors import BadDataError, LostWorkerError, UserError
from training import evaluate, probe
from training.runtime.job import StopRequest
from training.runtime.workers import Cluster, naming_lost_workers, takes_part

WORKERS = ["10.0.0.1:20000", "10.0.0.2:20001", "10.0.0.3:20002"]


def tf_config(index: Any = 0, kind: str = "worker", **cluster: list[str]) -> str:
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


def be(monkeypatch: pytest.MonkeyPatch, index: int) -> None:
    monkeypatch.setenv("TF_CONFIG", tf_config(index, worker=WORKERS))


def test_without_tf_config_there_is_this_machine_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert Cluster.from_environment() == Cluster((), 0)


def test_tf_config_names_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    be(monkeypatch, 2)
    cluster = Cluster.from_environment()
    assert cluster == Cluster(tuple(WORKERS), 2)
    assert cluster.name(1) == "worker 1 (10.0.0.2:20001)"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "TF_CONFIG is '{'"),
        ("[]", r"TF_CONFIG is '\[\]'"),
        ('{"cluster": {"worker": ["a:1"]}}', "TF_CONFIG is"),
        (tf_config("first", worker=WORKERS), "TF_CONFIG is"),
        (tf_config(worker=WORKERS, ps=["a:1"]), r"names \['ps', 'worker'\]"),
        (tf_config(kind="chief", chief=WORKERS), r"names \['chief'\], this one as 'chief'"),
        (tf_config(3, worker=WORKERS), "this is worker 3, but names 3 workers, counted from 0"),
    ],
)
def test_any_other_tf_config_is_refused_with_the_form_that_it_must_have(
    monkeypatch: pytest.MonkeyPatch, text: str, reason: str
) -> None:
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(UserError, match=rf"{reason}.*it has to be \{{\"cluster\""):
        Cluster.from_environment()


@pytest.mark.parametrize(
    ("strategy", "parts"),
    [
        ("multi_worker_mirrored", [True, True, True]),
        ("tpu", [True, False, False]),
        ("mirrored", [True, False, False]),
        ("one_device", [True, False, False]),
    ],
)
def test_only_joined_machines_train_besides_the_first(
    monkeypatch: pytest.MonkeyPatch, strategy: str, parts: list[bool]
) -> None:
    found = []
    for index in range(len(WORKERS)):
        be(monkeypatch, index)
        found.append(takes_part(tiny_config(training__distribution_strategy=strategy)))
    assert found == parts


def test_a_host_without_a_part_is_done_at_once_and_leaves_nothing(
    tiny: TinyStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    be(monkeypatch, 1)
    run = tiny.run("run")
    # It does not even look at the manifest.
    assert train(tiny, run, "absent") == 0
    words = ["--store", tiny.layout.root, "--config", run.config, "--current-set", "a"]
    words += ["--set", "a=absent", "--model", "candidate=absent", "--output", "report"]
    assert evaluate.main(words) == 0


def error_named(name: str, text: str) -> Exception:
    return type(name, (Exception,), {})(text)


@pytest.mark.parametrize(
    ("name", "text", "lost"),
    [
        (
            "UnavailableError",
            (
                "{{function_node x}} Collective ops is aborted by: Error reported from "
                "/job:worker/task:2: The following tasks are unhealthy (stopped sending "
                "heartbeats):\n/job:worker/replica:0/task:2\nThe tasks have crashed."
            ),
            "worker 2 (10.0.0.3:20002) was lost",
        ),
        (
            "UnavailableError",
            (
                "Collective ops is aborted by: Socket closed\nAdditional GRPC error information "
                "from remote target /job:worker/replica:0/task:0 while calling /tensorflow.Worker"
            ),
            "worker 0 (10.0.0.1:20000) was lost",
        ),
        (
            "DeadlineExceededError",
            (
                "Collective ops is aborted by: Deadline Exceeded\n\n"
                "RPC: /tensorflow.CoordinationService/Heartbeat"
            ),
            "worker 0 (10.0.0.1:20000) was lost",
        ),
        (
            "AbortedError",
            "something else",
            "worker 0 (10.0.0.1:20000) and worker 2 (10.0.0.3:20002) cannot be reached",
        ),
    ],
)
def test_what_tensorflow_says_of_a_lost_machine_names_it(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, lost: str
) -> None:
    be(monkeypatch, 1)
    with pytest.raises(LostWorkerError) as raised, naming_lost_workers():
        raise error_named(name, text)
    assert str(raised.value).startswith(lost + ", and worker 1 (10.0.0.2:20001) cannot go on")
    assert raised.value.exit_kind is ExitKind.KILLED


@pytest.mark.parametrize(
    "error",
    [
        error_named("InvalidArgumentError", "shapes differ"),
        error_named("ResourceExhaustedError", "Collective ops is aborted by: OOM"),
        error_named("UnavailableError", "Collective ops is aborted by: RESOURCE_EXHAUSTED: OOM"),
        BadDataError("a record of /task:1"),
    ],
)
def test_what_is_wrong_here_is_nobody_else_s_loss(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    be(monkeypatch, 1)
    with pytest.raises(type(error)) as raised, naming_lost_workers():
        raise error
    assert raised.value is error


def test_a_machine_alone_loses_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    error = error_named("UnavailableError", "the store is away")
    with pytest.raises(type(error)), naming_lost_workers():
        raise error


@pytest.mark.parametrize(
    ("module", "first", "job"),
    [
        (evaluate, "_check", lambda: evaluate.evaluate(argparse.Namespace(sets={}, models={}))),
        (
            probe,
            "StoreLayout",
            lambda: probe.probe(argparse.Namespace(store=""), StopRequest()),
        ),
    ],
    ids=["evaluate", "probe"],
)
def test_other_jobs_that_lose_a_machine_name_it_too(
    monkeypatch: pytest.MonkeyPatch, module: Any, first: str, job: Callable[[], None]
) -> None:
    be(monkeypatch, 0)

    def lose(*arguments: Any) -> None:
        raise error_named("UnavailableError", "/job:worker/replica:0/task:1: Socket closed")

    monkeypatch.setattr(module, first, lose)
    with pytest.raises(LostWorkerError, match=r"^worker 1 \(10\.0\.0\.2:20001\) was lost"):
        job()
