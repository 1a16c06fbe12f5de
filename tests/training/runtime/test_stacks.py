"""A process shows where its threads are, also one in which no Python code can run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.training.jobs import ROOT

HANGS = """
import ctypes, sys, threading, time
from training.runtime import job
def helps():
    time.sleep(600)
def hangs():
    print("hangs", flush=True)
    {how}
job.answer_about_stacks()
threading.Thread(target=helps, daemon=True).start()
time.sleep(0.1)
hangs()
"""
HOLDS_THE_GIL = "ctypes.PyDLL(None).sleep(600)"


def ask(folder: Path, process: subprocess.Popen[str]) -> str:
    """Return the answer of a process, which is asked once."""
    file = folder / f"{process.pid}.txt"
    assert file.exists()
    process.send_signal(signal.SIGUSR1)
    deadline = time.monotonic() + 60
    while "in <module>" not in (text := file.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return text


@pytest.mark.parametrize("how", ["time.sleep(600)", HOLDS_THE_GIL], ids=["sleeps", "holds-the-gil"])
def test_all_threads_answer(tmp_path: Path, how: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HANGS.format(how=how)],
        cwd=ROOT,
        env=os.environ | {"REPRETRAIN_STACKS_FOLDER": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "hangs\n"
        text = ask(tmp_path, process)
        process.kill()
    assert "in helps" in text
    assert "in hangs" in text
    # The main thread is the last one.
    assert text.index("in helps") < text.index("in hangs")


def test_without_a_folder_a_signal_is_not_answered() -> None:
    code = "import os, signal\nfrom training.runtime import job\njob.answer_about_stacks()\n"
    code += "os.kill(os.getpid(), signal.SIGUSR1)"
    environment = {k: v for k, v in os.environ.items() if k != "REPRETRAIN_STACKS_FOLDER"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=False)
    assert done.returncode == -signal.SIGUSR1
