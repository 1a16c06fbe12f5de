"""Checks the service accounts that TPU VMs and Dataflow's workers run as.

Their own permissions cannot be checked: only these accounts themselves can query them.
"""

from __future__ import annotations

from preflight.cloud.apis import ApiError
from preflight.cloud.site import Site
from preflight.findings import Finding, failed, ok

_ACT_AS = "iam.serviceAccounts.actAs"


def tpu_account_finding(site: Site) -> Finding:
    """Check the account of the TPU VM."""
    return _finding(site, "tpu.service_account", site.config.tpu.service_account)


def dataflow_account_finding(site: Site) -> Finding | None:
    """Check the account of Dataflow's workers; None if there are none."""
    if not site.uses_dataflow:
        return None
    beam = site.config.beam
    return _finding(site, "beam.service_account_email", beam.service_account_email)


def _finding(site: Site, setting: str, named: str | None) -> Finding:
    """Check that an account exists and is enabled, and that the caller may let machines run as it.

    Source: https://cloud.google.com/iam/docs/reference/rest/v1/projects.serviceAccounts
    """
    email = named or _default_account(site)
    if email is None:
        return failed(
            f"{setting} is empty, and {site.project_id} has no default compute account.",
            f"gcloud iam service-accounts create NAME --project={site.project_id}, and set "
            f"{setting}",
        )
    # The dash stands for the account's own project.
    resource = f"v1/projects/-/serviceAccounts/{email}"
    try:
        account = site.apis.get("iam", resource)
    except ApiError as error:
        if not error.is_absent:
            raise
        name, _, project = email.removesuffix(".iam.gserviceaccount.com").partition("@")
        return failed(
            f"there is no service account {email}.",
            f"gcloud iam service-accounts create {name} --project={project}",
        )
    if account.get("disabled"):
        return failed(f"{email} is disabled.", f"gcloud iam service-accounts enable {email}")
    if not site.apis.held_permissions("iam", resource, [_ACT_AS]):
        return failed(
            f"the account lacks {_ACT_AS} on {email}.",
            f"gcloud iam service-accounts add-iam-policy-binding {email} "
            f"--member={site.apis.member} --role=roles/iam.serviceAccountUser",
        )
    return ok(email if named else f"{email}, the project's default")


def _default_account(site: Site) -> str | None:
    project = site.apis.get("compute", f"projects/{site.project_id}")
    found: str | None = project.get("defaultServiceAccount")
    return found
