"""Fixtures that run a test on every kind of store: a plain directory and ``gs://``."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline_store import gcs, uris
from tests.pipeline_store.gcs_server import GcsState, running

_CHECKSUM = re.compile(rb',\s*"record_sha256": "[0-9a-f]{64}"')


def moved(content: bytes, old: str, new: str) -> bytes:
    """Return a file of a store whose root is another one now: what it names lies there, too.

    It has no checksum then, as files of earlier releases have none.
    """
    return _CHECKSUM.sub(b"", content.replace(old.encode(), new.encode()))


@pytest.fixture
def cloud_storage(monkeypatch: pytest.MonkeyPatch) -> Iterator[GcsState]:
    """Serve a bucket named ``bucket``; the real client library is pointed at it."""
    with running() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        gcs._client.cache_clear()
        yield server.state
    gcs._client.cache_clear()


@pytest.fixture
def bucket_store(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the root URI of an empty store: in the bucket that was asked for, else the double."""
    bucket = request.config.getoption("--bucket", None)
    if bucket is None:
        request.getfixturevalue("cloud_storage")
        yield "gs://bucket/store"
        return
    store = uris.join(bucket, f"contract-{uuid.uuid4()}")
    yield store
    uris.delete_tree(store)


@pytest.fixture(params=["directory", "gs"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the root URI of an empty store of each kind."""
    if request.param == "directory":
        return str(tmp_path / "store")
    request.getfixturevalue("cloud_storage")
    return "gs://bucket/store"
