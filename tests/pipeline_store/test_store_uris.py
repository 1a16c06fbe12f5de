"""Spelling of URIs, and what is special about plain directories."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_store import uris

REPOSITORY = Path(__file__).parents[2]


def run_python(code: str) -> int:
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=False)
    return done.returncode


@pytest.mark.parametrize(
    ("base", "parts", "wanted"),
    [
        ("/store", ("a", "b"), "/store/a/b"),
        ("/store/", ("a/b",), "/store/a/b"),
        ("gs://bucket", ("a",), "gs://bucket/a"),
        ("gs://bucket/p/", ("a", "b.json"), "gs://bucket/p/a/b.json"),
        ("file:///store", ("a",), "file:///store/a"),
    ],
)
def test_join(base: str, parts: tuple[str, ...], wanted: str) -> None:
    assert uris.join(base, *parts) == wanted


@pytest.mark.parametrize("part", ["/etc/passwd", "..", "../x", "a/../../x", "a/.."])
def test_join_does_not_leave_the_base(part: str) -> None:
    with pytest.raises(ValueError, match="would leave '/store'"):
        uris.join("/store", "a", part)


@settings(deadline=None)
@given(st.lists(st.text("ab./ ", max_size=6), max_size=4))
def test_join_never_leaves_the_base(parts: list[str]) -> None:
    try:
        joined = uris.join("/store/base", *parts)
    except ValueError:
        return
    assert Path("/store/base") in (Path(joined), *Path(joined).parents)


@pytest.mark.parametrize("uri", ["s3://bucket/x", "http://host/x", "hdfs://x/y"])
def test_unknown_schemes_are_refused(uri: str) -> None:
    with pytest.raises(ValueError, match=r"plain directory or a gs:// bucket"):
        uris.read(uri)


def test_relative_paths_are_refused() -> None:
    with pytest.raises(ValueError, match="relative"):
        uris.write("some/file", b"")


def test_both_spellings_of_a_directory_are_one(tmp_path: Path) -> None:
    uris.write(f"file://{tmp_path}/x", b"1")
    assert uris.read(f"{tmp_path}/x") == b"1"
    assert uris.for_library(f"file://{tmp_path}/x") == f"{tmp_path}/x"
    assert uris.glob(f"file://{tmp_path}/*") == uris.glob(f"{tmp_path}/*") == [f"{tmp_path}/x"]
    assert uris.location(f"{tmp_path}") is None


def test_absolute_and_cloud() -> None:
    assert [uris.is_absolute(u) for u in ("/a", "gs://b/c", "file:///a", "a/b")] == [
        True,
        True,
        True,
        False,
    ]
    assert uris.is_cloud("gs://b/c")
    assert not uris.is_cloud("/gs/b")


def test_media_url_can_be_fetched_without_a_library(tmp_path: Path) -> None:
    uri = str(tmp_path / "code bundle#1.zip")
    uris.write(uri, b"bundle")
    with urllib.request.urlopen(uris.media_url(uri)) as reply:  # noqa: S310 - a file of this test
        assert reply.read() == b"bundle"
    assert uris.media_url("gs://b/a b/c") == (
        "https://storage.googleapis.com/storage/v1/b/b/o/a%20b%2Fc?alt=media"
    )


def test_a_killed_writer_leaves_nothing_that_counts(tmp_path: Path) -> None:
    target = tmp_path / "status.json"
    uris.write(str(target), b"old")
    # Dies between writing aside and renaming.
    code = f"""
import os, pathlib
from pipeline_store import uris
pathlib.Path.replace = lambda *_: os._exit(9)
uris.write({str(target)!r}, b"new")
"""
    assert run_python(code) == 9
    assert uris.read(str(target)) == b"old"
    assert uris.list_files(str(tmp_path)) == [str(target)]


def test_plain_directories_need_no_cloud_library() -> None:
    code = """
import sys
from pipeline_store import uris, formats, identity, layout
uris.exists("/nowhere")
sys.exit(any(name in sys.modules for name in ("google.cloud.storage", "google.auth")))
"""
    assert run_python(code) == 0
