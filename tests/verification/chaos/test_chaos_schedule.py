from __future__ import annotations

import json

from operators.tpu_failures import FailureKind
from verification.chaos.audit import PERSON
from verification.chaos.faults import CAUSES
from verification.chaos.schedule import ALL, KINDS, REAL_KINDS, draw


def test_a_seed_always_draws_the_same() -> None:
    for seed in range(50):
        assert draw(seed) == draw(seed)
        assert draw(seed, real=True) == draw(seed, real=True)
    assert len({json.dumps(draw(seed).to_json()["faults"]) for seed in range(200)}) > 190


def test_a_campaign_has_every_kind_of_fault_many_times() -> None:
    drawn = [fault.kind for seed in range(200) for fault in draw(seed).faults]
    assert {kind for kind in KINDS if drawn.count(kind) >= 3} == KINDS.keys()


def test_ten_real_schedules_disturb_the_training_itself() -> None:
    faults = [fault for seed in range(10) for fault in draw(seed, real=True).faults]
    assert {fault.phase for fault in faults} == {"train"}
    assert len({fault.kind for fault in faults}) >= 5


def test_every_kind_has_a_cause_and_phases_that_exist() -> None:
    assert KINDS.keys() == CAUSES.keys()
    assert set(REAL_KINDS) <= KINDS.keys()
    assert all(set(kind.phases) <= set(ALL) for kind in KINDS.values())


def test_a_schedule_says_what_it_will_do() -> None:
    texts = [str(fault) for seed in range(200) for fault in draw(seed).faults]
    assert any(
        "train+0.0s and step" in text and "preempt node_state=GONE" in text for text in texts
    )


def test_only_what_a_person_or_a_lasting_refusal_does_may_fail_a_run() -> None:
    assert {name for name, kind in KINDS.items() if kind.failures} == {
        "deny",
        "mark_failed",
    }
    assert draw(8).failures == frozenset()


def test_the_kinds_of_failure_are_those_of_the_operators() -> None:
    known = {*FailureKind, PERSON}
    assert all(set(kind.failures) <= known for kind in KINDS.values())
