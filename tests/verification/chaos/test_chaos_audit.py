"""The audit must be able to fail: what it finds in runs that went wrong."""

from __future__ import annotations

from pathlib import Path

from verification.chaos.audit import PERSON, TraceEvent, is_clear, read_trace, steps_lost
from verification.chaos.campaign import Item, next_item, summary
from verification.chaos.fake_training import chain


def trace(*events: tuple[str, int]) -> list[TraceEvent]:
    return [TraceEvent(pid=1, event=event, step=step) for event, step in events]


def test_nothing_is_lost_by_who_goes_on_where_the_last_one_was() -> None:
    assert steps_lost(trace(("start", 0), ("step", 1), ("step", 2), ("start", 2), ("step", 3))) == [
        0
    ]


def test_what_has_to_be_done_again_is_lost() -> None:
    steps = [("step", number) for number in range(1, 16)]
    assert steps_lost(trace(("start", 0), *steps, ("start", 10), ("step", 11), ("start", 0))) == [
        5,
        11,
    ]


def test_a_line_that_a_kill_tore_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    assert read_trace(path) == []
    path.write_text('{"pid": 1, "event": "start", "step": 0}\n{"pid": 1, "ev')
    assert read_trace(path) == [TraceEvent(1, "start", 0)]


def test_a_step_done_twice_changes_the_weights() -> None:
    weights = chain.after(chain.after(chain.FIRST, 1), 2)
    assert weights == chain.final(2)
    assert chain.after(chain.after(chain.after(chain.FIRST, 1), 1), 2) != weights


def test_which_failures_are_clear() -> None:
    assert is_clear({"class": "TpuTaskFailed", "kind": "quota", "message": "[quota] …"})
    assert is_clear({"class": "MarkedFailed", "kind": PERSON})
    assert not is_clear({"class": "OSError", "kind": "", "message": "[Errno 36]"})
    assert not is_clear({"class": "Killed", "kind": ""})


def test_the_summary_counts_and_names_the_seeds_that_failed() -> None:
    good = {"seed": 1, "real": False, "state": "success", "problems": [], "caused": ["a"]}
    leaking = good | {"seed": 2, "leaks": 1, "problems": ["left: …"]}
    real = good | {"real": True, "seed": 3, "state": "broken", "problems": ["it hangs"]}
    totals = summary([good, leaking, real])
    assert (totals["schedules"], totals["real"], totals["leaks"]) == (2, 1, 1)
    assert (totals["broken"], totals["faults"]) == (1, 3)
    assert totals["failing_seeds"] == ["2", "real-3"]


def test_few_real_schedules_run_at_once() -> None:
    real = [Item(seed, real=True) for seed in range(4)]
    fake = [Item(seed, real=False) for seed in range(2)]
    assert next_item([*real, *fake], []) == real[0]
    assert next_item([*real[2:], *fake], real[:2]) == fake[0]
    assert next_item(real[2:], real[:2]) is None
