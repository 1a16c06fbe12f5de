"""What is true of the list of scenarios as a whole, without running any."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from verification.leak_matrix.__main__ import main
from verification.leak_matrix.catalogue import SCENARIOS
from verification.leak_matrix.layers import REMOVABLE, Layer, layer_of, user_agent
from verification.leak_matrix.results import CONTROL, MATRIX, Journal, Result, summary, table
from verification.leak_matrix.scenario import Subject
from verification.leak_matrix.scenarios.creating import one_tpu, two_tpus
from verification.leak_matrix.stage import Stage


def test_there_are_as_many_as_promised() -> None:
    assert len(SCENARIOS) >= 40
    assert sum(scenario.control for scenario in SCENARIOS) >= 19
    assert len({scenario.id for scenario in SCENARIOS}) == len(SCENARIOS)


def test_dag_ids_fit_labels_and_differ() -> None:
    ids = [
        dag_id
        for scenario in SCENARIOS
        for dag_id in (scenario.dag_id, scenario.control_dag_id, scenario.reaper_dag_id)
    ]
    assert len(set(ids)) == len(ids)
    assert all(len(scenario.owner) <= 63 for scenario in SCENARIOS)


def test_fine_tuning_runs_go_through_all_that_others_go_through() -> None:
    ids = {subject: set[str]() for subject in Subject}
    for scenario in SCENARIOS:
        ids[scenario.subject].add(scenario.id)
    assert {f"finetuning-{name}" for name in ids[Subject.REPRETRAINING]} < ids[Subject.FINETUNING]
    several = [scenario for scenario in SCENARIOS if scenario.tpus > 1]
    assert several
    assert {scenario.subject for scenario in several} == {Subject.FINETUNING}
    # The tests play some of both.
    assert {scenario.subject for scenario in SCENARIOS if scenario.fast} == set(Subject)


def test_a_dag_names_its_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--dag", "bert_finetuning"]) == 0
    lines = capsys.readouterr().out.splitlines()
    wanted = [s.id for s in SCENARIOS if s.subject is Subject.FINETUNING]
    assert [line.split()[0] for line in lines] == wanted


@pytest.mark.parametrize("layer", REMOVABLE)
def test_every_layer_is_what_some_scenario_needs(layer: Layer) -> None:
    needing = [scenario for scenario in SCENARIOS if scenario.expected is layer]
    assert needing
    for scenario in needing:
        assert layer in scenario.layers()
        assert layer not in scenario.layers(without=layer)


@pytest.mark.parametrize("layer", [layer for layer in Layer if layer is not Layer.NOBODY])
def test_callers_show_their_layer(layer: Layer) -> None:
    assert layer_of(f"grpc-python/1.0 {user_agent(layer)} gapic/1.2") is layer


def test_other_callers_are_no_layer() -> None:
    assert layer_of("bert-repretraining/somebody grpc-python/1.0") is None
    assert layer_of("leak-matrix") is None


@dataclass
class _Counted:
    """Stands in for a stage: when Airflow loses a try, nobody can choose."""

    made: int
    lost: int = 0

    def creations(self) -> list[str]:
        return [f"tpu-{number}" for number in range(self.made)]

    def lost_tries(self) -> list[str]:
        return ["create was failed while it ran"] * self.lost

    def history(self) -> list[str]:
        return ["g1 created"]


@pytest.mark.parametrize(("made", "lost"), [(2, 0), (2, 1), (3, 1)])
def test_a_try_that_airflow_loses_may_rent_once_more(made: int, lost: int) -> None:
    assert two_tpus(cast(Stage, _Counted(made, lost))) == []


@pytest.mark.parametrize(("made", "lost"), [(1, 0), (3, 0), (1, 1), (4, 1)])
def test_any_other_number_of_tpus_is_a_problem(made: int, lost: int) -> None:
    (problem,) = two_tpus(cast(Stage, _Counted(made, lost)))
    assert f"{made} TPUs were made, not 2 (Airflow lost {lost} tries)" in problem
    assert "g1 created" in problem


def test_one_tpu_is_one() -> None:
    assert one_tpu(cast(Stage, _Counted(1))) == []
    assert one_tpu(cast(Stage, _Counted(2))) != []


def _result(
    id_: str, kind: str = MATRIX, left: int = 0, problems: list[str] | None = None
) -> Result:
    return Result(
        id=id_,
        title=f"title of {id_}",
        kind=kind,
        without="",
        expected="teardown",
        cleaned_by="teardown",
        deletions=["teardown"],
        seconds=None if left else 4.0,
        bound=90.0,
        nodes_left=left,
        state="failed",
        problems=problems or [],
    )


def test_the_journal_keeps_the_newest_result_of_each_case(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "deep" / "results.jsonl")
    assert journal.read() == {}
    journal.add(_result("a", problems=["no"]))
    journal.add(_result("a", kind=CONTROL, left=1))
    journal.add(_result("a"))
    found = journal.read()
    assert found["a", MATRIX, ""].passed
    assert found["a", CONTROL, ""].nodes_left == 1


def test_the_summary_counts_what_is_left() -> None:
    results = [_result("a"), _result("b", left=2, problems=["left"]), _result("a", CONTROL, 1)]
    numbers = summary(results, seed=7)
    assert numbers == {
        "scenarios": 2,
        "nodes_left": 2,
        "control_nodes_left": 1,
        "control_scenarios": 1,
        "control_scenarios_that_leak": 1,
        "failed": ["b"],
        "seed": 7,
    }
    text = table(results)
    assert "title of a" in text
    assert "left" in text
    assert "a (control)" in text


def test_the_list_shows_the_expected_layers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--only", "run-marked-failed,airflow-dead-cron"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.split()[:2] == ["run-marked-failed", "on-kill"]
    assert second.split()[:2] == ["airflow-dead-cron", "cron"]


def test_an_unknown_scenario_is_refused() -> None:
    with pytest.raises(SystemExit, match="no scenario is called 'nonsense'"):
        main(["--list", "--only", "nonsense"])
