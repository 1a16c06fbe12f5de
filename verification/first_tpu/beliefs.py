"""Beliefs that were never verified on a real cloud, by money at risk, and the steps that test them.

The table in ``docs/evidence/limits.md`` is made from this list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Finding(StrEnum):
    """The result of a first day for a belief."""

    HELD = "held"
    WRONG = "wrong"
    NOT_TRIED = "not tried"


@dataclass(frozen=True)
class Belief:
    """An assumption that the project relies on and has not verified.

    :ivar if_wrong: the cost if it is wrong.
    :ivar settled_by: the command or event that verifies it, in words.
    :ivar evidence: names of steps, or of tests of the contract suite as ``file::test``, all of
        which must pass for it to hold; empty: the first day does not test it.
    """

    statement: str
    if_wrong: str
    settled_by: str
    evidence: tuple[str, ...] = ()

    def finding(self, results: Mapping[str, bool | None]) -> Finding:
        """Return the finding from results by step or test name; None or missing: not tried."""
        found = [results.get(name) for name in self.evidence]
        if any(one is False for one in found):
            return Finding.WRONG
        return Finding.HELD if found and all(found) else Finding.NOT_TRIED


_DELETED = "test_one_tpu::test_by_force_it_goes_with_its_node_and_stays_away"
_RUNS_JOBS = "test_agent::test_it_runs_a_job_and_stops_at_the_tombstone"
_RESUMES = "test_agent::test_a_training_resumes_on_the_next_tpu"

BELIEFS = (
    Belief(
        "The Cloud TPU API deletes a node or queued resource as the emulator does, in each state",
        "a TPU stays: the reaper, the VM's own switch and `expires-at` all use the same API; it is "
        "paid until a person looks",
        "`make first-tpu`",
        (
            _DELETED,
            "test_one_node::test_it_goes_and_stays_away",
            "test_requests::test_a_waiting_tpu_can_be_deleted",
        ),
    ),
    Belief(
        "A repeated or conflicting request makes no second TPU",
        "two TPUs are rented for one run until the reaper finds the one that no run knows",
        "`make first-tpu`",
        (
            "test_one_tpu::test_the_same_request_again_makes_nothing_new",
            "test_one_tpu::test_another_request_for_the_name_is_a_conflict",
            "test_one_node::test_asking_again_finds_the_name_taken",
        ),
    ),
    Belief(
        "Lists show the labels by which the reaper knows its TPUs",
        "the reaper finds nothing; the VM's own switch remains",
        "`make first-tpu`",
        (
            "test_one_tpu::test_it_is_found_by_its_label_alone",
            "test_one_node::test_it_is_found_by_its_label_alone",
        ),
    ),
    Belief(
        "A TPU VM may delete its own TPU over REST, with the role that Terraform grants",
        "the VM's own switch does nothing; the reaper from outside remains",
        "a run whose Airflow is stopped for longer than `tpu.lease_timeout_seconds`",
    ),
    Belief(
        "The boot script starts our container on Google's runtime versions",
        "two TPUs are rented for `tpu.boot_timeout_seconds` each, then the run ends and says so",
        "`make first-tpu`",
        (_RUNS_JOBS,),
    ),
    Belief(
        "The libtpu of the image compiles and runs the trainer's step",
        "a run fails at its first step, on a TPU that is paid",
        "`make first-tpu`",
        (_RESUMES,),
    ),
    Belief(
        "A TPU whose node is gone counts as lost, and the training goes on on the next one",
        "a preemption ends the run, or is waited for until the budget ends",
        "`make first-tpu`",
        (_RESUMES,),
    ),
    Belief(
        "Preemption and maintenance are announced by the metadata server as documented",
        "the last save is older: up to `training.checkpoint_interval` steps are paid twice",
        "a spot TPU that is taken away",
    ),
    Belief(
        "Prices in presets and tables are yours",
        "estimates and `budget.max_cost` are off by that factor",
        "your bill; set `budget.price_per_chip_hour`",
    ),
    Belief(
        "A TPU VM's own disk has 100 GB",
        "a run that copies more fails after the TPU was rented",
        "`df` on a TPU VM; `tpu.disk_gigabytes` is checked before anything is spent",
    ),
    Belief(
        "Cycles and bytes of the compile check rank programs as their times do",
        "a lever that was kept does not pay on a chip",
        "two short runs, with and without the lever",
    ),
    Belief(
        "Several hosts of one slice train as several processes on one machine do",
        "a run on more than one host fails at its start",
        "a slice of two hosts",
    ),
    Belief(
        "A bucket decides between two writers as its double in the tests does",
        "a lease or pointer could be written twice",
        "`make first-tpu`",
        ("bucket",),
    ),
    Belief(
        "The roles that Terraform grants suffice",
        "a run fails where a right is missing, some of them after the TPU was rented",
        "`make first-tpu`, with Airflow's account",
        ("cloud", _RUNS_JOBS),
    ),
    Belief(
        "Zones that [config.md](../reference/config.md) marks as *believed* have the type",
        "the service refuses; nothing is paid",
        "`python -m preflight cloud`",
    ),
    Belief(
        "Dataflow runs the data job in the image `bert-data`",
        "the data job fails before a TPU is rented",
        "a run with `beam.runner` `DataflowRunner`",
    ),
    Belief(
        "Composer, Astro and Kubernetes take DAGs and plugins as described",
        "the DAGs do not load",
        "an environment there",
    ),
)
"""All beliefs, by money at risk, the largest first."""


def table() -> list[str]:
    """Return the beliefs as lines of a Markdown table."""
    rows = [f"| {one.statement} | {one.if_wrong} | {one.settled_by} |" for one in BELIEFS]
    return ["| belief | if it is wrong | settled by |", "|---|---|---|", *rows]
