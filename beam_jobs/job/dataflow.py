"""Google Cloud Dataflow as the engine: its flags from the configuration, checks, names, links."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Mapping

from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions

from corpus.errors import UserError
from pipeline_config.data_schema import BeamConfig
from pipeline_store import uris
from pipeline_store.layout import StoreLayout

RUNNER = "DataflowRunner"
_LONGEST_NAME = 63
_MULTI_REGIONS = {"us": ("us-",), "eu": ("europe-",), "asia": ("asia-",)}


def dataflow_flags(beam: BeamConfig, name: str, labels: Mapping[str, str]) -> list[str]:
    """Return Beam's flags for a job.

    :param name: what the job works on; becomes part of the job's name.
    :param labels: labels of the job and its machines, by which they are found and billed.
    """
    given = {
        "runner": RUNNER,
        "region": beam.region,
        "temp_location": beam.temp_location,
        "sdk_container_image": beam.sdk_container_image,
        # The image has Beam and this repository, so nothing is staged.
        "sdk_location": "container",
        "worker_machine_type": beam.worker_machine_type,
        "autoscaling_algorithm": "THROUGHPUT_BASED",
        "max_num_workers": beam.max_num_workers or None,
        "service_account_email": beam.service_account_email,
        "subnetwork": _subnetwork(beam.subnetwork, beam.region),
        "job_name": job_name(name),
    }
    flags = [f"--{name}={value}" for name, value in given.items() if value is not None]
    # One shard at a time per core, so that memory use is the same as on other engines.
    flags += ["--number_of_worker_harness_threads=1"]
    flags += ["--experiments=use_runner_v2", "--no_use_public_ips"]
    return flags + [f"--labels={key}={value}" for key, value in sorted(labels.items())]


def default_project() -> str | None:
    """Return the project of this machine's Google credentials, if it has any."""
    # Imported here, as no run on this machine needs it.
    import google.auth
    import google.auth.exceptions

    try:
        _, project = google.auth.default()
    except google.auth.exceptions.DefaultCredentialsError:
        return os.environ.get("GOOGLE_CLOUD_PROJECT")
    return project


def job_name(name: str) -> str:
    """Return a unique job name that contains what the job works on.

    It is unique because a job that a killed launcher left behind may still run.
    """
    unique = uuid.uuid4().hex[:8]
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    head = f"bert-data-{words}"[: _LONGEST_NAME - len(unique) - 1].strip("-")
    return f"{head}-{unique}"


def _subnetwork(subnetwork: str | None, region: str | None) -> str | None:
    if subnetwork is None or "/" in subnetwork:
        return subnetwork
    return f"regions/{region}/subnetworks/{subnetwork}"


def check_places(
    options: PipelineOptions,
    store: StoreLayout,
    location: Callable[[str], str | None] = uris.location,
) -> None:
    """Check that a job's project is known and that its buckets are where its workers are.

    :param location: returns the location of a URI's storage; None if it is unknown.
    :raises UserError: no project is given, the store is no cloud bucket, or a bucket is elsewhere.
    """
    cloud = options.view_as(GoogleCloudOptions)
    if not cloud.project:
        raise UserError(
            "DataflowRunner needs a project: give --project=ID, or set the environment variable "
            "GOOGLE_CLOUD_PROJECT."
        )
    if not uris.is_cloud(store.root):
        raise UserError(
            f"--store: Dataflow's workers cannot reach {store.root}; use a gs:// bucket."
        )
    for name, uri in (("--store", store.root), ("beam.temp_location", cloud.temp_location)):
        place = location(uri)
        if place is not None and not _is_in(cloud.region, place.lower()):
            raise UserError(
                f"{name}: the bucket of {uri} is in {place}, the workers of beam.region in "
                f"{cloud.region}. Reading across regions is slow and billed; use one region."
            )


def _is_in(region: str, place: str) -> bool:
    return region == place or region.startswith(_MULTI_REGIONS.get(place, ("?",)))


def console_link(options: PipelineOptions, job_id: str) -> str:
    """Return the URL of a job's page in the Google Cloud console."""
    cloud = options.view_as(GoogleCloudOptions)
    return (
        f"https://console.cloud.google.com/dataflow/jobs/{cloud.region}/{job_id}"
        f"?project={cloud.project}"
    )
