"""The job's description as Beam's own runner makes it for Dataflow, which is not asked."""

from __future__ import annotations

from apache_beam.options.pipeline_options import PipelineOptions

from beam_jobs.job import dataflow
from beam_jobs.job.engines import Engine
from beam_jobs.labelled.facts import TaskFile
from beam_jobs.labelled.pipeline import TaskJob, build
from pipeline_config import TaskConfig
from pipeline_config.data_schema import BeamConfig
from pipeline_store.formats import TaskSplit
from pipeline_store.layout import StoreLayout

BEAM = BeamConfig(
    runner="DataflowRunner",
    region="us-central1",
    temp_location="gs://bucket/temp",
    sdk_container_image=f"us-docker.pkg.dev/project/images/data-job@sha256:{0:064}",
)


def test_dataflow_takes_the_job() -> None:
    files = [f"gs://bucket/store/tasks/toy/part-{n:05d}.tsv" for n in range(300)]
    job = TaskJob(
        store=StoreLayout("gs://bucket/store"),
        task=TaskConfig(),
        files=tuple(
            TaskFile(n, TaskSplit.TRAIN, uri, "tsv", f"{n:064x}", 1) for n, uri in enumerate(files)
        ),
        folder="gs://bucket/store/tasks/toy/prepared/key/try-1",
        lineage_id="default",
        vocabulary_sha256=f"{0:064}",
        max_seq_length=128,
    )
    flags = dataflow.dataflow_flags(BEAM, "toy", {"dag": "bert_finetuning"})
    options = PipelineOptions([*flags, "--project=my-project", "--dry_run=True"])
    pipeline = Engine(options).new_pipeline()
    build(pipeline, job, f"{job.folder}/outcome.json")
    described = pipeline.run().job
    assert described.proto.name.startswith("bert-data-toy-")
    graph = described.proto_pipeline
    names = {transform.unique_name for transform in graph.components.transforms.values()}
    assert {"Files", "Read", "Decide", "Convert", "HandOver"} <= names
    # Dataflow takes 10 MB.
    assert len(graph.SerializeToString()) < 1_000_000
