from __future__ import annotations

import io
import random
import zlib

import pytest

from corpus.text.compression import BLOCK_BYTES, read_blocks
from corpus.text.drops import DropReason, RejectedFileError
from tests.corpus.input_bytes import COMPRESS, NAMES

KINDS = list(COMPRESS)
TEXT = " ".join(str(n * n) for n in range(20_000)).encode()


def unpack(data: bytes) -> bytes:
    return b"".join(read_blocks(io.BytesIO(data)))


def refusal(data: bytes) -> RejectedFileError:
    with pytest.raises(RejectedFileError) as caught:
        unpack(data)
    return caught.value


class Dribble:
    """Returns a few bytes at once, as a slow connection does."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def read(self, size: int) -> bytes:
        return self._data.read(min(5, size))


def test_plain_bytes_pass_through() -> None:
    assert unpack(TEXT) == TEXT
    assert unpack(b"") == b""
    assert unpack(b"a") == b"a"


@pytest.mark.parametrize("kind", KINDS)
def test_compression_is_found_by_content(kind: str) -> None:
    assert unpack(COMPRESS[kind](TEXT)) == TEXT
    assert unpack(COMPRESS[kind](b"")) == b""


@pytest.mark.parametrize("kind", KINDS)
def test_it_does_not_matter_how_much_the_source_returns_at_once(kind: str) -> None:
    packed = COMPRESS[kind](TEXT[:3000])
    assert b"".join(read_blocks(Dribble(packed))) == TEXT[:3000]  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_several_streams_are_read_as_one(kind: str) -> None:
    packed = COMPRESS[kind](b"") + COMPRESS[kind](TEXT) + COMPRESS[kind](b"end")
    assert unpack(packed) == TEXT + b"end"


@pytest.mark.parametrize("kind", KINDS)
def test_several_streams_of_many_blocks_are_read_as_one(kind: str) -> None:
    part = b"word " * (BLOCK_BYTES // 2)
    assert unpack(COMPRESS[kind](part) * 3) == part * 3


@pytest.mark.parametrize("kind", KINDS)
def test_zeros_may_stand_behind_a_stream(kind: str) -> None:
    assert unpack(COMPRESS[kind](b"a") + bytes(512) + COMPRESS[kind](b"b") + bytes(512)) == b"ab"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cut", [1, 4, 5000])
def test_cut_stream_is_rejected(kind: str, cut: int) -> None:
    error = refusal(COMPRESS[kind](TEXT)[:-cut])
    assert error.reason == f"truncated_{kind}"
    assert error.detail == f"the {NAMES[kind]} data ends before its end mark"
    assert 0 <= error.offset <= len(TEXT)


@pytest.mark.parametrize("kind", KINDS)
def test_cut_second_stream_is_rejected(kind: str) -> None:
    packed = COMPRESS[kind](TEXT)
    error = refusal(packed + packed[:-1])
    assert error.reason == f"truncated_{kind}"
    assert error.offset == 2 * len(TEXT)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", [0.3, 0.6, 0.999])
def test_damaged_stream_is_rejected(kind: str, part: float) -> None:
    packed = bytearray(COMPRESS[kind](TEXT))
    packed[int(part * len(packed))] ^= 0xFF
    error = refusal(bytes(packed))
    assert error.reason == f"corrupt_{kind}"
    assert error.detail


@pytest.mark.parametrize("kind", KINDS)
def test_something_else_behind_a_stream_is_rejected(kind: str) -> None:
    assert refusal(COMPRESS[kind](TEXT) + b"garbage " * 4).reason == f"corrupt_{kind}"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_unpacked_at_once_is_bounded(kind: str) -> None:
    packed = COMPRESS[kind](bytes(40 * BLOCK_BYTES))
    sizes = [len(block) for block in read_blocks(io.BytesIO(packed))]
    assert sum(sizes) == 40 * BLOCK_BYTES
    assert max(sizes) <= 16 * BLOCK_BYTES


def test_errors_of_the_source_are_not_taken_for_damage() -> None:
    class Broken:
        def __init__(self) -> None:
            self._parts = [zlib.compress(random.Random(1).randbytes(10_000), wbits=31)[:5000]]

        def read(self, size: int) -> bytes:
            if not self._parts:
                raise OSError("connection lost")
            return self._parts.pop()

    with pytest.raises(OSError, match="connection lost"):
        list(read_blocks(Broken()))  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [b"BZhello", b"BZh", b"BZh9 is how it begins"])
def test_text_is_not_taken_for_bzip2(text: bytes) -> None:
    assert unpack(text) == text


def test_skippable_frame_may_come_first() -> None:
    skippable = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"note"
    assert unpack(skippable + COMPRESS["zstd"](b"text")) == b"text"


def test_every_reason_is_known() -> None:
    assert {f"{what}_{kind}" for what in ("truncated", "corrupt") for kind in KINDS} <= set(
        DropReason
    )
