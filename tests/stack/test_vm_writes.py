"""A TPU VM writes only what its account may write in the cloud. All runs of the stack are held
against that at its end, by the fixture ``vm_writes``; here is what shows that they were seen."""

from __future__ import annotations

import re

import pytest

from tests.stack.driver import Pipeline
from tests.stack.story import FirstModel
from tests.stack.vm_writes import VmWrites

pytestmark = pytest.mark.stack


def test_the_vms_of_a_first_model_write_what_they_may(
    pipeline: Pipeline, first_model: FirstModel, vm_writes: VmWrites
) -> None:
    run = pipeline.run(first_model.run_id).root.removeprefix(f"{pipeline.store.root}/")
    written = [path.removeprefix(f"{run}/") for path in vm_writes.written() if run in path]
    mailbox = r"reservations/g1/attempts/a1/workers/0"
    for kind in (
        rf"{mailbox}/agent\.json",
        rf"{mailbox}/heartbeat\.json",
        rf"{mailbox}/[a-z0-9-]+/status\.json",
        rf"{mailbox}/[a-z0-9-]+/log/000000\.txt",
        r"training/attempts/.+/weights.*",
        r"training/checkpoints/0000000060\.json",
        r"training/events/.+",
        r"training/metrics/.+",
        r"training/result\.json",
        r"evaluations/unigram\.json",
    ):
        assert [path for path in written if re.fullmatch(kind, path)], kind
    assert vm_writes.forbidden() == []
