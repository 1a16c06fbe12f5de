from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest

from verification.benchmarks.data import extract
from verification.benchmarks.data.blocks import Part, classify
from verification.benchmarks.data.corpus import Corpus, CorpusTooSmallError, gather

PROSE = "The reservation {n} was {w} before anybody looked at the {w} ledger of the {w} harbour."
WORDS = ("amber", "basalt", "copper", "damson", "ebony", "flint", "garnet", "hazel", "indigo")


def prose(seed: int, paragraphs: int = 12) -> str:
    """Paragraphs that differ in words, not only in numbers."""
    lines = []
    for number in range(paragraphs):
        words = [WORDS[(seed * paragraphs + number) // 9**place % 9] for place in range(4)]
        lines.append(PROSE.format(n=" ".join(words), w=words[0]))
    return "\n\n".join(lines)


def catalogue(messages: list[str]) -> bytes:
    """A compiled gettext catalogue; only the translations matter here."""
    texts = [b"Content-Type: text/plain; charset=UTF-8", *(m.encode() for m in messages)]
    start = 28 + 8 * len(texts)
    table = b""
    for text in texts:
        table += struct.pack("<2I", len(text), start)
        start += len(text) + 1
    head = struct.pack("<7I", 0x950412DE, 0, len(texts), 28, 28, 0, 0)
    return head + table + b"".join(text + b"\0" for text in texts)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    docs = root / "doc"
    docs.mkdir(parents=True)
    (docs / "first.txt").write_text(prose(1))
    (docs / "copy.txt").write_text(prose(1))
    (docs / "packed.txt.gz").write_bytes(gzip.compress(prose(2).encode()))
    (docs / "damaged.txt.gz").write_bytes(gzip.compress(prose(9).encode())[:-20])
    (docs / "binary.txt").write_bytes(b"\x7fELF\0\0" * 100)
    (docs / "module.py").write_text(f'"""{prose(3)}"""\nCODE = {{"a": 1}}\n# {prose(4, 1)}\n')
    (docs / "locale.mo").write_bytes(
        catalogue(
            [f"Файл номер {word} не найден в каталоге" for word in ("ноль", "сто", "пять")] * 3
        )
    )
    (docs / "table.csv").write_text("".join(f"{n}, {n * n}; x={n % 7}\n" for n in range(90)))
    return root


def texts(corpus: Corpus) -> list[str]:
    shards = [path.read_text() for path in corpus.take(None)]
    return [document for shard in shards for document in shard.strip().split("\n\n")]


def gathered(tree: Path, folder: Path, shard_bytes: int = 400) -> Corpus:
    return gather({"here": [tree]}, folder, shard_bytes=shard_bytes)


def test_each_text_is_taken_once(tree: Path, tmp_path: Path) -> None:
    corpus = gathered(tree, tmp_path / "state")
    whole = corpus.held_out.read_text() + "\n".join(texts(corpus))
    for seed in (1, 2, 3):
        for paragraph in prose(seed).split("\n\n"):
            assert whole.count(paragraph) == 1
    assert "ELF" not in whole
    assert corpus.unique_documents_share == 1.0
    assert corpus.new_text_share < 1.0
    assert len(texts(corpus)) == corpus.documents
    assert sum(part.bytes for part in corpus.parts.values()) == corpus.bytes


def test_vocabulary_text_is_in_no_shard(tmp_path: Path) -> None:
    folder = tmp_path / "tree"
    folder.mkdir()
    for seed in range(100):
        (folder / f"{seed}.txt").write_text(prose(seed))
    corpus = gathered(folder, tmp_path / "state", shard_bytes=20_000)
    held_out = corpus.held_out.read_text().strip().split("\n\n")
    assert held_out
    assert not set(held_out) & set(texts(corpus))
    assert len(held_out) + corpus.documents == 100
    assert len(corpus.shards) > 1


def test_same_files_give_the_same_corpus_and_are_read_once(tree: Path, tmp_path: Path) -> None:
    first = gathered(tree, tmp_path / "one")
    second = gathered(tree, tmp_path / "two")
    assert first == second
    assert texts(first) == texts(second)
    (first.folder / first.shards[0]).write_text("kept")
    assert texts(gathered(tree, tmp_path / "one"))[0] == "kept"
    (tree / "doc" / "new.txt").write_text(prose(5))
    third = gathered(tree, tmp_path / "one")
    assert third.documents == first.documents + 1
    assert not first.folder.exists()


def test_too_little_text_is_said(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(CorpusTooSmallError, match="is 0 MB, not 10 MB"):
        gathered(tree, tmp_path / "state").take(10)
    with pytest.raises(CorpusTooSmallError, match="no text"):
        gathered(tmp_path / "nowhere", tmp_path / "other")


def test_python_gives_docstrings_and_comments() -> None:
    source = (
        'def f():\n    """Says \\"so\\" much."""\n    x = "# no comment"\n    # One\n    # two\n'
        "    return '''kept as text'''\n"
    )
    found = [" ".join(block.split()) for block in extract.python_text(source)]
    assert found == ['Says \\"so\\" much.', "One two", "kept as text"]


def test_manual_and_page_and_header_give_paragraphs() -> None:
    manual = '.SH NAME\nls \\- list \\fIdirectory\\fP contents\n.PP\n.B "ls"\nlists\n'
    assert [b.strip() for b in extract.manual_text(manual)] == [
        "ls - list directory contents",
        "ls\nlists",
    ]
    page = "<html><style>p {}</style><p>one &amp; <b>two</b></p><p>three</p></html>"
    assert [b.strip() for b in extract.html_text(page)] == ["one & two", "three"]
    header = "/** A queue.\n *\n * Of things. */\nint x; // ignored\n// Two\n// lines\n"
    assert [" ".join(b.split()) for b in extract.c_text(header)] == [
        "A queue.",
        "Of things.",
        "Two lines",
    ]


def test_catalogue_gives_translations_and_garbage_nothing() -> None:
    assert list(extract.catalogue_text(catalogue(["eins", "zwei"]))) == ["eins", "zwei"]
    assert list(extract.catalogue_text(b"\xde\x12\x04\x95" + b"\xff" * 40)) == []
    assert list(extract.catalogue_text(b"text")) == []


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (prose(1, 1), Part.ENGLISH),
        ("Файл не найден: проверьте, что он есть в каталоге.", Part.OTHER_SCRIPT),
        ("x = [a for a in b if a > 0]; print(x, y, z)", Part.NOISY),
        ("Der Schlüssel wurde für diese Änderung nicht länger benötigt, daher gelöscht.", None),
    ],
)
def test_blocks_are_told_apart(text: str, part: Part | None) -> None:
    assert [block.part for block in classify([text])] == ([] if part is None else [part])


def test_sentences_become_lines() -> None:
    (block,) = classify(
        ["One sentence is here, as it was. Another follows\nit. And `a third` one."]
    )
    assert block.lines == [
        "One sentence is here, as it was.",
        "Another follows it.",
        "And a third one.",
    ]
