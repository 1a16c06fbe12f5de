"""Checks that the project has enabled the APIs that a run calls."""

from __future__ import annotations

from preflight.cloud.images import is_of_project
from preflight.cloud.site import Site
from preflight.findings import Finding, failed, ok, warning

_STORAGE = "storage.googleapis.com"


def services_finding(site: Site) -> Finding:
    """Check that each API that the configuration needs is enabled.

    Source: https://cloud.google.com/service-usage/docs/reference/rest/v1/services/batchGet
    """
    parent = f"projects/{site.project_id}"
    needed = needed_services(site)
    names = [f"{parent}/services/{service}" for service in needed]
    answer = site.apis.get("serviceusage", f"v1/{parent}/services:batchGet", {"names": names})
    enabled = {
        service["name"].rpartition("/")[2]
        for service in answer.get("services", [])
        if service.get("state") == "ENABLED"
    }
    missing = [service for service in needed if service not in enabled]
    if missing:
        # Objects may be reached without it; the checks of the store ask Cloud Storage itself.
        tell = warning if missing == [_STORAGE] else failed
        return tell(
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not enabled in "
            f"{site.project_id}.",
            f"gcloud services enable {' '.join(missing)} --project={site.project_id}",
        )
    return ok(", ".join(service.removesuffix(".googleapis.com") for service in needed))


def needed_services(site: Site) -> list[str]:
    """Return the APIs that a run with these settings calls, directly or through its TPU."""
    names = ["tpu.googleapis.com", "compute.googleapis.com", _STORAGE]
    images = [site.config.tpu.container_image]
    if site.uses_dataflow:
        names.append("dataflow.googleapis.com")
        images.append(site.config.beam.sdk_container_image)
    if any(is_of_project(image, site.project_id) for image in images):
        names.append("artifactregistry.googleapis.com")
    return names
