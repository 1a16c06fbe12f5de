"""What every kind of store promises; each test runs on a directory and on ``gs://``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline_store import uris

THREADS = 16


def together(action: Callable[[int], object]) -> list:
    """Run an action in many threads that start at the same moment."""
    barrier = threading.Barrier(THREADS)

    def one(number: int) -> object:
        barrier.wait()
        return action(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(one, range(THREADS)))


def names(folder: str, found: list[str]) -> list[str]:
    assert all(uri.startswith(folder + "/") for uri in found)
    return [uri.removeprefix(folder + "/") for uri in found]


@pytest.mark.parametrize("data", [b"", b"text", bytes(range(256)) * 3])
def test_what_is_written_is_read(any_store: str, data: bytes) -> None:
    uri = uris.join(any_store, "a", "b.bin")
    uris.write(uri, data)
    assert uris.read(uri) == data
    assert uris.size(uri) == len(data)
    assert uris.exists(uri)


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    data=st.binary(max_size=2000),
    name=st.text("abz09._- +%#?é", min_size=1, max_size=20).filter(lambda n: n.strip(".") != ""),
)
def test_any_bytes_under_any_name(any_store: str, data: bytes, name: str) -> None:
    uri = uris.join(any_store, "any", name)
    uris.write(uri, data)
    assert uris.read(uri) == data
    assert uri in uris.list_files(uris.join(any_store, "any"))
    uris.delete(uri)


def test_a_missing_object_is_missing_everywhere(any_store: str) -> None:
    uri = uris.join(any_store, "absent")
    assert uris.read_or_none(uri) is None
    assert uris.read_versioned(uri) is None
    assert not uris.exists(uri)
    assert uris.glob(uri) == []
    uris.delete(uri)
    for ask in (uris.read, uris.size, uris.open_stream, uris.sha256):
        with pytest.raises(FileNotFoundError, match="absent"):
            ask(uri)


def test_a_folder_is_not_an_object(any_store: str) -> None:
    uris.write(uris.join(any_store, "folder", "file"), b"x")
    assert not uris.exists(uris.join(any_store, "folder"))


@pytest.mark.beyond_emulators
def test_of_concurrent_creators_exactly_one_wins(any_store: str) -> None:
    uri = uris.join(any_store, "commit.json")
    won = together(lambda number: uris.create_if_absent(uri, f"writer {number}".encode()))
    assert won.count(True) == 1
    assert uris.read(uri) == f"writer {won.index(True)}".encode()


@pytest.mark.beyond_emulators
def test_equal_content_does_not_make_two_winners(any_store: str) -> None:
    uri = uris.join(any_store, "commit.json")
    assert together(lambda _: uris.create_if_absent(uri, b"the same")).count(True) == 1


@pytest.mark.beyond_emulators
def test_create_leaves_an_existing_object_alone(any_store: str) -> None:
    uri = uris.join(any_store, "commit.json")
    uris.write(uri, b"first")
    assert not uris.create_if_absent(uri, b"second")
    assert uris.read(uri) == b"first"


@pytest.mark.beyond_emulators
def test_compare_and_set_follows_versions(any_store: str) -> None:
    uri = uris.join(any_store, "pointer.json")
    first = uris.compare_and_set(uri, b"1", None)
    assert uris.read_versioned(uri) == (b"1", first)
    second = uris.compare_and_set(uri, b"2", first)
    assert uris.read_versioned(uri) == (b"2", second)
    for stale in (first, None):
        with pytest.raises(uris.VersionConflictError, match=r"pointer\.json"):
            uris.compare_and_set(uri, b"3", stale)
    assert uris.read(uri) == b"2"


@pytest.mark.beyond_emulators
def test_compare_and_set_on_a_missing_object(any_store: str) -> None:
    uri = uris.join(any_store, "pointer.json")
    version = uris.compare_and_set(uri, b"1", None)
    uris.delete(uri)
    with pytest.raises(uris.VersionConflictError):
        uris.compare_and_set(uri, b"2", version)


@pytest.mark.beyond_emulators
def test_no_concurrent_increment_is_lost(any_store: str) -> None:
    uri = uris.join(any_store, "counter")
    uris.write(uri, b"0")

    def increment(_: int) -> None:
        while True:
            found = uris.read_versioned(uri)
            assert found is not None
            data, version = found
            try:
                uris.compare_and_set(uri, str(int(data) + 1).encode(), version)
                return
            except uris.VersionConflictError:
                continue

    together(increment)
    assert uris.read(uri) == str(THREADS).encode()


def test_readers_see_whole_objects_only(any_store: str) -> None:
    uri = uris.join(any_store, "status")
    contents = [bytes([65 + n]) * (50_000 + n) for n in range(4)]
    uris.write(uri, contents[0])
    done = threading.Event()

    def rewrite() -> None:
        for turn in range(40):
            uris.write(uri, contents[turn % len(contents)])
        done.set()

    writer = threading.Thread(target=rewrite)
    writer.start()
    seen = set()
    while not done.is_set():
        seen.add(uris.read(uri))
    writer.join()
    assert seen <= set(contents)


def test_listing_is_deep_sorted_and_complete(any_store: str) -> None:
    # More objects than one page of the server's answer holds.
    wanted = sorted([f"part-{n:02d}" for n in range(20)] + ["sub/x", "sub/deep/y", "z.json"])
    for name in wanted:
        uris.write(uris.join(any_store, "data", name), b"x")
    uris.write(uris.join(any_store, "database"), b"a neighbour with a longer name")
    folder = uris.join(any_store, "data")
    assert names(folder, uris.list_files(folder)) == wanted
    assert uris.list_files(folder + "/") == uris.list_files(folder)
    assert uris.list_files(uris.join(any_store, "absent")) == []


@pytest.mark.beyond_emulators
def test_helper_files_are_never_listed(any_store: str) -> None:
    uri = uris.join(any_store, "d", "pointer")
    version = uris.compare_and_set(uri, b"1", None)
    uris.compare_and_set(uri, b"2", version)
    uris.create_if_absent(uri, b"3")
    assert uris.list_files(uris.join(any_store, "d")) == [uri]


def test_details_are_those_of_the_newest_content(any_store: str) -> None:
    begin = datetime.now(UTC)
    for number in range(10):
        uris.write(uris.join(any_store, "d", "sub", f"{number}"), b"x" * number)
    uris.write(uris.join(any_store, "d", "sub", "0"), b"a longer one")
    found = uris.list_details(uris.join(any_store, "d"))
    assert [details.uri for details in found] == uris.list_files(uris.join(any_store, "d"))
    assert [details.bytes for details in found] == [12, *range(1, 10)]
    # Clocks of file systems are coarse.
    second = timedelta(seconds=1)
    assert all(begin - second < d.modified < datetime.now(UTC) + second for d in found)
    assert found[0].modified >= found[-1].modified
    assert uris.list_details(uris.join(any_store, "absent")) == []


def test_one_object_says_when_it_was_written(any_store: str) -> None:
    uri = uris.join(any_store, "d/a.json")
    assert uris.modified(uri) is None
    uris.write(uri, b"x")
    [listed] = uris.list_details(uris.join(any_store, "d"))
    assert uris.modified(uri) == listed.modified


@pytest.mark.beyond_emulators
def test_named_files_are_found_one_folder_down_only(any_store: str) -> None:
    folder = uris.join(any_store, "d{1},[2]")
    for name in ("k1/a.json", "k1/b.json", "k2/a.json", "k2/c.json", "k2/deep/a.json", "a.json"):
        uris.write(uris.join(folder, name), b"x")
    found = uris.list_named(folder, "a.json", "b.json")
    wanted = ("k1/a.json", "k1/b.json", "k2/a.json")
    assert [details.uri for details in found] == [uris.join(folder, name) for name in wanted]
    assert {details.bytes for details in found} == {1}
    below = uris.list_named(folder, "a.json", below="deep")
    assert [details.uri for details in below] == [uris.join(folder, "k2/deep/a.json")]
    for name in ("k1/deep/x/b.json", "k2/deep/y/a.json", "k2/other/y/a.json"):
        uris.write(uris.join(folder, name), b"x")
    deeper = uris.list_named(folder, "a.json", "b.json", below="deep/*")
    wanted = ("k1/deep/x/b.json", "k2/deep/y/a.json")
    assert [details.uri for details in deeper] == [uris.join(folder, name) for name in wanted]
    assert uris.list_named(uris.join(any_store, "absent"), "a.json") == []


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("a.txt", ["a.txt"]),
        ("*", ["a.txt", "b.txt", "b.txt.gz"]),
        ("*.txt", ["a.txt", "b.txt"]),
        ("?.txt", ["a.txt", "b.txt"]),
        ("[a]*", ["a.txt"]),
        ("[!a].txt", ["b.txt"]),
        ("*/c.txt", ["sub/c.txt"]),
        ("*/*", ["sub/c.txt"]),
        ("sub/.*", ["sub/.hidden"]),
        ("su?/deep/*", ["sub/deep/d.txt"]),
        ("*.jsonl", []),
        ("A.txt", []),
        ("sub", []),
    ],
)
def test_glob_works_as_in_a_shell(any_store: str, pattern: str, wanted: list[str]) -> None:
    for name in ("a.txt", "b.txt", "b.txt.gz", "sub/c.txt", "sub/deep/d.txt", "sub/.hidden"):
        uris.write(uris.join(any_store, name), b"x")
    assert names(any_store, uris.glob(uris.join(any_store, pattern))) == wanted


def test_upload_and_streams(any_store: str, tmp_path: Path) -> None:
    # Larger than a simple upload of the cloud client may be, so it becomes a resumable one.
    data = bytes(range(256)) * (9 * 4096)
    source = tmp_path / "weights"
    source.write_bytes(data)
    uri = uris.join(any_store, "version", "weights")
    uris.upload(str(source), uri)
    pieces = list(uris.chunks(uri))
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) <= uris.CHUNK_BYTES
    with uris.open_stream(uri) as stream:
        assert stream.read(3) == data[:3]
    assert len(uris.sha256(uri)) == 64


def test_copy_and_delete_tree(any_store: str) -> None:
    uris.write(uris.join(any_store, "a", "1"), b"one")
    uris.copy(uris.join(any_store, "a", "1"), uris.join(any_store, "b", "1"))
    uris.delete_tree(uris.join(any_store, "a"))
    assert names(any_store, uris.list_files(any_store)) == ["b/1"]
    assert uris.read(uris.join(any_store, "b", "1")) == b"one"
