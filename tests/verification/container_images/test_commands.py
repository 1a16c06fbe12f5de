"""Commands that fail say why; long ones can be followed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from verification.container_images.commands import ImageError, run, run_long

FAIL = [sys.executable, "-c", "import sys; print('said'); sys.exit('why')"]


def test_output_is_returned_and_kept(tmp_path: Path) -> None:
    program = "import sys; print('out'); print('message', file=sys.stderr)"
    log = tmp_path / "log"
    assert run([sys.executable, "-c", program], log=log) == "out\n"
    assert log.read_text() == "out\nmessage\n"


def test_a_failure_has_the_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(ImageError, match=r"exit status 1\n(.*\n)?why"):
        run(FAIL)
    with pytest.raises(ImageError, match=r"exit status 1\n(.*\n)?why"):
        run_long(FAIL, log)
    assert sorted(log.read_text().split()) == ["said", "why"]


def test_a_program_that_is_missing(tmp_path: Path) -> None:
    for start in (lambda: run(["no-such"]), lambda: run_long(["no-such"], tmp_path / "log")):
        with pytest.raises(ImageError, match="no-such is not installed; run scripts/need-buildah"):
            start()
