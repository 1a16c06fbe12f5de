"""The store on Google Cloud Storage, made atomic by generation preconditions.

Source: https://cloud.google.com/storage/docs/request-preconditions
"""

from __future__ import annotations

import functools
import re
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO, cast

from pipeline_store.details import Listing, ObjectDetails

if TYPE_CHECKING:
    from datetime import datetime

    from google.cloud import storage

TIMEOUT_SECONDS = 60
WRITE_ID = "write-id"
_GLOB_SIGNS = re.compile(r"[\\*?\[\]{},]")


@functools.lru_cache(maxsize=1)
def _client() -> storage.Client:
    # Imported lazily: a run on plain directories needs no cloud library. The client honors
    # STORAGE_EMULATOR_HOST by itself.
    from google.auth.exceptions import GoogleAuthError
    from google.cloud import storage

    try:
        return storage.Client()
    except GoogleAuthError as error:
        raise PermissionError(
            f"Google Cloud Storage cannot be used, as there are no credentials: {error} Run "
            "`gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS."
        ) from error


def bucket_and_name(uri: str) -> tuple[str, str]:
    """Return the bucket and the object name of a ``gs://`` URI."""
    bucket, _, name = uri.removeprefix("gs://").partition("/")
    return bucket, name


def _split(uri: str) -> tuple[str, str]:
    bucket, name = bucket_and_name(uri)
    if not bucket:
        raise ValueError(f"URI {uri!r} names no bucket; use gs://BUCKET/PREFIX.")
    return bucket, name


def _blob(uri: str) -> storage.Blob:
    bucket, name = _split(uri)
    return _client().bucket(bucket).blob(name)


class GcsBackend:
    """Objects are blobs. A version is the object's generation number."""

    def read(self, uri: str) -> bytes:
        """Download the object."""
        found = self.read_versioned(uri)
        if found is None:
            raise FileNotFoundError(uri)
        return found[0]

    def read_versioned(self, uri: str) -> tuple[bytes, str] | None:
        """Download the object and the generation that was downloaded."""
        from google.api_core.exceptions import NotFound

        blob = _blob(uri)
        try:
            data = blob.download_as_bytes(timeout=TIMEOUT_SECONDS)
        except NotFound:
            return None
        # The client fills in the generation from the download's own response headers, so content
        # and version belong together even if the object is replaced at this moment.
        return data, str(blob.generation)

    def open(self, uri: str) -> BinaryIO:
        """Open the object for reading in chunks."""
        if self.size(uri) is None:
            raise FileNotFoundError(uri)
        return cast("BinaryIO", _blob(uri).open("rb", timeout=TIMEOUT_SECONDS))

    def write(self, uri: str, data: bytes) -> None:
        """Upload; the service shows the new object only when it is complete."""
        _blob(uri).upload_from_string(data, timeout=TIMEOUT_SECONDS)

    def upload(self, uri: str, path: str) -> None:
        """Upload a file; the service shows the new object only when it is complete."""
        _blob(uri).upload_from_filename(path, timeout=TIMEOUT_SECONDS)

    def create(self, uri: str, data: bytes) -> bool:
        """Upload on condition that no generation exists."""
        return self.replace(uri, data, None) is not None

    def replace(self, uri: str, data: bytes, version: str | None) -> str | None:
        """Upload on condition that the current generation is ``version``."""
        from google.api_core.exceptions import PreconditionFailed

        blob = _blob(uri)
        blob.metadata = {WRITE_ID: uuid.uuid4().hex}
        try:
            blob.upload_from_string(
                data, if_generation_match=int(version or 0), timeout=TIMEOUT_SECONDS
            )
        except PreconditionFailed:
            return self._settle(blob)
        return str(blob.generation)

    def _settle(self, blob: storage.Blob) -> str | None:
        # The client retries a request whose reply was lost; the retry then conflicts with our own
        # first write. What counts is whether the existing object came from this very call: equal
        # content is not enough, as two writers may write the same bytes.
        found = blob.bucket.get_blob(blob.name, timeout=TIMEOUT_SECONDS)
        ours = found is not None and (found.metadata or {}).get(WRITE_ID) == blob.metadata[WRITE_ID]
        return str(found.generation) if ours else None

    def size(self, uri: str) -> int | None:
        """Return the object's size, or None."""
        blob = self._find(uri)
        return None if blob is None else cast("int", blob.size)

    def modified(self, uri: str) -> datetime | None:
        """Return when the object was last written, or None."""
        blob = self._find(uri)
        return None if blob is None else cast("datetime", blob.updated)

    def _find(self, uri: str) -> storage.Blob | None:
        bucket, name = _split(uri)
        return _client().bucket(bucket).get_blob(name, timeout=TIMEOUT_SECONDS) if name else None

    def list(self, prefix: str) -> list[str]:
        """Return all objects below a prefix."""
        return [details.uri for details in self.list_details(prefix)]

    def list_details(self, prefix: str) -> Listing:
        """Return all objects below a prefix with sizes and update times, taken from the listing."""
        return self._details(prefix, None)

    def list_named(self, prefix: str, names: Sequence[str], below: str) -> Listing:
        """Return the objects with these names below each folder; the service filters them."""
        literal = _GLOB_SIGNS.sub(r"\\\g<0>", _split(prefix)[1])
        wanted = names[0] if len(names) == 1 else f"{{{','.join(names)}}}"
        return self._details(prefix, f"{literal}*/{below}{wanted}")

    def _details(self, prefix: str, pattern: str | None) -> Listing:
        bucket, name = _split(prefix)
        blobs = _client().list_blobs(
            bucket, prefix=name, match_glob=pattern, timeout=TIMEOUT_SECONDS
        )
        return sorted(
            ObjectDetails(f"gs://{bucket}/{blob.name}", blob.size, blob.updated)
            for blob in blobs
            if not blob.name.endswith("/")
        )

    def list_leftovers(self, prefix: str) -> Listing:
        """Return nothing: an object exists whole or not at all."""
        return []

    def location(self, uri: str) -> str | None:
        """Return the bucket's region or multi-region; None without the permission to ask."""
        from google.api_core.exceptions import Forbidden, NotFound

        try:
            bucket = _client().get_bucket(_split(uri)[0], timeout=TIMEOUT_SECONDS)
        except (Forbidden, NotFound):
            return None
        return cast("str", bucket.location)

    def delete(self, uri: str) -> None:
        """Delete the object if it exists."""
        from google.api_core.exceptions import NotFound

        try:
            _blob(uri).delete(timeout=TIMEOUT_SECONDS)
        except NotFound:
            return
