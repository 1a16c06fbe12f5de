"""What the check of a killed scheduler draws, sees, judges and remembers."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from local.stack.airflow_api import DagRun, TaskInstance
from local.stack.paths import REPOSITORY, StackError
from verification.checks import code_version
from verification.scheduler_kill_check.__main__ import main
from verification.scheduler_kill_check.killing import kill_scheduler
from verification.scheduler_kill_check.moments import BY_NAME, MOMENTS, Moment, uses_tpu
from verification.scheduler_kill_check.results import Journal, Result, problems, summary, to_do
from verification.scheduler_kill_check.trial import _Seen, clean_up

KILLED = 1_000_000.0
FINE = Result(
    run_id="manual__1",
    moment="training",
    seed=1,
    mended=True,
    delay=0.5,
    held_runs=True,
    interrupted=[],
    decided_seconds=12.0,
    resumed_seconds=14.0,
    idle_seconds=2.0,
    state="success",
    outcome="promoted",
    nodes_left=0,
)


def _task(task_id: str, state: str | None, started: int = 0, tries: int = 1) -> TaskInstance:
    start = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=started)
    return TaskInstance(task_id, -1, state, tries, start, None)


def _run(decided: float) -> DagRun:
    at = datetime.fromtimestamp(decided, UTC)
    return DagRun("run", "running", "manual", None, {}, at)


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.name)
def test_a_seed_draws_one_delay_within_the_moment(moment: Moment) -> None:
    delays = [moment.delay(seed) for seed in range(1, 11)]
    assert delays == [moment.delay(seed) for seed in range(1, 11)]
    assert len(set(delays)) == 10
    assert all(0 <= delay <= moment.seconds for delay in delays)


def test_a_moment_that_passed_between_two_looks_has_begun() -> None:
    training = BY_NAME["training"]
    for state, begun in (("queued", False), ("running", False), ("deferred", True)):
        assert training.has_begun({"tpu.train": _task("tpu.train", state)}) is begun
    assert training.has_begun({"tpu.train": _task("tpu.train", "success")})
    assert not BY_NAME["evaluation"].has_begun({"tpu.train": _task("tpu.train", "deferred")})


def test_a_task_that_ends_in_an_orphan_is_no_sign_that_the_run_goes_on() -> None:
    """As seen: the training's task ended by itself, and no scheduler looked at the run."""
    seen = _Seen(KILLED, {"tpu.train": _task("tpu.train", "running")})
    seen.look(_run(KILLED - 1), {"tpu.train": _task("tpu.train", "success")}, ["READY"])
    assert seen.decided is None
    assert seen.resumed is None


@pytest.mark.parametrize(
    ("now", "has_gone_on"),
    [
        (_task("data.prepare", "running"), False),
        (_task("data.prepare", None, tries=2), False),
        (_task("data.prepare", "scheduled", tries=2), False),
        (_task("data.prepare", "queued", tries=2), False),
        (_task("data.prepare", "running", started=40, tries=2), True),
        (_task("data.prepare", "success"), True),
        (_task("data.prepare", "deferred", started=40), True),
    ],
    ids=lambda one: f"{one.state}-{one.try_number}" if isinstance(one, TaskInstance) else None,
)
def test_a_run_has_gone_on_when_what_was_interrupted_began_again(
    now: TaskInstance, has_gone_on: bool
) -> None:
    seen = _Seen(KILLED, {"data.prepare": _task("data.prepare", "running")})
    seen.look(_run(KILLED + 5), {"data.prepare": now}, [])
    assert seen.decided is not None
    assert (seen.resumed is not None) is has_gone_on


def test_a_ready_tpu_idles_while_no_task_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 10.0, 70.0, 71.0, 72.0])
    monkeypatch.setattr("time.time", lambda: next(clock))
    seen = _Seen(KILLED, {})
    waiting = {"tpu.train": _task("tpu.train", "success"), "tpu.evaluate": _task("x", None)}
    working = waiting | {"tpu.evaluate": _task("x", "deferred")}
    assert uses_tpu(working)
    for tasks, nodes in (
        (working, ["READY"]),
        (waiting, ["READY"]),
        (waiting, ["READY"]),
        (waiting, ["DELETING"]),
        (waiting, ["READY"]),
    ):
        seen.look(_run(KILLED - 1), tasks, nodes)
    assert seen.idle_seconds == 60.0


def test_a_killed_task_that_is_still_shown_as_running_uses_no_tpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter([1.0, 31.0, 41.0])
    monkeypatch.setattr("time.time", lambda: next(clock))
    killed = _task("tpu.create", "running")
    seen = _Seen(KILLED, {"tpu.create": killed})
    for task in (killed, killed, _task("tpu.create", "running", started=40, tries=2)):
        seen.look(_run(KILLED - 1), {"tpu.create": task}, ["READY"])
    assert seen.idle_seconds == 30.0


def test_what_a_kill_interrupts_is_read_while_the_scheduler_is_halted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    process = SimpleNamespace(send_signal=lambda sign: done.append(sign.name))
    process.kill = lambda: done.append("kill")
    process.create_time = lambda: 100.5
    asked: list[object] = []
    cursor = SimpleNamespace(
        execute=lambda _, values: asked.append(values), fetchone=lambda: (len(done) // 2,)
    )
    connection = SimpleNamespace(cursor=lambda: cursor, close=lambda: None)
    monkeypatch.setattr("psutil.Process", lambda pid: process)
    monkeypatch.setattr("psycopg2.connect", lambda url: connection)
    part = SimpleNamespace(pid=1)
    supervisor = SimpleNamespace(processes=lambda: {"scheduler": part})
    stack: Any = SimpleNamespace(
        supervisor=lambda: supervisor, paths=SimpleNamespace(root=Path("/tmp/none"))
    )
    assert kill_scheduler(stack, random.Random(1), lambda: done.append("look"))
    assert done == ["SIGSTOP", "SIGCONT", "SIGSTOP", "look", "kill"]
    assert asked == [("scheduler", 100.5)] * 2


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"resumed": None}, "did not go on"),
        ({"resumed": 91.0}, "took 91 s to go on"),
        ({"idle": 100.0}, "nothing to do for 100 s"),
        ({"state": "failed"}, "the run is failed"),
        ({"outcome": None}, "outcome None"),
        ({"nodes_left": 1}, "1 TPUs are left"),
    ],
)
def test_each_thing_that_is_wrong_is_said(changed: dict[str, object], said: str) -> None:
    well = {"resumed": 50.0, "idle": 3.0, "state": "success", "outcome": "promoted"}
    well |= {"nodes_left": 0}
    assert problems(**well) == []  # type: ignore[arg-type]
    [found] = problems(**well | changed)  # type: ignore[arg-type]
    assert said in found


def failed(**changes: Any) -> Result:
    fields = {"decided_seconds": None, "resumed_seconds": None, "problems": ["x"], **changes}
    return dataclasses.replace(FINE, **fields)


def test_all_tries_are_kept_and_one_that_failed_counts(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "check" / "results.jsonl", "today")
    assert journal.read() == []
    unmended = failed(mended=False)
    for result in (failed(), FINE, unmended):
        journal.add(result)
    assert journal.read() == [failed(), FINE, unmended]
    numbers = summary(journal.read()[:2])
    assert (numbers["kills"], numbers["frozen"], numbers["failed"]) == (2, 1, ["training/1"])
    # Tried again until it passes, without a change of what is said.
    assert to_do([FINE.key, unmended.key], journal.read()) == [unmended.key]


def test_results_of_other_code_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"moment": "training", "from": "before versions were kept"}\n')
    Journal(path, "yesterday").add(FINE)
    journal = Journal(path, "today")
    assert (journal.read(), journal.others()) == ([], 2)
    made: list[int] = []

    def run_trial(_world: object, _moment: Moment, seed: int) -> Result:
        made.append(seed)
        return FINE

    check(monkeypatch, run_trial)
    assert main([*ONE, str(tmp_path)]) == 0
    assert main([*ONE, str(tmp_path)]) == 0
    assert made == [1]
    said = capsys.readouterr().out
    assert "2 results of other versions of the code are left out" in said
    assert "0 of 1 kills to do" in said


ONE = ["--seeds", "1", "--moments", "training", "--state-dir"]


def check(monkeypatch: pytest.MonkeyPatch, run_trial: Any, clean_up: Any = None) -> None:
    """Let the command work on no stack."""

    @contextlib.contextmanager
    def world(*_: object, **__: object) -> Iterator[Any]:
        yield SimpleNamespace(mended=True)

    command = "verification.scheduler_kill_check.__main__"
    nothing = SimpleNamespace(down=lambda: None)
    monkeypatch.setattr(f"{command}.Stack", lambda *_, **__: nothing)
    monkeypatch.setattr(f"{command}.world", world)
    monkeypatch.setattr(f"{command}.code_version", lambda: "today")
    monkeypatch.setattr(f"{command}.run_trial", run_trial)
    monkeypatch.setattr(f"{command}.clean_up", clean_up or (lambda *_: None))


def test_a_trial_that_breaks_off_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_trial(*_: object) -> Result:
        raise StackError("the moment does not come")

    check(monkeypatch, run_trial)
    assert main([*ONE, str(tmp_path)]) == 1
    [kept] = Journal(tmp_path / "results.jsonl", "today").read()
    assert (kept.state, kept.passed, kept.frozen) == ("broken", False, False)
    assert kept.problems == ["the check broke off: StackError: the moment does not come"]
    assert "error: the moment does not come" in capsys.readouterr().err


def test_a_freeze_after_which_the_stack_does_not_recover_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen = failed(state="frozen", nodes_left=1)

    def clean_up(*_: object) -> None:
        raise StackError("the stack does not recover")

    check(monkeypatch, lambda *_: frozen, clean_up)
    assert main([*ONE, str(tmp_path)]) == 1
    assert Journal(tmp_path / "results.jsonl", "today").read() == [frozen]


@pytest.mark.parametrize(
    ("result", "cleans"),
    [
        (FINE, False),
        (failed(state="failed"), False),
        (failed(state="frozen"), True),
        (failed(state="failed", nodes_left=1), True),
        (failed(state="broken", run_id=None), False),
    ],
    ids=lambda one: one.state if isinstance(one, Result) else None,
)
def test_only_what_does_not_end_is_ended(
    result: Result, cleans: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = "verification.scheduler_kill_check.trial"
    monkeypatch.setattr(f"{trial}.processes.find", lambda *_: [])
    monkeypatch.setattr(f"{trial}.Breaker", lambda _: SimpleNamespace(wait_ready=lambda: None))
    marked: list[object] = []
    api = SimpleNamespace(mark_run=lambda *words: marked.append(words))
    world: Any = SimpleNamespace(stack=SimpleNamespace(paths=None), api=api, nodes=list)
    clean_up(world, result)
    assert marked == ([("bert_repretraining", "manual__1", "failed")] if cleans else [])


def test_each_change_of_the_code_is_another_version(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="git does not say"):
        code_version(tmp_path)

    def git(*words: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", tmp_path, *identity, *words], check=True, capture_output=True)

    git("init")
    (tmp_path / "a.py").write_text("1")
    git("add", "a.py")
    git("commit", "-m", "first")
    first = code_version(tmp_path)
    assert code_version(tmp_path) == first
    assert len(first) == 40
    (tmp_path / "a.py").write_text("2")
    changed = code_version(tmp_path)
    (tmp_path / "b.py").write_text("3")
    added = code_version(tmp_path)
    assert len({first, changed, added}) == 3
    assert changed.startswith(f"{first}+")


def test_the_summary_counts_what_froze() -> None:
    frozen = dataclasses.replace(
        FINE, seed=2, decided_seconds=None, resumed_seconds=None, idle_seconds=150.0, problems=["x"]
    )
    found = summary([FINE, frozen], without_mend=True)
    assert found["kills"] == 2
    assert found["frozen"] == 1
    assert found["failed"] == ["training/2"]
    assert found["resumed_max_seconds"] == 14.0
    assert found["idle_max_seconds"] == 150.0


def test_unknown_moments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--moments", "training,nonsense"])
    assert "no moment is called 'nonsense'; there are: prepare" in capsys.readouterr().err


def test_the_page_says_of_each_number_what_it_must_be() -> None:
    page = (REPOSITORY / "docs" / "evidence" / "scheduler-kill-check.md").read_text()
    table = page.partition("| field | must be |\n")[2].partition("\n\n")[0]
    fields = [row.split(" | ")[0] for row in table.splitlines()[1:]]
    named = {name for field in fields for name in re.findall(r"`(\w+)`", field)}
    assert named == set(summary([FINE], without_mend=False, minutes=1.0))
