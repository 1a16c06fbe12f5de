"""Scenarios for a run with several TPUs, one per mapped group instance: faults of one of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from verification.leak_matrix.layers import Layer
from verification.leak_matrix.scenario import DagShape, Scenario, Subject
from verification.leak_matrix.stage import Stage

BOTH = frozenset({Layer.ON_KILL, Layer.TEARDOWN})
EITHER = "failed|success"
TPUS = 2
_Scenario = partial(Scenario, subject=Subject.FINETUNING, tpus=TPUS)


def _while_working(act: Callable[[Stage], None]) -> Callable[[Stage], None]:
    def disturb(stage: Stage) -> None:
        stage.start()
        for tpu in range(TPUS):
            stage.until_works(tpu=tpu)
        act(stage)

    return disturb


def _start(stage: Stage) -> None:
    stage.start()


def _finish_all(stage: Stage) -> None:
    for tpu in range(TPUS):
        stage.finish(tpu=tpu)


def _fail_the_second(stage: Stage) -> None:
    stage.mark("run", "failed", tpu=1)
    # Its own teardown releases it at once; the other TPU keeps working.
    stage.until(lambda: len(stage.nodes()) == 1, "the end of the second TPU alone")
    stage.finish()


def _take_away_the_second(stage: Stage) -> None:
    node = next(n for n in stage.nodes() if _key(stage, 1) in n["node_id"])
    stage.admin.preempt(node["name"])
    stage.until(lambda: len(stage.creations()) == TPUS + 1, "another TPU for the second")
    stage.work_again(tpu=1)
    stage.until_works(tpu=1)
    _finish_all(stage)


def _clear_the_first_when_done(stage: Stage) -> None:
    _finish_all(stage)
    stage.until_ended()
    stage.until_nothing_left()
    stage.clear_task("run")
    stage.until(lambda: not stage.api.run(stage.dag_id, stage.run_id).finished, "the run again")


def _key(stage: Stage, tpu: int) -> str:
    """Return the key that the names of a TPU's nodes contain."""
    return stage.run_uri(tpu=tpu).rpartition("/")[2]


def _tpus(count: int) -> Callable[[Stage], list[str]]:
    def check(stage: Stage) -> list[str]:
        made = len(stage.creations())
        return [] if made == count else [f"{made} TPUs were made, not {count}"]

    return check


SCENARIOS = (
    _Scenario(
        id="two-tpus",
        title="two TPUs, nothing goes wrong",
        expected=Layer.TEARDOWN,
        also_on=BOTH,
        disturb=_while_working(_finish_all),
        ends="success",
        check=_tpus(TPUS),
    ),
    _Scenario(
        id="second-tpu-marked-failed",
        title="of two TPUs the second's run is marked failed: the first keeps its own and ends",
        expected=Layer.TEARDOWN,
        disturb=_while_working(_fail_the_second),
        check=_tpus(TPUS),
        fast=True,
    ),
    _Scenario(
        id="second-tpu-preempted",
        title="of two TPUs the second is taken away and replaced; the first is not disturbed",
        expected=Layer.TEARDOWN,
        also_on=BOTH,
        disturb=_while_working(_take_away_the_second),
        ends="success",
        check=_tpus(TPUS + 1),
    ),
    _Scenario(
        id="two-tpus-run-marked-failed",
        title="the whole run marked failed while two TPUs work; no trigger hears anything",
        expected=Layer.TEARDOWN,
        disturb=_while_working(lambda stage: stage.mark_run("failed")),
        ends=EITHER,
        check=_tpus(TPUS),
    ),
    _Scenario(
        id="two-tpus-create-raises",
        title="both create tasks fail once their TPUs are READY",
        expected=Layer.TEARDOWN,
        disturb=_start,
        shape=DagShape(create_raises=True),
        check=_tpus(TPUS),
    ),
    _Scenario(
        id="two-tpus-cleared",
        title="of a finished run with two TPUs `run` is cleared: two more, given back",
        expected=Layer.TEARDOWN,
        disturb=_while_working(_clear_the_first_when_done),
        ends="success",
        bound=120,
        check=_tpus(2 * TPUS),
    ),
)
