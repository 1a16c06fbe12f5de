"""Attacks by code on a TPU VM: on deciding records, on other VMs' jobs, on promoted versions."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import psutil

from model_registry import production, registry
from model_registry.versions import load_version, require_files
from pipeline_store import job_signatures, uris
from pipeline_store.formats import ExitKind, FormatError, JobSpec
from pipeline_store.layout import AttemptLayout, RunLayout, StoreLayout
from tests.infrastructure import conditions
from tests.infrastructure.tree import Tree, files
from tests.infrastructure.vm_paths import DECISIONS, STORE
from tests.model_registry.runs import FinishedRun
from tpu_agent import runner
from tpu_agent.agent import Agent
from tpu_agent.config import AgentConfig
from tpu_agent.job import Job
from tpu_agent.runner import JobRunner
from tpu_agent.watch import Watch
from tpu_lifecycle.boot import launcher
from verification.attack_check.rows import Row, Tally

_JOB = "010-train"
_GRANT = "google_storage_bucket_iam_member.tpu_vm_reports_of_runs"
_FORGERIES = ("unsigned", "another key", "a changed byte")
_REPLAYS = ((2, 1), (1, 1), (2, 2))
"""Reservation and attempt for which a job was signed; the last: another job of the same attempt."""


def decisions(_: Path, times: int) -> Tally:
    """Write each record on which other programs base decisions, with the account of TPU VMs."""
    tally, tree = Tally(), Tree.parse(files())
    may_write = conditions.allows(tree, tree.resource(_GRANT))
    for path in DECISIONS * times:
        tally.add(*([f"{path} may be written"] if may_write(path) else []))
    return tally


def _whole_folders() -> Any:
    """Allow the account to write all of ``runs/``."""
    text = f'resource.name.startsWith("{conditions.OBJECTS}/runs/")'
    return mock.patch.object(conditions, "cel", return_value=text)


@dataclass(frozen=True)
class _Vm:
    """The VM of the second attempt of a second reservation, whose jobs are recorded, not started.

    :ivar keys: the keys with which the jobs of the run's two reservations are signed.
    """

    run: RunLayout
    folder: Path
    keys: tuple[str, str]

    @classmethod
    def of(cls, folder: Path) -> _Vm:
        """Return a VM with its own store, and code that could be run."""
        run = StoreLayout(str(folder / "store")).run("0a1b2c3d4e5f")
        (folder / "bundle" / "training").mkdir(parents=True)
        (folder / "bundle" / "training" / "train.py").touch()
        return cls(run, folder, (job_signatures.new_key(), job_signatures.new_key()))

    def mailbox(self, reservation: int, attempt: int) -> AttemptLayout:
        return self.run.reservation(reservation).attempt(attempt)

    def spec(self, reservation: int, attempt: int) -> bytes:
        """Return the job spec that the orchestrator writes for an attempt."""
        return JobSpec(
            job_id=_JOB,
            token=f"{reservation}{attempt}" * 16,
            holder_uri=self.run.holder,
            entry_point="training.train",
            arguments=["--run", self.run.root],
            bundle_sha256="0" * 64,
            max_restarts=0,
            deadline=datetime.now(UTC) + timedelta(hours=1),
        ).to_bytes()

    def sign(self, reservation: int, attempt: int) -> bytes:
        """Sign that job spec as the orchestrator does; return it."""
        spec, key = self.spec(reservation, attempt), self.keys[reservation - 1]
        job_signatures.sign(self.mailbox(reservation, attempt), _JOB, spec, key)
        return spec

    def jobs_run(self) -> list[str]:
        """Let the agent of the second reservation's second attempt poll; return the jobs run."""
        config = AgentConfig(
            mailbox=self.mailbox(2, 2),
            released_uri=self.run.reservation(2).released,
            token="22" * 16,
            worker=0,
            bundle_sha256="0" * 64,
            bundle_dir=self.folder / "bundle",
            work_dir=self.folder / "work",
            expires_at=datetime.now(UTC) + timedelta(hours=1),
            heartbeat_interval=1.0,
            poll_interval=1.0,
            stop_grace=1.0,
            settle=0.0,
            job_key=self.keys[1],
        )
        found: list[str] = []

        def runs(_: JobRunner, job: Job, *__: Any) -> None:
            found.append(f"{job.job_id} ran")
            job.finish(ExitKind.OK)

        with mock.patch.object(JobRunner, "_run_to_end", runs):
            Agent(config, Watch(config))._run_new_jobs()
        return found


def forged_jobs(folder: Path, times: int) -> Tally:
    """Put forged jobs into a mailbox, using each kind of forgery in turn."""
    tally = Tally()
    for number in range(times):
        vm = _Vm.of(folder / str(number))
        mailbox, spec = vm.mailbox(2, 2), vm.spec(2, 2)
        match _FORGERIES[number % len(_FORGERIES)]:
            case "another key":
                job_signatures.sign(mailbox, _JOB, spec, job_signatures.new_key())
            case "a changed byte":
                spec = vm.sign(2, 2).replace(b'"--run"', b'"--rum"')
        uris.write(mailbox.job(_JOB), spec)
        tally.add(*vm.jobs_run())
        shutil.rmtree(vm.folder)
    return tally


def replayed_jobs(folder: Path, times: int) -> Tally:
    """Copy a signed job, with its signature, to a mailbox or job id it was not meant for."""
    tally = Tally()
    for number in range(times):
        vm = _Vm.of(folder / str(number))
        reservation, attempt = _REPLAYS[number % len(_REPLAYS)]
        spec, mailbox = vm.sign(reservation, attempt), vm.mailbox(2, 2)
        sha256, name = hashlib.sha256(spec).hexdigest(), _JOB
        if (reservation, attempt) == (2, 2):
            # Its own finished job under another job id.
            name = "020-train"
        signature = uris.read(vm.mailbox(reservation, attempt).signature(_JOB, sha256))
        uris.write(mailbox.signature(name, sha256), signature)
        uris.write(mailbox.job(name), spec)
        tally.add(*vm.jobs_run())
        shutil.rmtree(vm.folder)
    return tally


def _unsigned() -> Any:
    """Let agents run any job in their mailbox."""
    return mock.patch.object(job_signatures, "require_signed", return_value=None)


def _any_attempt() -> Any:
    """Let agents run jobs of other attempts that are signed with their key."""
    return mock.patch.object(runner, "objection", return_value=None)


def keys_of_jobs(_: Path, times: int) -> Tally:
    """Read and write the keys that sign jobs, with each grant of the other accounts."""
    tally, tree = Tally(), Tree.parse(files())
    for grant in tree.resources("google_storage_bucket_iam_member"):
        is_of_store = grant.body["bucket"] == "google_storage_bucket.store.name"
        if not is_of_store or grant.name.startswith("airflow_"):
            continue
        may = conditions.allows(tree, grant)
        for number in range(times):
            uri = STORE.job_key(f"{number:012x}", 1 + number % 3)
            harm = may(uri.removeprefix(f"{STORE.root}/"))
            tally.add(*([f"{grant.name} is for {uri}, too"] if harm else []))
    return tally


def _everything() -> Any:
    """Make each condition hold for all objects of the bucket."""
    text = f'resource.name.startsWith("{conditions.OBJECTS}/")'
    return mock.patch.object(conditions, "cel", return_value=text)


_TELLS = """
import os, pathlib
def tell(pid):
    process = pathlib.Path("/proc", str(pid))
    print((process / "cmdline").read_bytes(), (process / "environ").read_bytes())
    parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
    if parent > 1:
        tell(parent)
tell(os.getpid())
print("these are the words of the job", flush=True)
"""
"""A job that prints the command line and environment of itself and its parent processes."""


def secrets_of_a_vm(folder: Path, times: int) -> Tally:
    """Boot TPU VMs whose job prints everything it was given, and search for the jobs' key.

    The key is in the node's metadata, which code on the VM can read, and must be nowhere else. Code
    that has it can sign, but still cannot write to the folder of jobs.
    """
    # Imports gRPC and pytest, which few rows need.
    from tests.tpu_agent import cloud, world

    tally = Tally()
    for number in range(times):
        place = folder / str(number)
        place.mkdir()
        with mock.patch.dict(world.JOBS, tells=_TELLS):
            vm = world.World(place)
        vm.add_job(_JOB, "tells")
        with cloud.cloud(place, vm, vm_grace=10.0) as tpu:
            tpu.create()
            status = vm.wait_status(_JOB)
            running = map(tpu.wait_process, ("tpu_agent", "tpu_agent.self_delete"))
            places = {f"ps of {one.cmdline()[2]}": _shown(one) for one in running}
        if "the words of the job" not in vm.log(_JOB):
            raise RuntimeError(f"The job says nothing: {status.message}")
        places |= {path: Path(path).read_bytes() for path in uris.list_files(vm.store.root)}
        for where, data in places.items():
            tally.add(*([f"the key is in {where}"] if world.JOB_KEY.encode() in data else []))
        shutil.rmtree(place)
    return tally


def _shown(process: psutil.Process) -> bytes:
    """Return what other processes on the VM can see of a process."""
    return "\0".join([*process.cmdline(), *process.environ().values()]).encode()


@contextmanager
def _key_in_the_environment() -> Iterator[None]:
    """Let the boot script pass the key in the environment, which all child processes inherit."""
    text = launcher.BOOT_SCRIPT.read_text()
    given = 'os.environ["REPRETRAIN_JOB_KEY"] = attribute("job-key")'
    line = "    sha256, env = "
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "boot.py")
        script.write_text(text.replace(line, f"    {given}\n{line}"))
        with mock.patch.object(launcher, "BOOT_SCRIPT", script):
            yield


def changed_copies(folder: Path, times: int) -> Tally:
    """Change a byte of a published version before it is promoted, one file at a time."""
    tally = Tally()
    for number in range(times):
        run = FinishedRun(str(folder / str(number)), "1")
        version = registry.publish(run.store, run.run)
        digest = version.files[number % len(version.files)]
        path = Path(run.lineage.version(version.version_id), digest.path)
        data = bytearray(path.read_bytes())
        data[number % len(data)] ^= 1
        path.write_bytes(data)
        with suppress(registry.DamagedVersionError, FormatError):
            registry.promote(
                run.lineage, version.version_id, expected_baseline=None, reason="better"
            )
            tally.add(f"{digest.path} was changed, and is in use")
            continue
        tally.add()
        shutil.rmtree(folder / str(number))
    return tally


def _sized() -> Any:
    """Let promotion check only the sizes of files."""
    return mock.patch.object(
        production,
        "verify",
        lambda lineage, version: require_files(lineage, load_version(lineage, version)),
    )


ROWS = (
    Row("deciding records under the VM's account", decisions, 1, _whole_folders),
    Row("job that the orchestrator did not write", forged_jobs, 99, _unsigned, 3),
    Row("job of an earlier attempt, replayed", replayed_jobs, 60, _any_attempt, 3),
    Row("keys of jobs under other accounts", keys_of_jobs, 12, _everything),
    Row("secrets of a TPU VM: logs, ps, store", secrets_of_a_vm, 1, _key_in_the_environment),
    Row("byte changed between copy and promotion", changed_copies, 30, _sized, 2),
)
