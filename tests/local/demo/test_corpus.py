from __future__ import annotations

import errno
import gzip
import json
from pathlib import Path

import pytest

from local.demo import corpus
from local.demo.corpus import CorpusError, build, from_folder
from local.demo.installed_text import paragraphs

DAYS = ("2026-01-01", "2026-01-02")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def documents(folder: Path, day: str) -> list[str]:
    text = "\n\n".join(path.read_text().strip() for path in sorted((folder / day).iterdir()))
    return text.split("\n\n")


def test_installed_text_becomes_partitions_of_shards(tmp_path: Path) -> None:
    parts = build(tmp_path, partitions=DAYS, max_mb=0.4)
    assert [part.partition for part in parts] == list(DAYS)
    for part in parts:
        found = documents(tmp_path, part.partition)
        files = list((tmp_path / part.partition).iterdir())
        assert part.files == len(files) == 4
        assert part.documents == len(found)
        assert part.bytes == sum(path.stat().st_size for path in files)
        assert 200_000 <= part.bytes < 220_000
        assert f"{part.partition}: {part.documents}" in str(part)


def test_no_paragraph_occurs_twice(tmp_path: Path) -> None:
    build(tmp_path, partitions=DAYS, max_mb=0.4)
    lines = [line for day in DAYS for doc in documents(tmp_path, day) for line in doc.split("\n")]
    assert len(lines) == len(set(lines))


@pytest.mark.thorough
def test_same_installation_gives_the_same_files(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        build(tmp_path / folder, partitions=DAYS, max_mb=0.4)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


@pytest.mark.thorough
def test_partitions_differ_in_topic(tmp_path: Path) -> None:
    build(tmp_path, partitions=(*DAYS, "2026-01-03"), max_mb=0.6)

    def share(day: str) -> float:
        words = " ".join(documents(tmp_path, day)).lower().split()
        return sum(word in {"array", "arrays", "matrix", "axis"} for word in words) / len(words)

    assert share("2026-01-02") > 3 * share("2026-01-01")
    assert share("2026-01-02") > 3 * share("2026-01-03")
    assert not set(documents(tmp_path, "2026-01-01")) & set(documents(tmp_path, "2026-01-03"))


def test_existing_partition_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / DAYS[1]).mkdir()
    with pytest.raises(CorpusError, match="exists already"):
        build(tmp_path, partitions=DAYS, max_mb=0.1)
    assert not (tmp_path / DAYS[0]).exists()


def test_prose_is_kept_and_everything_else_is_not() -> None:
    text = """Return the sum of all `elements` in the array, see :func:`~numpy.add` for more.

    Examples
    --------
    >>> numpy.sum([1, 2, 3]) and so on and so on
    6

    x = [f(a, b) for a in values if a > limit]; y = {key: value}

    ========= =====
    name      value
    ========= =====

    A [link](https://example.org/x) to a page, with *emphasis* on the middle of the sentence.
    """
    assert paragraphs(text) == [
        "Return the sum of all elements in the array, see numpy.add for more.",
        "A link to a page, with emphasis on the middle of the sentence.",
    ]


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def test_own_files_are_taken_as_they_are_in_order_of_name(tmp_path: Path) -> None:
    row = json.dumps({"text": "some text"}).encode() + b"\n"
    source = write(
        tmp_path / "mine",
        {
            "a.txt": b"One.\n\nTwo.\n",
            "b.jsonl": row,
            "c.txt.gz": gzip.compress(b"Three.\n"),
            "d.jsonl.gz": gzip.compress(row),
            "ignored.doc": b"1,2",
        },
    )
    parts = from_folder(str(source), tmp_path / "out", partitions=DAYS)
    assert [(part.files, part.documents) for part in parts] == [(2, 3), (2, 2)]
    assert contents(tmp_path / "out") == {
        f"{DAYS[0]}/00000-a.txt": b"One.\n\nTwo.\n",
        f"{DAYS[0]}/00001-b.jsonl": row,
        f"{DAYS[1]}/00000-c.txt.gz": (source / "c.txt.gz").read_bytes(),
        f"{DAYS[1]}/00001-d.jsonl.gz": (source / "d.jsonl.gz").read_bytes(),
    }


def test_own_files_may_be_given_as_a_pattern(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "mine", {f"{n}.text": b"Some text.\n" for n in range(3)})
    from_folder(f"{source}/*.text", tmp_path / "absolute", partitions=DAYS)
    monkeypatch.chdir(tmp_path)
    from_folder("mine/?.text", tmp_path / "relative", partitions=DAYS)
    assert contents(tmp_path / "absolute") == contents(tmp_path / "relative")
    assert len(contents(tmp_path / "relative")) == 3


def test_files_of_the_same_name_are_kept_apart(tmp_path: Path) -> None:
    for name in "abcd":
        write(tmp_path / name, {"notes.txt": name.encode()})
    from_folder(f"{tmp_path}/?/notes.txt", tmp_path / "out", partitions=DAYS)
    assert sorted(contents(tmp_path / "out").values()) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("name", "data", "halves"),
    [
        ("a.txt", b"1\n1\n\n2\r\n\n\n3", [b"1\n1\n\n", b"2\n\n3\n\n"]),
        (
            "a.jsonl",
            b'{"text": "x"}\n\n{"text": "y"}\n',
            [b'{"text": "x"}\n\n', b'{"text": "y"}\n\n'],
        ),
        (
            "a.csv",
            b'id,text\n1,"x\ny"\n2,z\n',
            [b'{"text": "x\\ny"}\n', b'{"text": "z"}\n'],
        ),
    ],
)
def test_single_file_is_cut_between_documents(
    tmp_path: Path, name: str, data: bytes, halves: list[bytes], packed: bool
) -> None:
    source = tmp_path / (name + ".gz" if packed else name)
    source.write_bytes(gzip.compress(data) if packed else data)
    parts = from_folder(str(source), tmp_path / "out", partitions=DAYS)
    assert contents(tmp_path / "out") == {
        f"{day}/{name.replace('.csv', '.jsonl')}": half
        for day, half in zip(DAYS, halves, strict=True)
    }
    assert all(part.documents for part in parts)


@pytest.mark.parametrize(
    ("files", "source", "expected"),
    [
        ({}, "", "has no files"),
        ({"a.doc": b"1"}, "", "only others such as a.doc"),
        ({"a.txt": b"x"}, "/nowhere", "no such folder, and no file matches"),
        ({"a.txt": b"x"}, "/*.csv", "no file matches"),
        ({"a.txt": b"text", "b.txt": bytes(range(256))}, "", "b.txt: binary_file"),
        ({"a.gz": gzip.compress(b"x" * 99)[:-3]}, "", "a.gz: truncated_gzip"),
        ({"a.csv": b"id,body\n1,x", "b.txt": b"x"}, "", "a.csv: missing_column: no column 'text'"),
        ({"a.csv": b"id,text\n1,x\n2,y\n3"}, "", "a.csv: line 4: 1 columns; the header has 2"),
        ({"a.txt": b"", "b.txt": b"\n"}, "", "no document in them"),
        ({"a.txt": b"x", "b.txt": b"\xff\xff x"}, "", "b.txt: no document can be read; line 1"),
        ({"a.txt": b"one document"}, "", "has 1 documents, which is not enough for 2"),
        ({"a.txt": b"text", "b.txt": b""}, "", "would get no document"),
    ],
)
def test_unusable_own_text_is_refused_by_name(
    tmp_path: Path, files: dict[str, bytes], source: str, expected: str
) -> None:
    folder = write(tmp_path / "mine", files)
    with pytest.raises(CorpusError) as caught:
        from_folder(f"{folder}{source}", tmp_path / "out", partitions=DAYS)
    assert expected in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_all_unusable_files_are_named_at_once(tmp_path: Path) -> None:
    folder = write(tmp_path / "mine", {"a.txt": b"x", "b.txt": b"\xff\xff", "c.txt": b"\xfe"})
    with pytest.raises(CorpusError) as caught:
        from_folder(str(folder), tmp_path / "out", partitions=DAYS)
    assert [line.partition(":")[0][-5:] for line in str(caught.value).splitlines()] == [
        "b.txt",
        "c.txt",
    ]


@pytest.mark.parametrize("name", ["mine", "mine/a.txt"])
def test_what_may_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = write(tmp_path / "mine", {"a.txt": b"x", "b.txt": b"y"})
    closed = tmp_path / name

    # Root may read everything.
    def refuse(path: Path, *arguments: object) -> object:
        if path == closed:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return original(path, *arguments)

    method = "iterdir" if closed.is_dir() else "open"
    original = getattr(Path, method)
    monkeypatch.setattr(Path, method, refuse)
    with pytest.raises(CorpusError, match=f"{closed}: it may not be read"):
        from_folder(str(folder), tmp_path / "out", partitions=DAYS)


def test_too_few_files_for_many_partitions_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "mine", {"a.txt": b"x", "b.txt": b"y"})
    with pytest.raises(CorpusError, match="2 files for 3 partitions"):
        from_folder(str(folder), tmp_path / "out", partitions=("a", "b", "c"))


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    arguments = [f"--output={out}", "--partitions=d1,d2", "--max-mb=0.2"]
    assert corpus.main(arguments) == 0
    assert [line[:3] for line in capsys.readouterr().out.splitlines()] == ["d1:", "d2:"]
    assert corpus.main(arguments) == 1
    assert "exists already" in capsys.readouterr().err
    write(tmp_path / "mine", {"a.txt": b"x\n\ny"})
    own = [f"--output={tmp_path / 'other'}", f"--source={tmp_path / 'mine'}"]
    assert corpus.main(own) == 0
