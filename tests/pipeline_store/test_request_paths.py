"""Requests read what lies below their roots: as written, as matched, as opened."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline_store import request_paths
from pipeline_store.request_paths import OutsideRootsError, RequestRoots

SECRET = b"the secret"


@pytest.fixture
def roots(tmp_path: Path) -> RequestRoots:
    (tmp_path / "store" / "corpus" / "day-1").mkdir(parents=True)
    (tmp_path / "store" / "corpus" / "day-1" / "a.txt").write_bytes(b"text")
    (tmp_path / "secret.txt").write_bytes(SECRET)
    return RequestRoots.of(str(tmp_path / "store"), ["corpus", str(tmp_path / "shared")])


@pytest.mark.parametrize(
    "path",
    [
        "/etc/shadow",
        "STORE/runs/0123/config.json",
        "STORE/corpus/../runs/0123",
        "STORE/corpus2/a.txt",
        "STORE/*/a.txt",
        "STORE/cor*/day-1/a.txt",
        "STORE",
        "/",
        "file:///etc/shadow",
        "STORE/lineages/other/versions/v-1/vocab.txt",
    ],
)
def test_what_lies_elsewhere_is_refused(tmp_path: Path, roots: RequestRoots, path: str) -> None:
    with pytest.raises(OutsideRootsError, match="REPRETRAIN_INPUT_ROOTS"):
        roots.require(path.replace("STORE", str(tmp_path / "store")))


def test_a_link_that_cannot_be_followed_is_refused(
    roots: RequestRoots, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as /proc/1/cwd of a process that this one may not look at."""

    def denied(path: str) -> str:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os.path, "realpath", denied)
    for require in (roots.require, roots.require_pattern):
        with pytest.raises(OutsideRootsError, match="REPRETRAIN_INPUT_ROOTS"):
            require("/proc/1/cwd/*")


@pytest.mark.parametrize("path", ["corpus/day-1/*", "corpus/*/*.txt", "corpus", "corpus/new/a"])
def test_what_lies_below_a_root_is_allowed(tmp_path: Path, roots: RequestRoots, path: str) -> None:
    roots.require(f"{tmp_path}/store/{path}")
    roots.require(f"file://{tmp_path}/shared/a.txt")


@pytest.mark.parametrize("where", ["/STORE", "gs://bucket", "file:///STORE"])
@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ("corpus/*/../../runs/key/config.json", "part '..'"),
        ("corpus/x*/../../../../etc/shadow", "part '..'"),
        ("corpus/../corpus/a.txt", "part '..'"),
        ("corpus/[a-z]/./x", "part '.'"),
        ("corpus/day-?//etc/shadow", "an empty part"),
        ("corpus/{x}/a.txt", "braces other than {partition}"),
        ("{x}/../../..", "part '..'"),
        ("{x}/etc/*", "braces other than {partition}"),
        ("runs/*/config.json", "lies below none"),
        ("*/*.txt", "lies below none"),
        ("{partition}/*.txt", "lies below none"),
        ("corp*/a.txt", "lies below none"),
    ],
)
def test_a_pattern_cannot_match_elsewhere(
    tmp_path: Path, where: str, rest: str, reason: str
) -> None:
    root = where.replace("/STORE", str(tmp_path / "store"))
    roots = RequestRoots.of(root, ["corpus"])
    roots.require_pattern(f"{root}/corpus/{{partition}}/*.txt")
    with pytest.raises(OutsideRootsError, match=re.escape(reason)):
        roots.require_pattern(f"{root}/{rest}")
    with request_paths.limited_to(roots):
        for read in (request_paths.glob, request_paths.pattern_folder):
            with pytest.raises(OutsideRootsError):
                read(f"{root}/{rest}")


@pytest.mark.parametrize("sign", ["*", "[a]", "?", "{partition}"])
def test_a_file_is_judged_by_its_whole_name(tmp_path: Path, roots: RequestRoots, sign: str) -> None:
    # A folder may really have such a name.
    (tmp_path / "store" / "corpus" / sign).mkdir()
    for path in (f"corpus/{sign}/../../../secret.txt", f"corpus/{sign}/../../runs"):
        with pytest.raises(OutsideRootsError):
            roots.require(f"{tmp_path}/store/{path}", model=True)
    with request_paths.limited_to(roots), pytest.raises(OutsideRootsError):
        request_paths.read(f"{tmp_path}/store/corpus/{sign}/../../../secret.txt")
    roots.require(f"{tmp_path}/store/corpus/{sign}/a.txt")


def test_a_pattern_as_a_root_allows_what_it_matches_and_no_more(tmp_path: Path) -> None:
    store = tmp_path / "store"
    roots = RequestRoots.of(str(store), ["*/*.txt"])
    for path in ("*/*.txt", "day-1/*.txt", "{partition}/*.txt"):
        roots.require_pattern(f"{store}/{path}")
    roots.require(f"{store}/day-1/a.txt")
    for path in ("runs/key/config.json", "day-1", "day-1/a/b.txt", "a.txt", "day-1/.."):
        with pytest.raises(OutsideRootsError):
            roots.require(f"{store}/{path}")
    for path in ("*/*", "runs/*/config.json", "day-1/*"):
        with pytest.raises(OutsideRootsError):
            roots.require_pattern(f"{store}/{path}")


def test_models_may_be_published_versions_of_any_lineage(
    tmp_path: Path, roots: RequestRoots
) -> None:
    store = tmp_path / "store"
    roots.require(f"{store}/lineages/other/versions/v-1", model=True)
    for path in ("lineages/other/production.json", "lineages/versions/v-1", "runs/1/training"):
        with pytest.raises(OutsideRootsError):
            roots.require(f"{store}/{path}", model=True)


@pytest.mark.parametrize(
    "uri",
    [
        "gs://bucket/corpus2/a",
        "gs://bucket-2/corpus/a",
        "gs://bucket/corpus/../runs/a",
        "gs://bucket/corpus//a",
        "gs://bucket/cor*/a",
        "gs://bucket",
    ],
)
def test_cloud_paths_are_compared_by_whole_parts(uri: str) -> None:
    roots = RequestRoots.of("gs://bucket", ["corpus"])
    roots.require("gs://bucket/corpus/day-1/*.txt")
    with pytest.raises(OutsideRootsError):
        roots.require(uri)


def test_links_are_followed_to_what_they_name(tmp_path: Path, roots: RequestRoots) -> None:
    folder = tmp_path / "store" / "corpus" / "day-1"
    (folder / "b.txt").symlink_to(tmp_path / "secret.txt")
    with (
        request_paths.limited_to(roots),
        pytest.raises(OutsideRootsError, match=r"day-1/b\.txt lies below none"),
    ):
        request_paths.glob(f"{folder}/*")
    (folder / "b.txt").unlink()
    (tmp_path / "shared").symlink_to(folder)
    with request_paths.limited_to(roots):
        assert request_paths.glob(f"{tmp_path}/shared/*") == [f"{tmp_path}/shared/a.txt"]


def test_a_link_that_is_replaced_after_it_was_looked_at_is_noticed(
    tmp_path: Path, roots: RequestRoots, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "store" / "corpus" / "day-1" / "a.txt"
    real = request_paths.require

    def replace_after(uri: str, *, model: bool = False) -> str:
        real(uri, model=model)
        if not file.is_symlink():
            file.unlink()
            file.symlink_to(tmp_path / "secret.txt")
        return uri

    monkeypatch.setattr(request_paths, "require", replace_after)
    with request_paths.limited_to(roots), pytest.raises(OutsideRootsError) as refused:
        request_paths.read(str(file))
    assert SECRET.decode() not in str(refused.value)


def test_processes_of_a_request_have_its_roots_and_persons_have_none(
    tmp_path: Path, roots: RequestRoots
) -> None:
    code = "from pipeline_store import request_paths as r; print(r.read(r'%s').decode())"
    command = [sys.executable, "-c", code % (tmp_path / "secret.txt")]
    by_hand = subprocess.run(command, capture_output=True, text=True, check=False)
    assert by_hand.stdout.strip() == SECRET.decode()
    with request_paths.limited_to(roots):
        assert request_paths.current() == roots
        limited = subprocess.run(command, capture_output=True, text=True, check=False)
    assert limited.returncode != 0
    assert "OutsideRootsError" in limited.stderr
    assert SECRET.decode() not in limited.stdout + limited.stderr
    assert request_paths.current() is None
    assert not {name for name in os.environ if name.endswith("REQUEST_ROOTS")}
