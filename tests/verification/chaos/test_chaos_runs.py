"""A few schedules, one with each kind of culprit; `make chaos` has the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from local.commands import import_path
from verification.chaos.campaign import Campaign, Item
from verification.chaos.schedule import Fault, Schedule, draw

SEEDS = (8, 9, 1)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    return Campaign(tmp_path_factory.mktemp("chaos"), parallel=len(SEEDS))


@pytest.mark.thorough
def test_nothing_is_left_or_lost(campaign: Campaign) -> None:
    reports = campaign.run([Item(seed, real=False) for seed in SEEDS])
    assert [report["problems"] for report in reports] == [[]] * len(SEEDS)
    assert [report["seed"] for report in reports] == list(SEEDS)
    assert sum(len(report["caused"]) for report in reports) > len(SEEDS)


@pytest.mark.thorough
def test_a_campaign_goes_on_where_it_was(campaign: Campaign) -> None:
    item = Item(SEEDS[0], real=False)
    (before,) = campaign.run([item])
    assert before["problems"] == []
    assert before["caused"]
    (again,) = campaign.run([item])
    assert again == before


LEAK = """
import json, sys
from pathlib import Path
from verification.chaos import one, group
from verification.chaos.schedule import Schedule

# A group without a teardown: what it rented stays.
group.Group._run_teardown = lambda self: None
one.SETTLE_SECONDS = 1.0
report = one.run_schedule(Schedule(0, False, ()), Path(sys.argv[1]), one.FakeTraining())
print(json.dumps(report.to_json()))
"""


@pytest.mark.thorough
def test_a_run_without_its_teardown_is_found_out(campaign: Campaign, tmp_path: Path) -> None:
    code = campaign.code(real=False)
    environment = {
        "PYTHONPATH": import_path(code),
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
    }
    script = tmp_path / "leak.py"
    script.write_text(f"if __name__ == '__main__':\n{indented(LEAK)}")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "world")],
        cwd=code,
        env=os.environ | environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    report: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    assert report["left"]["nodes"] == 1
    assert report["leaks"] >= 3
    assert report["problems"]


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def test_one_schedule_is_printed_before_it_runs() -> None:
    fault = Fault("preempt", "train", 0.0, 7, {"node_state": "GONE"})
    assert str(fault) == "train+0.0s and step 7: preempt node_state=GONE"
    assert not Schedule(0, False, (fault,)).failures
    assert draw(8).faults
