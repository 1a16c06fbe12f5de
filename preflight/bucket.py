"""Asks Cloud Storage what this account may do in a bucket."""

from __future__ import annotations

import logging
import urllib.parse
from collections.abc import Iterator

from pipeline_store import uris

logger = logging.getLogger(__name__)

_NEEDED = [f"storage.objects.{verb}" for verb in ("create", "delete", "get", "list")]
_FOR_REGION = "storage.buckets.get"
_TIMEOUT_SECONDS = 30


def rights_problems(setting: str, uri: str) -> Iterator[str]:
    """Yield a line when this account lacks a right that a run needs in the bucket of a URI.

    Nothing is yielded for a folder of this machine, or when the service does not answer this
    question: the file that :func:`preflight.places.store_problems` writes decides then. The right
    to see where the bucket is only serves to check the region, so that its absence is logged.

    :param setting: what the URI is, for the line.
    """
    held = _held(uri) if uris.is_cloud(uri) else None
    if held is None:
        return
    if missing := [right for right in _NEEDED if right not in held]:
        yield (
            f"{setting}: this account lacks {', '.join(missing)} in the bucket of {uri}; give it "
            "roles/storage.objectUser there."
        )
    if _FOR_REGION not in held:
        logger.warning(
            "%s: whether the bucket of %s is in the region of the TPUs cannot be checked, as this "
            "account lacks %s; roles/storage.legacyBucketReader has it.",
            setting,
            uri,
            _FOR_REGION,
        )


def _held(uri: str) -> set[str] | None:
    """Return which of the rights the account has in the URI's bucket; None when nobody tells."""
    from google.api_core.exceptions import GoogleAPIError
    from google.auth.exceptions import GoogleAuthError
    from google.cloud import storage

    name = urllib.parse.urlsplit(uri).netloc
    if not name:
        return None
    try:
        bucket = storage.Client().bucket(name)
        wanted = [*_NEEDED, _FOR_REGION]
        return set(bucket.test_iam_permissions(wanted, timeout=_TIMEOUT_SECONDS))
    except (GoogleAPIError, GoogleAuthError, OSError) as error:
        logger.warning("The rights in the bucket of %s were not checked: %s", uri, error)
        return None
