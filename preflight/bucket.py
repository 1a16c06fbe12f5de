"""Checks this account's permissions in a Cloud Storage bucket."""

from __future__ import annotations

import urllib.parse

from pipeline_store import uris
from preflight.findings import Finding, failed, not_checked, ok, warning

_NEEDED = [f"storage.objects.{verb}" for verb in ("create", "delete", "get", "list")]
_FOR_REGION = "storage.buckets.get"
_TIMEOUT_SECONDS = 30


def rights_finding(uri: str) -> Finding | None:
    """Check that this account has the permissions that a run needs in the bucket of a URI.

    The permission to read the bucket's location is only used to check the region, so lacking it is
    no reason to refuse. If the service does not answer, the probe file of
    :func:`preflight.places.store_finding` decides.

    :returns: None for a local folder.
    """
    if not uris.is_cloud(uri):
        return None
    from google.api_core.exceptions import GoogleAPIError
    from google.auth.exceptions import GoogleAuthError

    name = urllib.parse.urlsplit(uri).netloc
    try:
        held = _held(name)
    except (GoogleAPIError, GoogleAuthError, OSError, ValueError) as error:
        return not_checked(f"the rights in the bucket of {uri} were not told: {error}")
    if missing := [right for right in _NEEDED if right not in held]:
        return failed(
            f"this account lacks {', '.join(missing)} in the bucket of {uri}.",
            _grant(name, "roles/storage.objectUser"),
        )
    if _FOR_REGION not in held:
        return warning(
            f"whether the bucket of {uri} is in the region of the TPUs cannot be checked, as this "
            f"account lacks {_FOR_REGION}.",
            _grant(name, "roles/storage.legacyBucketReader"),
        )
    return ok(f"objects of gs://{name} can be created, read, listed and deleted")


def _held(name: str) -> set[str]:
    """Return the needed permissions that the account has in a bucket."""
    from google.cloud import storage

    bucket = storage.Client().bucket(name)
    return set(bucket.test_iam_permissions([*_NEEDED, _FOR_REGION], timeout=_TIMEOUT_SECONDS))


def _grant(name: str, role: str) -> str:
    return (
        f"gcloud storage buckets add-iam-policy-binding gs://{name} "
        f"--member=serviceAccount:ACCOUNT --role={role}"
    )
