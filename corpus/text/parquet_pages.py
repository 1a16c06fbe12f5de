"""Determines how large the pages of a Parquet file become, before a library unpacks them.

A page is unpacked whole, so a few kilobytes that are compressed well can take gigabytes of memory.
Only each page's own header has the unpacked size; see "Thrift definitions" of the Parquet format
(apache/parquet-format, ``parquet.thrift``). Arrow does not expose it, so the few fields that are
needed are read here, in Thrift's compact protocol.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Collection, Iterator
from typing import Any, BinaryIO

MAX_PAGE_BYTES = 256 << 20
"""Writers aim at 1 MiB. A page of 1,024 long documents, the least that some write, is smaller."""

_TAIL = struct.Struct("<I4s")
_MAGIC = b"PAR1"
_HEADER_BYTES = (1 << 14, 1 << 24)
"""Bytes to read for a page's header: nearly always enough, and the maximum, as its statistics may
hold a value."""
_MAX_DEPTH = 32

# The compact protocol's types.
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = (
    *(0, 1, 2, 3),
    *(7, 8, 9, 10, 11, 12),
)
_INTEGERS = (4, 5, 6)
_LONG_LIST = 15
# Field numbers of parquet.thrift.
_FILE_ROW_GROUPS, _GROUP_COLUMNS, _CHUNK_META = 4, 1, 3
_META_PATH, _META_COMPRESSED, _META_DATA, _META_DICTIONARY = 3, 7, 9, 11
_PAGE_UNPACKED, _PAGE_PACKED = 2, 3


class PageError(ValueError):
    """The file's own directory or a page's header makes no sense."""


def largest_page(file: BinaryIO, columns: Collection[str]) -> int:
    """Return the unpacked bytes of the largest page of some columns; 0 if there is none.

    Reads the directory at the file's end, and each page's header. The file's position is restored.

    :param columns: names at the top level of the schema.
    :raises PageError: the file is damaged.
    :raises OSError: it cannot be read.
    """
    place = file.tell()
    try:
        return max(_unpacked_sizes(file, columns), default=0)
    except (AttributeError, IndexError, KeyError, TypeError, struct.error) as error:
        raise PageError(f"its directory makes no sense ({type(error).__name__})") from None
    finally:
        file.seek(place)


def _unpacked_sizes(file: BinaryIO, columns: Collection[str]) -> Iterator[int]:
    end = file.seek(0, os.SEEK_END)
    file.seek(end - _TAIL.size)
    length, magic = _TAIL.unpack(file.read(_TAIL.size))
    start = end - _TAIL.size - length
    if magic != _MAGIC or start < 0:
        raise PageError("it does not end as a Parquet file does")
    file.seek(start)
    directory = _Reader(file.read(length)).struct()
    for group in directory.get(_FILE_ROW_GROUPS, []):
        for chunk in group[_GROUP_COLUMNS]:
            meta = chunk[_CHUNK_META]
            if meta[_META_PATH][0].decode(errors="replace") in columns:
                yield from _pages(file, meta, start)


def _pages(file: BinaryIO, meta: dict[int, Any], directory: int) -> Iterator[int]:
    # Without rows there may be no page, or a dictionary alone.
    offsets = [place for place in (meta[_META_DATA], meta.get(_META_DICTIONARY)) if place]
    if not offsets:
        return
    place = min(offsets)
    end = place + meta[_META_COMPRESSED]
    if place < len(_MAGIC) or end > directory:
        raise PageError("a column lies outside of it")
    while place < end:
        header, length = _page_header(file, place, end)
        if min(header[_PAGE_UNPACKED], header[_PAGE_PACKED]) < 0:
            raise PageError("a page has less than no bytes")
        yield header[_PAGE_UNPACKED]
        place += length + header[_PAGE_PACKED]


def _page_header(file: BinaryIO, place: int, end: int) -> tuple[dict[int, Any], int]:
    """Return the fields of a page's header, and how long it is."""
    for size in _HEADER_BYTES:
        file.seek(place)
        reader = _Reader(file.read(min(size, end - place)))
        try:
            return reader.struct(), reader.place
        except IndexError:
            if size == _HEADER_BYTES[-1]:
                raise
    raise AssertionError  # pragma: no cover


class _Reader:
    """Reads structs of the compact protocol, as dictionaries by field number.

    :raises IndexError: the bytes end before the struct does.
    :raises PageError: they are no such struct.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.place = 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) != _STOP:
            number = number + (head >> 4) if head >> 4 else self._integer()
            fields[number] = self._value(head & 0x0F, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        """Return the value of a field; the value of a Boolean is its type."""
        return kind == _TRUE if kind in (_TRUE, _FALSE) else self._item(kind, depth)

    def _item(self, kind: int, depth: int) -> Any:
        """Return an item of a list, or the value of a field that is not a Boolean."""
        if depth > _MAX_DEPTH:
            raise PageError("its directory is nested too deeply")
        readers: dict[int, Callable[[], Any]] = {
            **dict.fromkeys((_TRUE, _FALSE, _BYTE), self._byte),
            **dict.fromkeys(_INTEGERS, self._integer),
            _DOUBLE: lambda: self._bytes(8),
            _BINARY: lambda: self._bytes(self._varint()),
            **dict.fromkeys((_LIST, _SET), lambda: self._list(depth + 1)),
            _MAP: lambda: self._map(depth + 1),
            _STRUCT: lambda: self.struct(depth + 1),
        }
        if kind not in readers:
            raise PageError(f"its directory has a field of type {kind}")
        return readers[kind]()

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        count = head >> 4 if head >> 4 != _LONG_LIST else self._varint()
        return [self._item(head & 0x0F, depth) for _ in range(count)]

    def _map(self, depth: int) -> None:
        """Skip a map: no field that is needed here is one."""
        count = self._varint()
        kinds = self._byte() if count else 0
        for _ in range(count):
            self._item(kinds >> 4, depth)
            self._item(kinds & 0x0F, depth)

    def _byte(self) -> int:
        found = self.data[self.place]
        self.place += 1
        return found

    def _bytes(self, length: int) -> bytes:
        found = self.data[self.place : self.place + length]
        if len(found) != length:
            raise IndexError
        self.place += length
        return found

    def _varint(self) -> int:
        found = shift = 0
        while True:
            byte = self._byte()
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found
            shift += 7
            if shift > 63:
                raise PageError("its directory has a number of too many bytes")

    def _integer(self) -> int:
        found = self._varint()
        return (found >> 1) ^ -(found & 1)
