"""Checks the account: its identity, clock and permissions, and the APIs of its project."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import google.oauth2.credentials
from google.auth.exceptions import GoogleAuthError, TransportError

from preflight.cloud.images import is_of_project
from preflight.cloud.site import Site
from preflight.findings import Finding, failed, ok, warning
from tpu_lifecycle.service import connecting

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
        # Objects may be reachable without it; the checks of the store ask Cloud Storage itself.
        tell = warning if missing == [_STORAGE] else failed
        return tell(
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not enabled in "
            f"{site.project_id}.",
            f"gcloud services enable {' '.join(missing)} --project={site.project_id}",
        )
    return ok(", ".join(service.removesuffix(".googleapis.com") for service in needed))


def needed_services(site: Site) -> list[str]:
    """Return the APIs that a run with these settings calls, directly or through its TPU."""
    names = [*connecting.facts().apis, "compute.googleapis.com", _STORAGE]
    images = [site.config.tpu.container_image]
    if site.uses_dataflow:
        names.append("dataflow.googleapis.com")
        images.append(site.config.beam.sdk_container_image)
    if any(is_of_project(image, site.project_id) for image in images):
        names.append("artifactregistry.googleapis.com")
    return names


_DATAFLOW = (
    "dataflow.jobs.cancel",
    "dataflow.jobs.create",
    "dataflow.jobs.get",
    "dataflow.jobs.list",
)


def rights_finding(site: Site) -> Finding:
    """Check that the account may rent and delete TPUs, and start Dataflow jobs."""
    roles = wanted_roles(site)
    wanted = [permission for permissions in roles.values() for permission in permissions]
    resource = f"v3/projects/{site.project_id}"
    held = site.apis.held_permissions("cloudresourcemanager", resource, wanted)
    missing = [permission for permission in wanted if permission not in held]
    if not missing:
        return ok(f"{', '.join(roles)}, or what of them is needed")
    lacking = [role for role, permissions in roles.items() if set(permissions) - held]
    commands = (
        f"gcloud projects add-iam-policy-binding {site.project_id} --member={site.apis.member} "
        f"--role={role}"
        for role in lacking
    )
    return failed(
        f"the account lacks {', '.join(missing)} in {site.project_id}.", " && ".join(commands)
    )


def wanted_roles(site: Site) -> dict[str, Sequence[str]]:
    """Return the roles that an account needs, with the permissions that are used from each."""
    tpu = connecting.facts()
    roles = {tpu.role: tpu.permissions}
    if site.uses_dataflow:
        roles["roles/dataflow.developer"] = _DATAFLOW
    return roles


SKEW_WARNED_OF = timedelta(seconds=10)
SKEW_REFUSED = timedelta(seconds=60)
"""Tokens are refused when the clock is minutes off; expiries of TPUs are off by the whole skew."""


def credentials_finding(site: Site) -> Finding:
    """Check that there are credentials, and that they yield a token."""
    try:
        credentials = site.apis.credentials
    except GoogleAuthError as error:
        if error.retryable or isinstance(error, TransportError):
            raise
        return failed(
            f"no usable credentials: {error}",
            "gcloud auth application-default login --impersonate-service-account=ACCOUNT, or a "
            "machine that has the account itself",
        )
    if isinstance(credentials, google.oauth2.credentials.Credentials):
        return warning(
            "a person's own login: the rights below are this person's, not those of the account "
            "that Airflow has.",
            "gcloud auth application-default login --impersonate-service-account=ACCOUNT",
        )
    return ok(site.apis.account or type(credentials).__name__)


def clock_finding(site: Site) -> Finding:
    """Check that this machine's clock agrees with Google's."""
    skew = site.apis.clock_skew()
    seconds = skew.total_seconds()
    found = f"this machine is {abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'} Google"
    fix = "sudo timedatectl set-ntp true"
    if abs(skew) > SKEW_REFUSED:
        return failed(f"{found}; tokens are refused and TPUs expire at other times.", fix)
    if abs(skew) > SKEW_WARNED_OF:
        return warning(f"{found}.", fix)
    return ok(found)
