"""Judges the registry and the emulator after the story."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from model_registry import consistency
from verification.schedule_check.story import Expected
from verification.schedule_check.world import World


@dataclass(frozen=True)
class Verdict:
    """The result of a check; its fields are the last line that the command prints."""

    registry_consistent: bool
    partitions_seen_once: bool
    nodes_left: int
    trainings_at_once: int
    runs: int
    versions: int
    partitions: int
    minutes: float
    problems: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Return whether there are no problems."""
        return not self.problems

    def as_json(self) -> dict[str, object]:
        """Return the fields by name."""
        return asdict(self)


def judge(world: World, expected: Expected, *, trainings_at_once: int, minutes: float) -> Verdict:
    """Compare the actual state with the expected one.

    :param trainings_at_once: maximum number of trainings that were seen at the same time.
    """
    report = consistency.check(world.lineage)
    table = world.admin.table()
    nodes = [entry["name"] for kind in ("nodes", "queued_resources") for entry in table[kind]]
    seen = _seen_problems(report.times_trained, expected)
    problems = [*report.problems, *seen, *(f"left: {name}" for name in nodes)]
    if not report.partitions_seen_once:
        problems.append("a partition was trained on twice as it was")
    if trainings_at_once != 1:
        problems.append(f"{trainings_at_once} trainings of one lineage ran at the same time")
    if orphans := table["orphan_pids"]:
        problems.append(f"processes of TPU VMs are left: {orphans}")
    return Verdict(
        registry_consistent=not report.problems,
        partitions_seen_once=report.partitions_seen_once and not seen,
        nodes_left=len(nodes),
        trainings_at_once=trainings_at_once,
        runs=len(world.runs()),
        versions=report.versions,
        partitions=len(report.times_trained),
        minutes=round(minutes, 1),
        problems=problems,
    )


def _seen_problems(times_trained: dict[str, int], expected: Expected) -> list[str]:
    problems = []
    for partition in sorted(expected.learned | expected.left_out | times_trained.keys()):
        wanted = expected.versions_of.get(partition, int(partition in expected.learned))
        if (found := times_trained.get(partition, 0)) != wanted:
            problems.append(f"{partition} was trained on {found} times, not {wanted}")
    return problems
