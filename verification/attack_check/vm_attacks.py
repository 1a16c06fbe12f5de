"""Attacks by code on a TPU VM: on what others decide by, what other VMs run, what is promoted."""

from __future__ import annotations

import shutil
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

from model_registry import production, registry
from model_registry.versions import load_version, require_files
from pipeline_store import job_signatures, uris
from pipeline_store.formats import FormatError, JobSpec
from pipeline_store.layout import StoreLayout
from tests.infrastructure import conditions
from tests.infrastructure.tree import Tree, files
from tests.infrastructure.vm_paths import DECISIONS
from tests.model_registry.runs import FinishedRun
from tpu_agent.agent import Agent
from tpu_agent.config import AgentConfig
from tpu_agent.runner import JobRunner
from tpu_agent.watch import Watch
from verification.attack_check.rows import Row, Tally

_JOB = "010-train"
_TOKEN = "t" * 32
_GRANT = "google_storage_bucket_iam_member.tpu_vm_reports_of_runs"
_FORGERIES = ("unsigned", "another key", "another attempt", "a changed byte")


def decisions(_: Path, times: int) -> Tally:
    """Write each record by which somebody else decides, with the account of TPU VMs."""
    tally, tree = Tally(), Tree.parse(files())
    may_write = conditions.allows(tree, tree.resource(_GRANT))
    for path in DECISIONS * times:
        tally.add(*([f"{path} may be written"] if may_write(path) else []))
    return tally


def _whole_folders() -> Any:
    """Let the account write all of ``runs/``."""
    text = f'resource.name.startsWith("{conditions.OBJECTS}/runs/")'
    return mock.patch.object(conditions, "cel", return_value=text)


def forged_jobs(folder: Path, times: int) -> Tally:
    """Put jobs into a mailbox that its orchestrator has not written, in each way in turn."""
    tally, key = Tally(), job_signatures.new_key()
    for number in range(times):
        run = StoreLayout(str(folder / str(number))).run("0a1b2c3d4e5f")
        mailbox = run.reservation(1).attempt(1)
        now = datetime.now(UTC)
        config = AgentConfig(
            mailbox=mailbox,
            released_uri=run.reservation(1).released,
            token=_TOKEN,
            worker=0,
            bundle_sha256="0" * 64,
            bundle_dir=folder,
            work_dir=folder / "work",
            expires_at=now + timedelta(hours=1),
            heartbeat_interval=1.0,
            poll_interval=1.0,
            stop_grace=1.0,
            settle=0.0,
            job_key=key,
        )
        spec = JobSpec(
            job_id=_JOB,
            token=_TOKEN,
            holder_uri=run.holder,
            entry_point="training.train",
            arguments=["--run", run.root],
            bundle_sha256="0" * 64,
            max_restarts=0,
            deadline=config.expires_at,
        ).to_bytes()
        forged = spec
        match _FORGERIES[number % len(_FORGERIES)]:
            case "another key":
                job_signatures.sign(mailbox, _JOB, spec, job_signatures.new_key())
            case "another attempt":
                job_signatures.sign(run.reservation(1).attempt(2), _JOB, spec, key)
            case "a changed byte":
                job_signatures.sign(mailbox, _JOB, spec, key)
                forged = spec.replace(b'"--run"', b'"--rum"')
        uris.write(mailbox.job(_JOB), forged)
        agent, runner = Agent(config, Watch(config)), mock.Mock(spec=JobRunner)
        runner.run.return_value = None
        with mock.patch.object(agent, "_runner", runner):
            agent._run_new_jobs()
        tally.add(*(f"{call.args[0].job_id} ran" for call in runner.run.mock_calls))
        shutil.rmtree(folder / str(number))
    return tally


def _unsigned() -> Any:
    """Let agents run whatever lies in their mailbox."""
    return mock.patch.object(job_signatures, "require_signed", return_value=None)


def changed_copies(folder: Path, times: int) -> Tally:
    """Change a byte of a published version before it is promoted, a file at a time."""
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
    """Let promotion look at the sizes of files only."""
    return mock.patch.object(
        production,
        "verify",
        lambda lineage, version: require_files(lineage, load_version(lineage, version)),
    )


ROWS = (
    Row("deciding records under the VM's account", decisions, 1, _whole_folders),
    Row("job that the orchestrator did not write", forged_jobs, 100, _unsigned, 4),
    Row("byte changed between copy and promotion", changed_copies, 30, _sized, 2),
)
