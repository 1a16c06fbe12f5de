"""An input file while it is read: how far, and whether it stays what it was."""

from __future__ import annotations

from typing import BinaryIO

from corpus.text.reading import HashingStream


class InputChangedError(RuntimeError):
    """An input file was written to while it was read; running again may help."""

    def __init__(self, uri: str) -> None:
        super().__init__(
            f"{uri} changed while it was read. Put files into a partition whole: write them "
            "elsewhere, then move them."
        )


class MeteredStream(HashingStream):
    """Passes a stream through, hashes it and counts its bytes."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__(stream)
        self.bytes_read = 0

    def read(self, size: int = -1) -> bytes:
        """Return up to so many bytes; none at the end."""
        data = super().read(size)
        self.bytes_read += len(data)
        return data
