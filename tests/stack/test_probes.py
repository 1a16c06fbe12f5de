"""Labelled tasks in the main DAG, run for real."""

from __future__ import annotations

import random

import pytest

from demo import tiny
from pipeline_store import uris
from pipeline_store.formats import ProbeReport, RunPlan, Verdict
from tests.stack.driver import Pipeline
from tests.stack.test_main_job import FIRST, SECOND, SUCCESS

pytestmark = pytest.mark.stack

TASK = "endings"
PROBED = SUCCESS | {"lineage.probe_data": "success", "tpu.probe": "success"}
LABELS = {"ako": "first", "emu": "second", "ila": "third", "oro": "fourth"}


def write_task(pipeline: Pipeline) -> None:
    """Write a task about the tiny language: how the noun of a sentence ends."""
    draw = random.Random(1)
    rows = ["text\tlabel"]
    for number in range(400):
        noun = draw.choice(tiny.NOUNS)
        rows.append(f"the {noun} {noun[::-1]}es every {number} days.\t{LABELS[noun[-3:]]}")
    folder = pipeline.store.task(TASK).root
    uris.write(uris.join(folder, "train.tsv"), "\n".join(rows).encode())
    uris.write(pipeline.store.task(TASK).description, b'train = "train.tsv"\n')


def test_a_candidate_is_tried_on_labelled_tasks_before_it_is_promoted(pipeline: Pipeline) -> None:
    write_task(pipeline)
    settings = {"promotion__probe_tasks": [TASK], "promotion__probe_random_seeds": [1, 2]}
    first = pipeline.trigger(FIRST, "probed", **settings)
    assert pipeline.finish(first) == ("success", PROBED)
    # The first model is compared with nothing.
    recorded = ProbeReport.load(pipeline.run(first).probe(None))
    assert ([one.task for one in recorded.tasks], recorded.comparisons) == ([TASK], [])

    second = pipeline.trigger(SECOND, "probed", **settings)
    state, tasks = pipeline.finish(second)
    assert state == "success"
    assert tasks["tpu.probe"] == tasks["promotion.judge"] == "success"
    run = pipeline.run(second)
    baseline = RunPlan.load(run.plan).parent_version
    assert baseline is not None
    [comparison] = ProbeReport.load(run.probe(baseline)).comparisons
    assert comparison.sentence in pipeline.log(second, "tpu.probe")
    assert Verdict.load(run.verdict(baseline)).probes == [comparison]
    pipeline.assert_nothing_left()
