from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from verification.benchmarks.data import processes
from verification.benchmarks.data.bench import Bench, Sizes
from verification.benchmarks.data.corpus import gather
from verification.benchmarks.data.peers import wordpiece
from verification.benchmarks.data.processes import CommandFailedError, run
from verification.benchmarks.data.rows import GROUPS, Row
from verification.benchmarks.data.table import markdown

HEAD = ["name", "value", "unit", "peer", "ratio", "peak_rss_mb"]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("bench")
    tree = folder / "tree"
    tree.mkdir()
    for name in ("argparse", "json", "logging", "typing", "unittest"):
        module = pytest.importorskip(name)
        (tree / f"{name}.py").write_text(Path(module.__file__).read_text())
    corpus = gather({"library": [tree]}, folder / "corpus")
    wordpiece.train(corpus.take(None)[0], corpus.vocabulary, 500)
    return Bench(corpus, folder / "work", Sizes(near=None), repeats=1)


@pytest.mark.parametrize("name", ["tokenizer_vs_raw_tokenizer", "bpe_vs_raw_tokenizer"])
def test_a_row_is_measured_and_is_one_json_object(bench: Bench, name: str) -> None:
    (row,) = GROUPS[name](bench)
    line = json.loads(json.dumps(row.to_json()))
    assert list(line)[:6] == HEAD
    assert line["name"] == name
    assert line["unit"] == "tokens/s"
    # Both tokenize the same text to the same number of tokens.
    assert line["tokens"] == line["peer_tokens"] > 1000
    assert line["value"] > 0
    assert line["peak_rss_mb"] > 10


def test_numbers_are_rounded_and_missing_ones_are_null() -> None:
    row = Row("a", 0.123456, "share", more={"large": 12345.678, "text": "x", "counts": {"b": 1}})
    assert row.to_json() == {
        "name": "a",
        "value": 0.1235,
        "unit": "share",
        "peer": None,
        "ratio": None,
        "peak_rss_mb": None,
        "large": 12346,
        "text": "x",
        "counts": {"b": 1},
    }


def test_memory_of_children_and_cpu_time_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine nobody may look within a fixed time, so the child stays until it was seen.
    seen = tmp_path / "seen"
    look = processes._tree_memory

    def looking(pid: int) -> int:
        found = look(pid)
        if found > 160e6:
            seen.touch()
        return found

    monkeypatch.setattr(processes, "_tree_memory", looking)
    child = "x = bytearray(80_000_000); import os, time; time.sleep(0.6)\n"
    child += f"while not os.path.exists({str(seen)!r}): time.sleep(0.05)"
    parent = (
        "import subprocess, sys, json; y = bytearray(80_000_000);"
        f"subprocess.run([sys.executable, '-c', {child!r}], check=True);"
        "sum(range(3_000_000)); print('noise'); print(json.dumps({'tokens': 7}))"
    )
    usage = run([sys.executable, "-c", parent])
    assert usage.result == {"tokens": 7}
    assert usage.peak_rss_mb > 160
    assert usage.cpu_s > 0
    assert usage.wall_s >= 0.6


@pytest.fixture
def many_open_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2048)), hard))
    with ExitStack() as files:
        for _ in range(1024):
            files.enter_context(open(os.devnull))
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_open_files")
def test_a_process_with_more_open_files_than_select_can_tell_apart_measures() -> None:
    assert run([sys.executable, "-c", "print('{}')"]).result == {}


def test_a_failing_command_is_told_with_its_log() -> None:
    with pytest.raises(CommandFailedError, match=r"exit 3\n(.|\n)*went wrong"):
        run([sys.executable, "-c", "import sys; print('went wrong', file=sys.stderr); sys.exit(3)"])


def test_rows_become_a_table() -> None:
    more = {"input_mb": 40.1, "wall_s": 1.25, "cpu_s": 1.0, "cpu_ratio": 2.0}
    row = Row("fast", 1234567.0, "tokens/s", "slow", 2.5, 301.0, more)
    share = Row("row_fill", 0.98765, "share")
    lines = markdown([row.to_json(), share.to_json()]).split("\n")
    assert lines[2].split(" | ")[:4] == ["| `fast`", "40.1 MB", "1,234,567 tokens/s", "2.5 x"]
    assert "1.2 / 1.0 s" in lines[2]
    assert "0.9877" in lines[3]
    assert len({line.count("|") for line in lines}) == 1
