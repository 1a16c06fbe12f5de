"""Checks what the account may do in the project.

Cloud TPU knows no permissions of queued resources: those of nodes hold for both.
Source: https://cloud.google.com/iam/docs/roles-permissions/tpu and /dataflow
"""

from __future__ import annotations

from preflight.cloud.site import Site
from preflight.findings import Finding, failed, ok

_TPU = (
    "tpu.nodes.create",
    "tpu.nodes.delete",
    "tpu.nodes.get",
    "tpu.nodes.list",
    "tpu.operations.get",
)
_DATAFLOW = (
    "dataflow.jobs.cancel",
    "dataflow.jobs.create",
    "dataflow.jobs.get",
    "dataflow.jobs.list",
)


def rights_finding(site: Site) -> Finding:
    """Check that the account may rent TPUs and give them back, and start Dataflow's jobs."""
    roles: dict[str, tuple[str, ...]] = {"roles/tpu.admin": _TPU}
    if site.uses_dataflow:
        roles["roles/dataflow.developer"] = _DATAFLOW
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
