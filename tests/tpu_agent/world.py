"""A mailbox on disk, a real code bundle with small jobs in it, and agents as real processes."""

from __future__ import annotations

import dataclasses
import io
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pytest

from pipeline_store import job_signatures, uris
from pipeline_store.formats import (
    Attempt,
    Heartbeat,
    JobLimits,
    JobSpec,
    JobStatus,
    PhaseName,
    Released,
)
from pipeline_store.layout import AttemptLayout, ReservationLayout, StoreLayout
from tpu_agent import processes, runner, watch
from tpu_agent.__main__ import parse_arguments
from tpu_agent.agent import Agent
from tpu_lifecycle.boot.bundle import PACKAGES, Bundle, build_bundle

REPOSITORY = Path(__file__).resolve().parents[2]
TOKEN = "a" * 32
JOB_KEY = "b" * 64
PATIENCE = 120.0

# What every fake job does first: note its start, and whether it is alone on this machine.
_ALONE = """
import fcntl, os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
lock = (folder / "device").open("w")
alone = True
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    alone = False
with (folder / "starts").open("a") as starts:
    starts.write(f"{os.getpid()} {'alone' if alone else 'NOT ALONE'}\\n")
def saves_and_exits(number, frame):
    (folder / "saved").touch()
    print("checkpoint saved", flush=True)
    os._exit(43)
def starts():
    return len((folder / "starts").read_text().splitlines())
"""

JOBS = {
    # Writes what the agent gave it.
    "train": _ALONE
    + """
print("holder", os.environ["REPRETRAIN_HOLDER_URI"], "token", os.environ["REPRETRAIN_TOKEN"])
print("arguments", sys.argv[2:], "folder", os.getcwd())
print("to stderr", file=sys.stderr)
""",
    "progress": _ALONE
    + """
path = pathlib.Path(os.environ["REPRETRAIN_PROGRESS_FILE"])
path.with_suffix(".aside").write_text('{"step": 7, "train_steps": 10, "loss": 2.5}')
path.with_suffix(".aside").rename(path)
while not (folder / "go").exists():
    time.sleep(0.02)
""",
    # Writes what it was told of the other hosts of its slice.
    "joined": """
import json, os, pathlib, sys
told = os.environ["TF_CONFIG"]
pathlib.Path(sys.argv[1], f"joined-{json.loads(told)['task']['index']}").write_text(told)
""",
    "exits": _ALONE + "print('last words', flush=True)\nsys.exit(int(sys.argv[2]))\n",
    # Fails on one worker of a slice and waits on all others.
    "fails_on": """
import os, pathlib, sys, time, urllib.request
folder = pathlib.Path(sys.argv[1])
address = os.environ["GCE_METADATA_HOST"] + "/computeMetadata/v1/instance/attributes/"
request = urllib.request.Request("http://" + address + "agent-worker-number",
                                 headers={"Metadata-Flavor": "Google"})
if urllib.request.urlopen(request).read().decode() == sys.argv[2]:
    raise RuntimeError("chip 7 is broken")
while not (folder / "go").exists():
    time.sleep(0.1)
""",
    # Runs until it is told to go on; saves a checkpoint on SIGTERM.
    "waits": _ALONE
    + """
signal.signal(signal.SIGTERM, saves_and_exits)
print("started", flush=True)
while not (folder / "go").exists():
    time.sleep(0.02)
print("done", flush=True)
""",
    "waits_and_fails": _ALONE
    + """
print("started", flush=True)
while not (folder / "go").exists():
    time.sleep(0.02)
raise RuntimeError("chip 7 is gone")
""",
    "dies_of_sigterm": _ALONE
    + """
print("started", flush=True)
while not (folder / "go").exists():
    time.sleep(0.02)
""",
    # Its first start hangs and ignores SIGTERM, with a helper outside its process group.
    "stubborn": _ALONE
    + """
import subprocess
if starts() == 1:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                              start_new_session=True)
    (folder / "helper").write_text(str(helper.pid))
    time.sleep(600)
""",
    # Is killed by a signal as often as asked.
    "killed": _ALONE
    + """
if starts() <= int(sys.argv[2]):
    os.kill(os.getpid(), signal.SIGKILL)
print("survived", flush=True)
""",
    "talks": """
import sys
sys.stdout.buffer.write(("äöü€𝄞 " * 20000 + "\\n").encode() * 5)
sys.stdout.buffer.write(b"not UTF-8: \\xff\\n")
sys.stdout.buffer.write("no line end €".encode())
""",
    # Reports a step every 0.1 s, with the time that it says it has spent; goes on where it was.
    "steps": _ALONE
    + """
import datetime, json
signal.signal(signal.SIGTERM, saves_and_exits)
path = pathlib.Path(os.environ["REPRETRAIN_PROGRESS_FILE"])
first = datetime.datetime.now(datetime.timezone.utc).isoformat()
step = 0
while not (folder / "go").exists():
    step += 0 if (folder / "stuck").exists() else 1
    progress = {"step": step, "train_steps": 1000, "first_step": first, "stepping_seconds": step}
    path.with_suffix(".aside").write_text(json.dumps(progress))
    path.with_suffix(".aside").rename(path)
    time.sleep(0.1)
""",
    # Does some loops of steps; then as many of its starts as asked hang, in the way it is told.
    "hangs": _ALONE
    + """
import datetime, faulthandler, json, threading
file = pathlib.Path(os.environ["REPRETRAIN_STACKS_FOLDER"], f"{os.getpid()}.txt").open("w")
faulthandler.register(signal.SIGUSR1, file, all_threads=True)
signal.signal(signal.SIGTERM, saves_and_exits)
path = pathlib.Path(os.environ["REPRETRAIN_PHASE_FILE"])
entered = datetime.datetime.now(datetime.timezone.utc).isoformat()
def loop(count):
    phase = {"name": sys.argv[4], "entered": entered, "count": count}
    path.with_suffix(".aside").write_text(json.dumps(phase))
    path.with_suffix(".aside").rename(path)
    time.sleep(0.05)
def helps():
    time.sleep(600)
def sleeps():
    time.sleep(600)
def stops():
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(600)
def waits():
    count = 5
    while not (folder / "go").exists():
        loop(count := count + 1)
threading.Thread(target=helps, daemon=True).start()
for count in range(5):
    loop(count)
if starts() <= int(sys.argv[2]):
    globals()[sys.argv[3]]()
print("went on", flush=True)
""",
    # Says what it is told and ends with an exit code, or by a signal if that is negative.
    "hbm": _ALONE
    + """
print(sys.argv[3] + "\\n" + "allocation\\n" * 1000, flush=True)
if int(sys.argv[2]) < 0:
    os.kill(os.getpid(), -int(sys.argv[2]))
sys.exit(int(sys.argv[2]))
""",
    # Talks of memory and is killed; the second time it fails for another reason.
    "hbm_once": _ALONE
    + """
if starts() == 1:
    print(sys.argv[2], flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
raise RuntimeError("another reason")
""",
    # Fills the disk of the folder it is given.
    "fills": _ALONE
    + """
with open(os.path.join(sys.argv[2], "big"), "wb") as file:
    while True:
        file.write(bytes(1 << 20))
        file.flush()
""",
    "disk": "print('OSError: [Errno 28] No space left on device')\nraise SystemExit(45)\n",
    "eats": "blocks = []\nwhile True:\n    blocks.append(bytearray(8 << 20))\n",
}


def wait_for(what: str, probe: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Return the probe's first answer that counts as true."""
    end = time.monotonic() + seconds
    while not (answer := probe()):
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.02)
    return answer


def make_source(folder: Path) -> Path:
    """Return a source tree as the repository's, with small jobs in place of the trainer."""
    for package in PACKAGES:
        if package != "training":
            shutil.copytree(
                REPOSITORY / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
            )
    (folder / "training").mkdir(parents=True)
    (folder / "training/__init__.py").write_text('"""Small jobs."""\n')
    for name, text in JOBS.items():
        (folder / f"training/{name}.py").write_text(text)
    return folder


class Clock:
    """Stands in for ``datetime`` in the agent's modules; a test turns it."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def now(self, zone: tzinfo) -> datetime:
        return datetime.now(zone) + self.ahead


@dataclass
class World:
    """One attempt: its store, its bundle, its agents."""

    root: Path
    store_uri: str = ""
    expires_at: datetime = field(default_factory=lambda: datetime.now(UTC) + timedelta(minutes=10))
    agents: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = StoreLayout(self.store_uri or str(self.root / "store"))
        self.run = self.store.run("0a1b2c3d4e5f")
        self.scratch = self.root / "scratch"
        self.scratch.mkdir()
        self.bundle: Bundle = build_bundle(self.store, make_source(self.root / "source"))
        self.code = self.root / "code"
        with zipfile.ZipFile(io.BytesIO(uris.read(self.bundle.uri))) as archive:
            archive.extractall(self.code)
        (self.root / "job-key").write_text(JOB_KEY)
        self.write_attempt()

    @property
    def reservation(self) -> ReservationLayout:
        return self.run.reservation(1)

    @property
    def mailbox(self) -> AttemptLayout:
        return self.reservation.attempt(1)

    @property
    def work_dir(self) -> Path:
        return self.root / "work"

    @property
    def agent_log(self) -> str:
        return (self.root / "agent.log").read_text()

    def write_attempt(self, token: str = TOKEN) -> None:
        Attempt(
            run_key="0a1b2c3d4e5f",
            generation=1,
            attempt=1,
            token=token,
            zone="us-central1-a",
            queued_resource_id="bert-0a1b2c3d4e5f-g1-a1",
            node_id="bert-0a1b2c3d4e5f-g1-a1",
            created=datetime.now(UTC),
        ).write(self.mailbox.record)

    def release(self) -> None:
        now = datetime.now(UTC)
        Released(run_key="0a1b2c3d4e5f", generation=1, released=now, reason="test").create(
            self.reservation.released
        )

    def add_job(
        self,
        job_id: str,
        module: str,
        *arguments: str,
        deadline: datetime | None = None,
        key: str = JOB_KEY,
        **changes: Any,
    ) -> None:
        fields = {
            "job_id": job_id,
            "token": TOKEN,
            "holder_uri": self.run.holder,
            "entry_point": f"training.{module}",
            "arguments": [str(self.scratch), *arguments],
            "bundle_sha256": self.bundle.sha256,
            "max_restarts": 1,
            "deadline": deadline or self.expires_at,
        } | changes
        spec = JobSpec.model_validate(fields)
        job_signatures.sign(self.mailbox, job_id, spec.to_bytes(), key)
        assert spec.create(self.mailbox.job(job_id))

    def add_limits(self, job_id: str, **changes: Any) -> None:
        """Say that each phase of a job may stand still for a second; before the job is there."""
        seconds = {name: 1.0 for name in PhaseName if name is not PhaseName.LENDING}
        seconds[PhaseName.OTHER] = PATIENCE
        fields = {
            "max_hangs": 2,
            "workers": 1,
            "loop_floor_seconds": 1.0,
            "phase_seconds": seconds,
        } | changes
        JobLimits.model_validate(fields).write(self.mailbox.limits(job_id))

    def agent_command(self, **options: str) -> list[str]:
        given = {
            "mailbox": self.mailbox.root,
            "released-uri": self.reservation.released,
            "token": TOKEN,
            "worker": "0",
            "bundle-sha256": self.bundle.sha256,
            "expires-at": self.expires_at.isoformat(),
            "heartbeat-interval": "0.1",
            "work-dir": str(self.work_dir),
            "poll-interval": "0.1",
            "stop-grace": "5",
            "settle": "0.2",
            "job-key-file": str(self.root / "job-key"),
        } | {name.replace("_", "-"): value for name, value in options.items()}
        flags = [part for name, value in given.items() for part in (f"--{name}", value)]
        return [sys.executable, "-m", "tpu_agent", *flags]

    def start_agent(
        self, command: list[str] | None = None, **options: str
    ) -> subprocess.Popen[bytes]:
        environment = os.environ | {
            "PYTHONPATH": str(self.code),
            "GCE_METADATA_HOST": options.pop("metadata_host", "127.0.0.1:1"),
        }
        with (self.root / "agent.log").open("ab") as log:
            agent = subprocess.Popen(
                command or self.agent_command(**options),
                cwd=self.code,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.agents.append(agent)
        return agent

    @contextmanager
    def agent_here(self, clock: Clock, **options: str) -> Iterator[threading.Thread]:
        """Run an agent in this process, whose clock the block may turn; it ends with the block."""
        config = parse_arguments(self.agent_command(**options)[3:])
        config = dataclasses.replace(config, bundle_dir=self.code)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
            patch.setattr(runner, "datetime", clock)
            patch.setattr(watch, "datetime", clock)
            watching = watch.Watch(config)
            thread = threading.Thread(target=Agent(config, watching).run)
            thread.start()
            try:
                yield thread
            finally:
                watching.shut_down("the test's end")
                thread.join()

    def finish_agent(self, agent: subprocess.Popen[bytes]) -> None:
        """Release the TPU and see the agent leave in peace."""
        self.release()
        assert agent.wait(PATIENCE) == 0, self.agent_log

    def status(self, job_id: str) -> JobStatus | None:
        return JobStatus.load_or_none(self.mailbox.status(0, job_id))

    def wait_heartbeat(self, what: str, wanted: Callable[[Heartbeat], bool]) -> Heartbeat:
        def probe() -> Heartbeat | None:
            beat = Heartbeat.load_or_none(self.mailbox.heartbeat(0))
            return beat if beat and wanted(beat) else None

        beat: Heartbeat = wait_for(what, probe)
        return beat

    def wait_status(self, job_id: str) -> JobStatus:
        status: JobStatus = wait_for(f"status of {job_id}", lambda: self.status(job_id))
        return status

    def log(self, job_id: str) -> str:
        """Return all log chunks of a job, which must be numbered without gap."""
        prefix = self.mailbox.log_chunk(0, job_id, 0).rpartition("/")[0]
        chunks = uris.list_files(prefix)
        assert chunks == [self.mailbox.log_chunk(0, job_id, n) for n in range(len(chunks))]
        return "".join(uris.read(chunk).decode() for chunk in chunks)

    def starts(self) -> list[str]:
        """Return a line per start of a job, with its pid and whether it was alone."""
        path = self.scratch / "starts"
        return path.read_text().splitlines() if path.exists() else []

    def wait_starts(self, count: int) -> int:
        """Wait until jobs were started so often; return the last one's pid."""
        wait_for(f"{count} starts", lambda: len(self.starts()) >= count)
        return int(self.starts()[-1].split()[0])

    def go(self) -> None:
        """Let the waiting job finish."""
        (self.scratch / "go").touch()

    def close(self) -> None:
        for agent in self.agents:
            if agent.poll() is None:
                agent.send_signal(signal.SIGKILL)
                agent.wait()
        processes.kill(self.work_dir)


def is_running(pid: int) -> bool:
    """Return whether the process lives (and is not merely waiting to be reaped)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
