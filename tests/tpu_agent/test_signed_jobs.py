"""An agent runs what the orchestrator wrote for its TPU, and refuses everything else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline_store import job_signatures, uris
from pipeline_store.formats import ExitKind, JobSpec
from tests.tpu_agent.cloud import cloud
from tests.tpu_agent.world import JOB_KEY, World

FORGED = "010-train"


def unsigned(world: World) -> None:
    world.add_job(FORGED, "train")
    shutil.rmtree(Path(world.mailbox.root, "signatures"))


def signed_with_another_key(world: World) -> None:
    world.add_job(FORGED, "train", key="c" * 64)


def changed_afterwards(world: World) -> None:
    world.add_job(FORGED, "train")
    uri = world.mailbox.job(FORGED)
    spec = JobSpec.load(uri)
    spec.model_copy(update={"arguments": [*spec.arguments, "--more"]}).write(uri)


def signature_of_another_job(world: World) -> None:
    world.add_job("005-help", "train")
    data = uris.read(world.mailbox.job("005-help"))
    uris.delete(world.mailbox.job("005-help"))
    uris.write(world.mailbox.job(FORGED), data)
    job_signatures.sign(world.mailbox, FORGED, data, JOB_KEY)


FORGERIES = [unsigned, signed_with_another_key, changed_afterwards, signature_of_another_job]


@pytest.mark.parametrize("forge", FORGERIES)
def test_a_job_that_the_orchestrator_did_not_write_is_refused(
    world: World, forge: Callable[[World], None]
) -> None:
    forge(world)
    world.add_job("020-evaluate", "exits", "0")
    world.start_agent()
    status = world.wait_status(FORGED)
    assert status.exit_kind is ExitKind.USER_ERROR
    assert f"Job {FORGED} is refused" in status.message
    assert JOB_KEY not in status.message
    # What follows it, and is signed, runs.
    assert world.wait_status("020-evaluate").exit_kind is ExitKind.OK
    assert len(world.starts()) == 1


def test_a_vm_without_a_key_runs_nothing(world: World) -> None:
    world.add_job(FORGED, "train")
    (world.root / "job-key").write_text("")
    world.start_agent()
    status = world.wait_status(FORGED)
    assert status.exit_kind is ExitKind.USER_ERROR
    assert "has no metadata 'job-key'. Clear the reserve task." in status.message
    assert world.starts() == []


def test_the_key_comes_with_the_node_and_is_shown_to_nobody(world: World, tmp_path: Path) -> None:
    world.add_job("010-train", "waits")
    with cloud(tmp_path, world, vm_grace=10.0) as tpu:
        tpu.create()
        world.wait_starts(1)
        for process in map(tpu.wait_process, ("tpu_agent", "training.waits")):
            shown = [*process.cmdline(), *process.environ().values()]
            assert not [text for text in shown if JOB_KEY in text]
        world.go()
        assert world.wait_status("010-train").exit_kind is ExitKind.OK
    stored = [path for path in Path(world.store.root).rglob("*") if path.is_file()]
    assert [path for path in stored if JOB_KEY.encode() in path.read_bytes()] == []
