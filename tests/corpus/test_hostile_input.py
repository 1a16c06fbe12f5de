"""Input that would hang a job, take its memory, or be missing without a word."""

from __future__ import annotations

import errno
import io
import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus import partitions
from corpus.errors import MachineError, UserError, reading
from corpus.text import cleaning, parquet_documents
from corpus.text.inputs import list_inputs
from pipeline_store.layout import StoreLayout

_PEAK = """
import re, sys
from corpus.text.parquet_documents import parquet_documents
sizes = [len(text) for text in parquet_documents(open(sys.argv[1], "rb"), "text")]
# Not resource.getrusage, which counts what the parent had when it forked.
peak = re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]
print(len(sizes), sum(sizes), int(peak) << 10)
"""


def dictionary_bomb(path: Path, value: str, rows: int) -> None:
    """Write a small file that stands for the same long value many times."""
    values = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([value]))
    pq.write_table(pa.table({"text": values}), path, row_group_size=rows, store_schema=False)


def test_dictionary_of_a_parquet_file_does_not_multiply_in_memory(tmp_path: Path) -> None:
    path, size = tmp_path / "bomb.parquet", 4 << 20
    dictionary_bomb(path, "a " * (size // 2), 500)
    assert path.stat().st_size < 1 << 20
    found = subprocess.run(
        [sys.executable, "-c", _PEAK, str(path)], check=True, capture_output=True, text=True
    )
    rows, characters, peak = map(int, found.stdout.split())
    assert (rows, characters) == (500, 500 * size)
    assert peak < 1 << 30


@pytest.mark.parametrize(
    "error", [MemoryError(), pa.ArrowMemoryError("full"), OSError(errno.EIO, "broken")], ids=repr
)
def test_failure_of_the_machine_is_not_remembered_as_a_damaged_file(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            raise error

    data = io.BytesIO()
    pq.write_table(pa.table({"text": ["a"]}), data)
    monkeypatch.setattr(parquet_documents.pq, "ParquetFile", Broken)
    with (
        pytest.raises(MachineError, match=r"x\.parquet: .*run again") as caught,
        reading("x.parquet"),
    ):
        list(parquet_documents.parquet_documents(io.BytesIO(data.getvalue()), "text"))
    assert caught.value.exit_kind == "failed"


def test_marks_without_end_become_as_many_as_a_letter_can_have() -> None:
    text = "begin a" + "\u0301\u0323" * 1_000_000 + "b end"
    marks = "\u0301\u0323" * (cleaning.MOST_MARKS // 2)
    expected = unicodedata.normalize("NFC", f"begin a{marks}b end")
    assert cleaning.normalize("NFC", text) == expected


@given(
    st.text(
        st.sampled_from("ab \u00e9\u0301\u0323\u0902\U0001d165\U0001e94a\U0002f800"), max_size=90
    )
)
def test_text_with_fewer_marks_is_left_as_it_is(text: str) -> None:
    long = text + " " + "z" * 1000
    longest = max(map(len, re.findall("[\u0301\u0323\U0001d165\U0001e94a]*", text)))
    forms: tuple[Literal["NFC", "NFKC"], ...] = ("NFC", "NFKC")
    for form in forms:
        cleaned = cleaning.normalize(form, long)
        if longest <= cleaning.MOST_MARKS:
            assert cleaned == unicodedata.normalize(form, long)
        else:
            assert len(cleaned) < len(long)


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_lost_link(path: Path) -> None:
    path.symlink_to("/nonexistent")


def a_loop(path: Path) -> None:
    path.symlink_to(path)


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def an_endless_file(path: Path) -> None:
    path.symlink_to("/proc/self/pagemap")


def a_name_of_another_encoding(path: Path) -> None:
    Path(os.fsdecode(os.fsencode(path.parent) + b"/\xe9.txt")).write_text("text")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (a_pipe, "odd.txt is a pipe, socket or device"),
        (a_lost_link, "odd.txt is a link that leads nowhere"),
        (a_loop, "odd.txt is a link that leads nowhere"),
        (a_device, "odd.txt is a pipe, socket or device"),
        (an_endless_file, "odd.txt is a file of the operating system"),
        (a_name_of_another_encoding, r"\udce9.txt is no UTF-8"),
    ],
)
def test_what_is_no_file_of_text_is_named(
    make: Callable[[Path], None], said: str, tmp_path: Path
) -> None:
    folder = tmp_path / "corpus/2026-01-01"
    folder.mkdir(parents=True)
    (folder / "good.txt").write_text("text")
    (folder / "empty.txt").touch()
    make(folder / "odd.txt")
    store = StoreLayout(str(tmp_path))
    with pytest.raises(UserError) as caught:
        list_inputs("corpus/{partition}/*", "2026-01-01", store)
    assert said in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(list_inputs("corpus/{partition}/[eg]*", "2026-01-01", store)) == 2


def test_links_and_names_that_make_no_partition_are_named(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/a.txt").write_text("text")
    for name in ("2026-01-01", "2026-Q1"):
        (tmp_path / "corpus" / name).mkdir(parents=True)
        (tmp_path / "corpus" / name / "a.txt").write_text("text")
    (tmp_path / "corpus/2026-02-01").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "corpus/2026-01-01/folder").symlink_to(tmp_path / "elsewhere")
    store, pattern = StoreLayout(str(tmp_path)), "corpus/{partition}/*"
    assert partitions.find_partitions(pattern, store) == ["2026-01-01"]
    upper, link = partitions.overlooked(pattern, store)
    assert "'2026-Q1' is not a valid id" in upper
    assert "2026-02-01 is a link to a folder" in link
    assert list_inputs(pattern, "2026-01-01", store) == [f"{tmp_path}/corpus/2026-01-01/a.txt"]
    with pytest.raises(UserError, match="2026-02-01 is a link to a folder"):
        list_inputs("corpus/*/a.txt", "2026-01-01", store)


def test_stars_of_a_pattern_are_not_tried_in_all_combinations(tmp_path: Path) -> None:
    folder = tmp_path / "corpus/p"
    folder.mkdir(parents=True)
    (folder / ("a" * 200)).write_text("text")
    store = StoreLayout(str(tmp_path))
    # Tried in all combinations this would take years.
    assert partitions.find_partitions("corpus/{partition}/" + "*a" * 12 + "*b", store) == []
    assert partitions.find_partitions("corpus/{partition}/" + "*a" * 12, store) == ["p"]


@pytest.mark.parametrize(
    ("pattern", "name", "partition"),
    [
        ("*-{partition}*.txt", "a-b-2026.txt", "2026"),
        ("x*y*{partition}.txt", "xyyz2026.txt", "6"),
        ("*a?c*-{partition}-*", "aabcabc-p-q-r", "q"),
        ("{partition}/*[ab]*c", "p/xbxc", "p"),
        ("{partition}/*[ab]*c", "p/x/bxc", None),
        ("{partition}/*b*b", "p/xb", None),
    ],
)
def test_stars_find_what_they_found(
    pattern: str, name: str, partition: str | None, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("text")
    found = partitions.find_partitions(pattern, StoreLayout(str(tmp_path)))
    assert found == ([] if partition is None else [partition])
