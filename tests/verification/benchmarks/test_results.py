"""One schema for what every benchmark prints, and the table that is made from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from verification.benchmarks.noise import measure
from verification.benchmarks.results import Result, Row, main, markdown

ROW = Row(
    "fast",
    1234567.0,
    "tokens/s",
    "slow",
    2.5,
    cpu_ratio=2.123456,
    spread=1.1,
    peak_rss_mb=301.0,
    details={"wall_s": 12345.678, "peers": {"a": 0.123456}},
)
SHARE = Row("row_fill", 0.98765, "share")


@pytest.fixture
def results() -> list[Result]:
    return measure("data", lambda: [ROW, SHARE], lambda: None)


def test_a_line_can_be_read_back_and_has_the_machine(results: list[Result]) -> None:
    line = results[0].model_dump_json()
    assert Result.model_validate_json(line) == results[0]
    content = json.loads(line)
    assert content["machine"]["cores"] >= 1
    assert content["machine"]["memory_gb"] > 0.5
    assert content["cpu_ratio"] == 2.1235
    assert content["details"] == {"wall_s": 12346, "peers": {"a": 0.1235}}
    assert json.loads(results[1].model_dump_json())["ratio"] is None


def test_a_line_of_another_schema_is_refused(results: list[Result]) -> None:
    content = json.loads(results[0].model_dump_json())
    with pytest.raises(ValidationError, match="load"):
        Result.model_validate({name: content[name] for name in content if name != "load"})
    with pytest.raises(ValidationError, match="ratio_low"):
        Result.model_validate(content | {"ratio_low": 1.0})


def test_results_become_a_table_below_their_machine(results: list[Result]) -> None:
    noisy = results[0].model_copy(update={"disturbed": True})
    title, _, *lines = markdown([*results, noisy]).split("\n")
    assert results[0].machine.processor in title
    assert lines[2].split(" | ")[:3] == ["| `fast`", "1,234,567 tokens/s", "2.5 x"]
    assert "0.9877" in lines[3]
    assert "disturbed" in lines[4]
    assert len({line.count("|") for line in lines}) == 1


def test_command_reads_files_of_lines(
    results: list[Result], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "results.jsonl"
    file.write_text("".join(result.model_dump_json() + "\n" for result in results))
    assert main([str(file)]) == 0
    assert "`row_fill`" in capsys.readouterr().out
    assert main(["--schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert set(schema["properties"]) == set(Result.model_fields)
