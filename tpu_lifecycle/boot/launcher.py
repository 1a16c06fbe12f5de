"""Delivers code to a TPU VM: by a boot script in the node's metadata, and nothing by SSH."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from pipeline_store import uris

BOOT_SCRIPT = Path(__file__).with_name("boot.py")
CONTAINER_SCRIPT = Path(__file__).with_name("boot_container.sh")


class Launcher(Protocol):
    """A function that gets the agent onto every worker of a TPU that is about to be created.

    :func:`boot_metadata` is the one for TPU VMs; a launcher for another service (Compute Engine,
    GKE) is another function with the same arguments.
    """

    def __call__(
        self,
        *,
        mailbox_uri: str,
        released_uri: str,
        bundle_uri: str,
        bundle_sha256: str,
        token: str,
        job_key: str | None,
        expires_at: datetime,
        heartbeat_interval_seconds: float,
        tpu_name: str,
        tpu_api_endpoint: str,
        tpu_deletions: Sequence[str],
        lease_timeout_seconds: float,
        container_image: str | None,
    ) -> dict[str, str]:
        """Return the metadata that the create call must pass to the machine."""
        ...


def boot_metadata(
    *,
    mailbox_uri: str,
    released_uri: str,
    bundle_uri: str,
    bundle_sha256: str,
    token: str,
    job_key: str | None,
    expires_at: datetime,
    heartbeat_interval_seconds: float,
    tpu_name: str,
    tpu_api_endpoint: str,
    tpu_deletions: Sequence[str],
    lease_timeout_seconds: float,
    container_image: str | None,
) -> dict[str, str]:
    """Return the metadata of a node that boots into the agent.

    Metadata can be read by everything on the VM and by every account that may view the node, which
    accounts of TPU VMs must not. The token distinguishes attempts; it grants nothing. The key is
    the one secret: an account that has it, and may write to the mailbox, decides what the VM runs.

    :param mailbox_uri: folder of the attempt.
    :param released_uri: tombstone of the reservation.
    :param bundle_uri: code bundle in the store.
    :param bundle_sha256: hash that it must have.
    :param token: token of the attempt.
    :param job_key: key that signs the attempt's jobs; None: the reservation signs none, and its
        agent does not require it either.
    :param expires_at: moment after which the agent runs nothing and the VM deletes its own TPU.
    :param heartbeat_interval_seconds: between two heartbeats.
    :param tpu_name: full name in the service of the resource that the VM deletes.
    :param tpu_api_endpoint: of an emulator, which is used without TLS and without credentials;
        empty: there is a real service.
    :param tpu_deletions: how a service is asked for the deletion:
        :meth:`tpu_lifecycle.service.backend.TpuBackend.vm_deletions`.
    :param lease_timeout_seconds: time without a renewal of the lease and without progress after
        which the VM deletes its own TPU.
    :param container_image: image by digest in which the boot script runs; None: the VM's own
        ``python3`` runs it.
    :raises ValueError: ``expires_at`` has no time zone, so that the VM could misread it.
    """
    if expires_at.tzinfo is None:
        raise ValueError(f"expires_at {expires_at} has no time zone; use datetime.now(UTC).")
    return {
        **_scripts(container_image),
        "mailbox-uri": mailbox_uri,
        "released-uri": released_uri,
        "bundle-url": uris.media_url(bundle_uri),
        "bundle-sha256": bundle_sha256,
        "attempt-token": token,
        **({} if job_key is None else {"job-key": job_key}),
        "expires-at": expires_at.astimezone(UTC).isoformat(),
        "heartbeat-interval": str(heartbeat_interval_seconds),
        "tpu-name": tpu_name,
        "tpu-api-endpoint": tpu_api_endpoint,
        "tpu-deletions": "\n".join(tpu_deletions),
        "lease-timeout": str(lease_timeout_seconds),
    }


def _scripts(container_image: str | None) -> dict[str, str]:
    """Return the metadata entries of the scripts that the VM runs at every boot."""
    boot_script = BOOT_SCRIPT.read_text(encoding="utf-8")
    if container_image is None:
        return {"startup-script": boot_script}
    return {
        "startup-script": CONTAINER_SCRIPT.read_text(encoding="utf-8"),
        "boot-script": boot_script,
        "container-image": container_image,
    }
