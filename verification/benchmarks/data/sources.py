"""Finds the files of this machine that hold text, and reads blocks of text from them."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
import re
import sysconfig
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from verification.benchmarks.data import extract
from verification.benchmarks.data.blocks import Block, classify

SYSTEM_ROOTS = (
    *("/usr/share/doc", "/usr/share/man", "/usr/share/info", "/usr/share/locale"),
    *("/usr/share/perl", "/usr/share/perl5", "/usr/lib/python3", "/usr/include"),
)
_MAX_FILE_BYTES = 20_000_000
_DECOMPRESS = {".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress}
_SKIPPED_FOLDERS = {"__pycache__", ".git"}
_PLAIN = {
    *("", ".txt", ".md", ".rst", ".text", ".info", ".pod", ".pm", ".pl", ".debian", ".news"),
    *(".csv", ".tsv", ".yaml", ".yml", ".log", ".ini", ".cfg", ".tex", ".org", ".adoc"),
}
_C = {".h", ".hpp", ".hh", ".hxx", ".inc", ".cuh", ".proto"}
_MANUAL = re.compile(r"\.[1-9][a-z]*$")
# Every package has its own copy of these files; they are tables and not text.
_SKIPPED_NAMES = {"RECORD", "INSTALLER", "WHEEL", "REQUESTED", "copyright.gz"}
# About one Python file in this many also gives its code to the noisy part.
_CODE_EVERY = 8


class Source(NamedTuple):
    """A file that may hold text, and the group in which it is counted."""

    group: str
    path: str
    bytes: int


def installation_roots() -> dict[str, list[Path]]:
    """Return the folders to search, by group; folders that do not exist are left out."""
    paths = sysconfig.get_paths()
    site = dict.fromkeys((paths["purelib"], paths["platlib"]))
    roots = {
        "python packages": [Path(name) for name in site],
        "standard library": [Path(paths["stdlib"])],
        "system": [Path(name) for name in SYSTEM_ROOTS],
    }
    return {name: [p for p in folders if p.is_dir()] for name, folders in roots.items()}


def find_sources(roots: dict[str, list[Path]]) -> list[Source]:
    """Return the files worth reading, in a fixed order."""
    found: list[Source] = []
    for group, folders in roots.items():
        for folder in folders:
            found.extend(Source(group, *entry) for entry in _walk(str(folder)))
    return found


def _walk(folder: str) -> Iterator[tuple[str, int]]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_symlink():
            continue
        if entry.is_dir():
            # The standard library has its own site-packages, which are not this environment's.
            if entry.name not in _SKIPPED_FOLDERS and entry.name != "site-packages":
                yield from _walk(entry.path)
        elif entry.name not in _SKIPPED_NAMES and _kind(entry.path):
            size = entry.stat().st_size
            if 100 <= size <= _MAX_FILE_BYTES:
                yield entry.path, size


def fingerprint(sources: Iterable[Source]) -> str:
    """Return a hash that stays the same while the same files are installed."""
    digest = hashlib.sha256()
    for source in sources:
        digest.update(f"{source.path}\t{source.bytes}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _kind(path: str) -> str | None:
    """Return how a file is to be read; None: it holds no text."""
    name = path.removesuffix(".gz").removesuffix(".bz2").removesuffix(".xz")
    suffix = os.path.splitext(name)[1].lower()
    by_suffix = {".py": "python", ".pyi": "python", ".mo": "catalogue", ".json": "json"}
    by_suffix |= {".html": "html", ".htm": "html"}
    if suffix in by_suffix:
        return by_suffix[suffix]
    if suffix in _C or ("/include/" in name and not suffix):
        return "c"
    if "/man/" in name and _MANUAL.search(name):
        return "manual"
    base = os.path.basename(name).lower()
    if suffix in _PLAIN or base.startswith(("readme", "changelog", "news", "metadata", "copying")):
        return "plain"
    return "plain" if _MANUAL.search(suffix) and "/doc/" in name else None


def read_blocks(source: Source) -> list[Block]:
    """Return the usable blocks of a file; none for a file without text."""
    data = _read(source.path)
    kind = _kind(source.path)
    if kind == "catalogue":
        return classify(extract.catalogue_text(data))
    if b"\0" in data[:4096]:
        return []
    text = data.decode("utf-8", errors="replace").replace("\r\n", "\n").replace("\0", "")
    if kind == "python":
        found = classify(extract.python_text(text), prose_only=True)
        if zlib.crc32(source.path.encode(errors="surrogateescape")) % _CODE_EVERY == 0:
            found += classify(extract.blocks(text), noise_only=True)
        return found
    readers = {
        "c": extract.c_text,
        "html": extract.html_text,
        "json": extract.json_text,
        "manual": extract.manual_text,
    }
    return classify(readers.get(kind or "", extract.blocks)(text))


def _read(path: str) -> bytes:
    try:
        data = Path(path).read_bytes()
        decompress = _DECOMPRESS.get(os.path.splitext(path)[1])
        return decompress(data) if decompress else data
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError):
        # Unreadable or damaged files are skipped.
        return b""
