"""What a job says when the disk is full: path, need and remedy, and not where it broke."""

from __future__ import annotations

import errno
import io
import os
import tempfile

import pytest

from pipeline_store.local import UnwritableError
from training.runtime.job import run_job


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UnwritableError(errno.ENOSPC, "no room; make room", "/store/x"), "no room; make room"),
        (UnwritableError(errno.EROFS, "read-only; mount it", "/store/x"), "read-only; mount it"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp/x"), "TMPDIR"),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), tempfile.gettempdir()),
    ],
)
def test_a_disk_that_cannot_be_written_is_no_traceback(error: OSError, said: str) -> None:
    def job() -> None:
        raise error

    log = io.StringIO()
    assert run_job(job, log) == 45
    assert said in log.getvalue()
    assert "Traceback" not in log.getvalue()


def test_another_failure_shows_where_it_broke() -> None:
    def job() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    log = io.StringIO()
    assert run_job(job, log) == 45
    assert "Traceback" in log.getvalue()
