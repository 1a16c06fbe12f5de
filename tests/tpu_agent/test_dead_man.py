"""The rules of the dead man's switch, with a clock that the test turns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tpu_agent.dead_man import LEAST_POLLS, DeadMan, Sight

TIMEOUT = 1000.0
QUIET = Sight(lease=b"7", is_released=False, moves=frozenset(), job_runs=False)
POLL = TIMEOUT / 20
LONG = 30


@dataclass
class Vm:
    """Looks at regular intervals."""

    now: float = 0.0
    reasons: list[str | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dead_man = DeadMan(TIMEOUT, clock=lambda: self.now)

    def see(self, sights: Iterable[Sight | None], interval: float = POLL) -> str | None:
        """Look, or fail to where the sight is None; return what is known after the last look."""
        for sight in sights:
            self.now += interval
            if sight is None:
                self.dead_man.miss()
            else:
                self.dead_man.see(sight)
            self.reasons.append(self.dead_man.reason)
        return self.dead_man.reason

    def first_reason(self) -> int:
        """Return after how many looks there was a reason."""
        return next(index for index, reason in enumerate(self.reasons) if reason)


def working(steps: Iterable[int]) -> list[Sight]:
    return [replace(QUIET, moves=frozenset({("train", 0, n)}), job_runs=True) for n in steps]


def test_a_lease_that_nobody_renews_ends_an_idle_vm() -> None:
    vm = Vm()
    reason = vm.see([QUIET] * LONG)
    assert reason is not None
    assert "nobody has renewed its lease" in reason
    assert "no job runs" in reason
    assert vm.first_reason() == TIMEOUT / POLL


def test_a_lease_that_never_was_counts_as_not_renewed() -> None:
    assert Vm().see([replace(QUIET, lease=None)] * LONG)


def test_each_renewal_counts_anew() -> None:
    vm = Vm()
    for number in range(10):
        assert not vm.see([replace(QUIET, lease=b"%d" % number)] * 15)
    assert vm.see([replace(QUIET, lease=b"9")] * 15)


def test_a_job_that_makes_steps_keeps_its_vm_without_any_lease() -> None:
    vm = Vm()
    assert not vm.see(working(range(1000)))
    assert not vm.see(working([999] * 15)), "a step may take a while"
    assert not vm.see(working(range(1000, 1100)))
    reason = vm.see(working([1099] * LONG))
    assert reason is not None
    assert "not moved" in reason


def test_going_back_to_a_checkpoint_is_progress() -> None:
    vm = Vm()
    assert not vm.see(working([500] * 15))
    assert not vm.see(working([400] * 15))


def test_the_end_of_the_job_ends_the_vm_soon_when_the_lease_is_old() -> None:
    vm = Vm()
    vm.see(working(range(100)))
    done = replace(working([99])[0], job_runs=False)
    assert not vm.see([done] * LEAST_POLLS), "its agent may be about to start it again"
    assert vm.see([done] * 2)


def test_a_silent_store_says_nothing() -> None:
    vm = Vm()
    assert not vm.see([QUIET] * 15)
    assert not vm.see([None] * 1000)
    assert not vm.see([QUIET] * 5), "the time of silence does not count"
    assert vm.see([QUIET] * 10)


def test_a_store_that_answers_every_other_time_is_no_sign() -> None:
    assert not Vm().see([QUIET, None] * 100)


def test_time_alone_is_not_enough() -> None:
    vm = Vm()
    assert not vm.see([QUIET] * LEAST_POLLS, interval=10 * TIMEOUT)
    assert vm.see([QUIET], interval=10 * TIMEOUT)


def test_a_tombstone_ends_the_vm_even_if_somebody_renews() -> None:
    vm = Vm()
    sights = [replace(QUIET, lease=b"%d" % n, is_released=True) for n in range(LONG)]
    reason = vm.see(sights)
    assert reason is not None
    assert "released" in reason
    assert vm.first_reason() == TIMEOUT / POLL


def test_a_renewal_takes_the_reason_back() -> None:
    vm = Vm()
    assert vm.see([QUIET] * LONG)
    assert not vm.see([replace(QUIET, lease=b"8")])
