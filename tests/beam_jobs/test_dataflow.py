"""Dataflow's options and job description, made by Beam's own runner and not submitted."""

from __future__ import annotations

import re
from typing import Any

import pytest
from apache_beam.options.pipeline_options import (
    DebugOptions,
    GoogleCloudOptions,
    PipelineOptions,
    SetupOptions,
    WorkerOptions,
)
from apache_beam.runners.dataflow.internal import apiclient

from beam_jobs.job import dataflow
from beam_jobs.job.engines import Engine
from beam_jobs.job.options import refuse_unknown
from beam_jobs.job.pipeline import PartitionJob, build
from corpus.errors import UserError
from pipeline_config import PipelineConfig
from pipeline_store.layout import StoreLayout
from tests.beam_jobs.workspace import PARTITION, make_config

SETTINGS: dict[str, Any] = {
    "beam__runner": "DataflowRunner",
    "beam__region": "us-central1",
    "beam__temp_location": "gs://bucket/temp",
    "beam__sdk_container_image": f"us-docker.pkg.dev/project/images/data-job@sha256:{0:064}",
    "beam__max_num_workers": 7,
    "beam__service_account_email": "data@project.iam.gserviceaccount.com",
    "beam__subnetwork": "workers",
}
LABELS = {"dag": "bert_repretraining", "run-key": "0a1b2c3d4e5f"}


def options_for(*extra: str, **settings: Any) -> PipelineOptions:
    config = make_config(**SETTINGS | settings)
    flags = dataflow.dataflow_flags(config.beam, PARTITION, LABELS)
    return PipelineOptions([*flags, "--project=my-project", *extra])


def described(options: PipelineOptions, config: PipelineConfig) -> Any:
    """Return the job that Beam's runner would submit."""
    pipeline = Engine(options).new_pipeline()
    job = PartitionJob(config, StoreLayout("gs://bucket/store"), PARTITION, "corpus/*", "0" * 64)
    build(pipeline, job, "gs://bucket/store/scratch/result.json")
    return pipeline.run().job


def test_beam_knows_every_flag() -> None:
    refuse_unknown(dataflow.dataflow_flags(make_config(**SETTINGS).beam, PARTITION, LABELS))


def test_configuration_becomes_options() -> None:
    options = options_for()
    cloud = options.view_as(GoogleCloudOptions)
    assert (cloud.project, cloud.region) == ("my-project", "us-central1")
    assert cloud.temp_location == "gs://bucket/temp"
    assert cloud.service_account_email == SETTINGS["beam__service_account_email"]
    assert cloud.labels == ["dag=bert_repretraining", "run-key=0a1b2c3d4e5f"]
    assert re.fullmatch(r"bert-data-2026-01-31-[0-9a-f]{8}", cloud.job_name)
    workers = options.view_as(WorkerOptions)
    assert workers.max_num_workers == 7
    assert workers.autoscaling_algorithm == "THROUGHPUT_BASED"
    assert workers.machine_type == "n2-standard-4"
    assert workers.sdk_container_image == SETTINGS["beam__sdk_container_image"]
    assert workers.subnetwork == "regions/us-central1/subnetworks/workers"
    assert workers.use_public_ips is False
    assert options.view_as(SetupOptions).sdk_location == "container"
    assert options.view_as(DebugOptions).number_of_worker_harness_threads == 1


def test_settings_that_are_left_open_are_the_services() -> None:
    options = options_for(
        beam__max_num_workers=0, beam__subnetwork=None, beam__service_account_email=None
    )
    workers = options.view_as(WorkerOptions)
    assert workers.max_num_workers is None
    assert workers.subnetwork is None
    assert options.view_as(GoogleCloudOptions).service_account_email is None


def test_command_line_goes_before_the_configuration() -> None:
    options = options_for("--machine_type=n2-highmem-8", "--max_num_workers=3")
    assert options.view_as(WorkerOptions).machine_type == "n2-highmem-8"
    assert options.view_as(WorkerOptions).max_num_workers == 3


def test_whole_subnetworks_are_taken_as_they_are() -> None:
    whole = "https://www.googleapis.com/compute/v1/projects/host/regions/r/subnetworks/s"
    options = options_for(beam__subnetwork=whole)
    assert options.view_as(WorkerOptions).subnetwork == whole


@pytest.mark.parametrize("partition", ["2026-01-31", "a.b_c", "x" * 63, "9"])
def test_job_names_are_valid_and_different(partition: str) -> None:
    names = {dataflow.job_name(partition) for _ in range(10)}
    assert len(names) == 10
    for name in names:
        assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])", name)


def test_beams_runner_takes_the_job() -> None:
    config = make_config(**SETTINGS)
    options = options_for("--dry_run=True")
    job = described(options, config)
    assert job.proto.labels == LABELS
    assert job.proto.name.startswith("bert-data-2026-01-31-")
    environment = apiclient.Environment(
        packages=[],
        options=options,
        environment_version="0",
        proto_pipeline_staged_url="gs://bucket/temp/pipeline.pb",
        proto_pipeline=job.proto_pipeline,
    ).proto
    assert environment.service_account_email == SETTINGS["beam__service_account_email"]
    (pool,) = environment.worker_pools
    assert pool.machine_type == "n2-standard-4"
    assert pool.autoscaling_settings.max_num_workers == 7
    images = {image.container_image for image in pool.sdk_harness_container_images}
    assert images == {SETTINGS["beam__sdk_container_image"]}
    assert pool.subnetwork == "regions/us-central1/subnetworks/workers"


def test_job_graph_is_small_and_has_a_worker_step_for_each_stage() -> None:
    config = make_config(**SETTINGS, vocabulary__size=250_000, model__vocab_size=250_000)
    job = described(options_for("--dry_run=True"), config)
    graph = job.proto_pipeline
    # Dataflow takes 10 MB. What it depends on is the configuration alone.
    assert len(graph.SerializeToString()) < 200_000
    names = {transform.unique_name for transform in graph.components.transforms.values()}
    assert {"ListInputs", "SpreadInputs", "Sign", "Decide", "SpreadWork", "Convert"} <= names


def check(
    options: PipelineOptions, places: dict[str, str], store: str = "gs://bucket/store"
) -> None:
    dataflow.check_places(
        options, StoreLayout(store), location=lambda uri: places.get(uri.split("/")[2])
    )


@pytest.mark.parametrize("place", ["US-CENTRAL1", "US", None])
def test_buckets_of_the_workers_region_are_taken(place: str | None) -> None:
    check(options_for(), {} if place is None else {"bucket": place})


def test_buckets_elsewhere_are_refused() -> None:
    with pytest.raises(UserError, match=r"--store: the bucket of gs://bucket/store is in EU"):
        check(options_for(), {"bucket": "EU"})
    options = options_for(beam__temp_location="gs://other/temp")
    with pytest.raises(UserError, match=r"beam\.temp_location: .* EUROPE-WEST4"):
        check(options, {"bucket": "US-CENTRAL1", "other": "EUROPE-WEST4"})


def test_a_store_on_this_machine_is_refused() -> None:
    with pytest.raises(UserError, match="use a gs:// bucket"):
        check(options_for(), {}, store="/data/store")


def test_a_project_is_needed() -> None:
    options = options_for()
    options.view_as(GoogleCloudOptions).project = None
    with pytest.raises(UserError, match="--project=ID"):
        check(options, {})


def test_console_link_names_region_job_and_project() -> None:
    assert dataflow.console_link(options_for(), "2026-01-31_job") == (
        "https://console.cloud.google.com/dataflow/jobs/us-central1/2026-01-31_job"
        "?project=my-project"
    )
