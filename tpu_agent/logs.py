"""Copies a growing log file into the mailbox in chunks that are never changed."""

from __future__ import annotations

import threading
from pathlib import Path

from pipeline_store import uris
from pipeline_store.layout import AttemptLayout
from tpu_agent.state import JobFolder, LogRecord, remember
from tpu_agent.store import store_call

CHUNK_BYTES = 256 * 1024
CHUNKS_PER_UPLOAD = 8
BACKLOG_BYTES = 16 * 1024 * 1024
_TAIL_BYTES = 64 * 1024
_SEARCHED_BYTES = 1024 * 1024


class LogUploader:
    """Uploader of a log in chunks without gap or overlap, even across restarts of the agent.

    Chunks end with a line's end if possible and never inside a character. Bytes that are not UTF-8
    become U+FFFD. If a job writes much faster than the store accepts, the middle of its log is
    missing in the mailbox, never the end, and a line says how much.
    """

    def __init__(self, folder: JobFolder, mailbox: AttemptLayout, worker: int, job_id: str) -> None:
        self._folder = folder
        self._mailbox = mailbox
        self._worker = worker
        self._job_id = job_id
        self._lock = threading.Lock()
        self._record = LogRecord.load_or_none(folder.log_record) or LogRecord()
        # It is unknown whether the last chunk of an earlier agent arrived: it is sent again.
        self._sent = max(self._record.chunks - 1, 0)

    @property
    def chunks(self) -> int:
        """Chunks in the mailbox."""
        return self._sent

    def upload(self, *, everything: bool = False) -> None:
        """Upload the new part of the log.

        :param everything: the job has ended: upload all, including an unfinished last line.
        :raises StoreUnavailableError: the rest follows with the next call.
        """
        with self._lock:
            self._send()
            uploaded = 0
            while (everything or uploaded < CHUNKS_PER_UPLOAD) and self._next_chunk(everything):
                self._send()
                uploaded += 1

    def _next_chunk(self, everything: bool) -> bool:
        """Choose the next chunk and record it; return False when there is nothing to send."""
        start = self._record.end
        skipped = size(self._folder.log) - start - BACKLOG_BYTES
        if skipped > 0:
            start += skipped
        data = _read(self._folder.log, start, CHUNK_BYTES)
        length = _cut(data, everything)
        if not length:
            return False
        self._record = LogRecord(
            chunks=self._record.chunks + 1,
            start=start,
            end=start + length,
            skipped=max(skipped, 0),
        )
        remember(self._record, self._folder.log_record)
        return True

    def _send(self) -> None:
        record = self._record
        if self._sent == record.chunks:
            return
        data = _read(self._folder.log, record.start, record.end - record.start)
        if record.skipped:
            data = f"\n[agent] {record.skipped} bytes of log left out\n".encode() + data
        uri = self._mailbox.log_chunk(self._worker, self._job_id, record.chunks - 1)
        with store_call(f"uploading {uri}"):
            uris.write(uri, data.decode(errors="replace").encode())
        self._sent = record.chunks


def tail(path: Path, lines: int) -> str:
    """Return the last lines of a log file, which need not exist."""
    if not path.exists():
        return ""
    data = _read(path, max(path.stat().st_size - _TAIL_BYTES, 0), _TAIL_BYTES)
    return "\n".join(data.decode(errors="replace").splitlines()[-lines:])


def size(path: Path) -> int:
    """Return the length of a log file in bytes; 0 when there is none."""
    return path.stat().st_size if path.exists() else 0


def since(path: Path, start: int) -> str:
    """Return the content of a log file from some byte on, at most its last MiB."""
    begin = max(start, size(path) - _SEARCHED_BYTES)
    return _read(path, begin, _SEARCHED_BYTES).decode(errors="replace")


def _read(path: Path, start: int, length: int) -> bytes:
    if not path.exists():
        return b""
    with path.open("rb") as file:
        file.seek(start)
        return file.read(length)


def _cut(data: bytes, everything: bool) -> int:
    """Return how many of these bytes to send now."""
    line_end = data.rfind(b"\n") + 1
    if line_end:
        return line_end
    if len(data) == CHUNK_BYTES:
        return _character_end(data)
    return len(data) if everything else 0


def _character_end(data: bytes) -> int:
    """Return the length without an unfinished UTF-8 character at the end."""
    for back in range(1, 5):
        byte = data[-back]
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) - back if back < needed else len(data)
        if byte < 0x80:
            break
    return len(data)
