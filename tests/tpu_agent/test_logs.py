"""Log chunks put together are the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_store import uris
from pipeline_store.formats import ExitKind
from pipeline_store.layout import AttemptLayout
from tests.tpu_agent.world import World
from tpu_agent import logs
from tpu_agent.logs import LogUploader, tail
from tpu_agent.state import JobFolder
from tpu_agent.store import StoreUnavailableError

JOB = "010-train"


@pytest.fixture
def mailbox(tmp_path: Path) -> AttemptLayout:
    return AttemptLayout(str(tmp_path / "mailbox"))


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    (tmp_path / "job").mkdir()
    return JobFolder(tmp_path / "job")


def uploader(folder: JobFolder, mailbox: AttemptLayout) -> LogUploader:
    return LogUploader(folder, mailbox, 0, JOB)


def chunks(mailbox: AttemptLayout) -> list[str]:
    prefix = mailbox.log_chunk(0, JOB, 0).rpartition("/")[0]
    return [uris.read(uri).decode() for uri in uris.list_files(prefix)]


def write(folder: JobFolder, text: str | bytes) -> None:
    with folder.log.open("ab") as file:
        file.write(text.encode() if isinstance(text, str) else text)


def test_chunks_end_with_lines_until_the_job_has_ended(
    folder: JobFolder, mailbox: AttemptLayout
) -> None:
    log = uploader(folder, mailbox)
    log.upload()
    write(folder, "one\ntw")
    log.upload()
    log.upload()
    assert chunks(mailbox) == ["one\n"]
    write(folder, "o\nthree")
    log.upload(everything=True)
    assert chunks(mailbox) == ["one\n", "two\n", "three"]
    assert log.chunks == 3


@pytest.mark.parametrize("sign", ["x", "ä", "€", "𝄞"])
@pytest.mark.parametrize("offset", [0, 1, 2, 3])
def test_a_long_line_is_cut_between_characters(
    folder: JobFolder, mailbox: AttemptLayout, sign: str, offset: int
) -> None:
    text = "x" * offset + sign * logs.CHUNK_BYTES
    write(folder, text)
    uploader(folder, mailbox).upload(everything=True)
    found = chunks(mailbox)
    assert len(found) > 1 or sign == "x"
    assert all(len(chunk.encode()) <= logs.CHUNK_BYTES for chunk in found)
    assert "".join(found) == text


def test_bytes_that_are_no_text_do_not_stop_the_log(
    folder: JobFolder, mailbox: AttemptLayout
) -> None:
    write(folder, b"\xff\xfe\n" + b"\x80" * (logs.CHUNK_BYTES + 10) + b"\nend\n")
    uploader(folder, mailbox).upload(everything=True)
    text = "".join(chunks(mailbox))
    assert text.startswith("\ufffd\ufffd\n")
    assert text.endswith("\ufffd\nend\n")


def test_a_new_agent_sends_the_undecided_chunk_again_unchanged(
    folder: JobFolder, mailbox: AttemptLayout
) -> None:
    root = Path(mailbox.root)
    root.touch()  # not a folder: the store fails
    write(folder, "one\n")
    log = uploader(folder, mailbox)
    with pytest.raises(StoreUnavailableError, match=r"000000\.txt"):
        log.upload()
    assert log.chunks == 0
    root.unlink()
    write(folder, "two\n")
    uploader(folder, mailbox).upload()
    assert chunks(mailbox) == ["one\n", "two\n"]
    uploader(folder, mailbox).upload()
    assert chunks(mailbox) == ["one\n", "two\n"]


def test_a_flood_loses_its_middle_and_says_so(
    folder: JobFolder, mailbox: AttemptLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "BACKLOG_BYTES", 1000)
    write(folder, "first\n")
    log = uploader(folder, mailbox)
    log.upload()
    write(folder, "x" * 4999 + "\n" + "y" * 993 + "\nlast\n")
    log.upload(everything=True)
    assert "".join(chunks(mailbox)) == (
        "first\n\n[agent] 4999 bytes of log left out\n\n" + "y" * 993 + "\nlast\n"
    )


def test_tail_of_a_log(folder: JobFolder) -> None:
    assert tail(folder.log, 2) == ""
    write(folder, "x" * 100_000 + "\none\ntwo\nthree\n")
    assert tail(folder.log, 2) == "two\nthree"


def test_the_whole_log_of_a_job_arrives(world: World) -> None:
    world.add_job(JOB, "talks")
    world.start_agent()
    status = world.wait_status(JOB)
    assert status.exit_kind is ExitKind.OK
    line = "äöü€𝄞 " * 20000 + "\n"
    assert world.log(JOB) == line * 5 + "not UTF-8: \ufffd\nno line end €"
    prefix = world.mailbox.log_chunk(0, JOB, 0).rpartition("/")[0]
    assert status.log_chunks == len(uris.list_files(prefix)) > 1
