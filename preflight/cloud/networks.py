"""Checks the networks of TPU VMs and Dataflow's workers: those configured, or the default one.

Without public addresses they reach the store only through Private Google Access.
Source: https://cloud.google.com/compute/docs/reference/rest/v1/subnetworks
"""

from __future__ import annotations

import re
from typing import Any

from preflight.cloud.apis import ApiError
from preflight.cloud.site import Site
from preflight.findings import Finding, failed, ok, warning

DEFAULT = "default"
"""Network and subnetwork that both services use if none is named."""

_FULL_NAME = re.compile(
    r"(?:.*/)?projects/(?P<project>[^/]+)/(?:global/networks|regions/[^/]+/subnetworks)/(?P<id>[^/]+)"
)


def tpu_network_finding(site: Site) -> Finding:
    """Check network and subnetwork of the TPU VM in every region of ``tpu.zones``."""
    tpu = site.config.tpu
    project, name = _resolved(site, tpu.network or DEFAULT)
    if tpu.network is not None or tpu.subnetwork is None:
        network = _found(site, f"projects/{project}/global/networks/{name}")
        if network is None:
            return failed(
                f"there is no network {name} in {project}.",
                f"gcloud compute networks list --project={project}, and set tpu.network",
            )
    # A network in auto mode gives its subnetworks its own name.
    subnetwork = tpu.subnetwork or (tpu.network or DEFAULT)
    findings = [
        _subnetwork_finding(
            site, "tpu.subnetwork", subnetwork, region, is_private=not tpu.enable_external_ips
        )
        for region in site.regions
    ]
    worst = next((finding for finding in findings if finding.fix), findings[0])
    if worst.fix and tpu.network is not None and tpu.subnetwork is None:
        # It is not documented which subnetwork of a named network the service then uses.
        return warning(worst.found, worst.fix)
    return worst


def dataflow_network_finding(site: Site) -> Finding | None:
    """Check the subnetwork of Dataflow's workers; None if there are none."""
    beam = site.config.beam
    if not site.uses_dataflow or beam.region is None:
        return None
    name = beam.subnetwork or DEFAULT
    return _subnetwork_finding(site, "beam.subnetwork", name, beam.region, is_private=True)


def _subnetwork_finding(
    site: Site, setting: str, named: str, region: str, *, is_private: bool
) -> Finding:
    project, name = _resolved(site, named)
    subnetwork = _found(site, f"projects/{project}/regions/{region}/subnetworks/{name}")
    where = f"--region={region} --project={project}"
    if subnetwork is None:
        return failed(
            f"there is no subnetwork {name} in {region} of {project}.",
            f"gcloud compute networks subnets list --regions={region} --project={project}, and set "
            f"{setting}",
        )
    if is_private and not subnetwork.get("privateIpGoogleAccess"):
        return failed(
            f"subnetwork {name} in {region} has no Private Google Access, and machines in it get "
            "no public addresses: they could not reach the store.",
            f"gcloud compute networks subnets update {name} {where} "
            "--enable-private-ip-google-access",
        )
    access = "with Private Google Access" if is_private else "with public addresses"
    return ok(f"{name} in {region}, {access}")


def _resolved(site: Site, named: str) -> tuple[str, str]:
    """Return project and name of a network or subnetwork given by short or full name."""
    match = _FULL_NAME.fullmatch(named)
    if match:
        return match["project"], match["id"]
    return site.project_id, named.rpartition("/")[2]


def _found(site: Site, path: str) -> dict[str, Any] | None:
    try:
        return site.apis.get("compute", path)
    except ApiError as error:
        if error.is_absent:
            return None
        raise
