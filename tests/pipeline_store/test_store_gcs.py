"""What only happens on Cloud Storage: lost replies and regions."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_store import gcs, uris
from tests.pipeline_store.gcs_server import GcsState

URI = "gs://bucket/store/commit.json"


def test_a_lost_reply_does_not_turn_a_commit_into_a_defeat(cloud_storage: GcsState) -> None:
    cloud_storage.replies_to_lose = 1
    assert uris.create_if_absent(URI, b"mine")
    assert uris.read(URI) == b"mine"


def test_a_lost_reply_does_not_turn_a_defeat_into_a_commit(cloud_storage: GcsState) -> None:
    uris.write(URI, b"equal content")
    cloud_storage.replies_to_lose = 1
    assert not uris.create_if_absent(URI, b"equal content")


def test_a_lost_reply_of_compare_and_set(cloud_storage: GcsState) -> None:
    first = uris.compare_and_set(URI, b"1", None)
    cloud_storage.replies_to_lose = 1
    second = uris.compare_and_set(URI, b"2", first)
    assert uris.read_versioned(URI) == (b"2", second)
    assert second != first


def test_equal_content_written_twice_has_two_versions(cloud_storage: GcsState) -> None:
    first = uris.compare_and_set(URI, b"same", None)
    second = uris.compare_and_set(URI, b"same", first)
    with pytest.raises(uris.VersionConflictError):
        uris.compare_and_set(URI, b"same", first)
    uris.compare_and_set(URI, b"same", second)


def test_folder_markers_of_the_console_are_no_files(cloud_storage: GcsState) -> None:
    cloud_storage.put("bucket", "store/folder/", b"", None, {})
    assert uris.list_files("gs://bucket/store") == []


def test_location(cloud_storage: GcsState) -> None:
    cloud_storage.locations["european"] = "EU"
    assert uris.location("gs://bucket/store") == "US-CENTRAL1"
    assert uris.location("gs://european") == "EU"
    assert uris.location("gs://absent/store") is None


def test_a_uri_without_a_bucket_is_refused(cloud_storage: GcsState) -> None:
    with pytest.raises(ValueError, match="names no bucket"):
        uris.read("gs:///name")


def test_without_a_login_to_the_cloud_an_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    # No login of this machine's, and nobody is asked whether it is one of Google's.
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:9")
    gcs._client.cache_clear()
    with pytest.raises(PermissionError, match="gcloud auth application-default login"):
        uris.exists("gs://bucket/store/installation.json")
