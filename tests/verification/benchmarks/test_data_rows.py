from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from verification.benchmarks.data import bench as benching
from verification.benchmarks.data import processes
from verification.benchmarks.data.bench import Bench, Sizes
from verification.benchmarks.data.corpus import gather
from verification.benchmarks.data.peers import command
from verification.benchmarks.data.processes import CommandFailedError, Usage, run
from verification.benchmarks.data.rows import GROUPS


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("bench")
    tree = folder / "tree"
    tree.mkdir()
    for name in ("argparse", "json", "logging", "typing", "unittest"):
        module = pytest.importorskip(name)
        (tree / f"{name}.py").write_text(Path(module.__file__).read_text())
    corpus = gather({"library": [tree]}, folder / "corpus")
    command.train(corpus.take(None)[0], corpus.vocabulary, 500)
    return Bench(corpus, folder / "work", Sizes(near=None), repeats=2)


@pytest.mark.parametrize("name", ["tokenizer_vs_raw_tokenizer", "bpe_vs_raw_tokenizer"])
def test_a_row_is_measured(bench: Bench, name: str) -> None:
    (row,) = GROUPS[name](bench)
    assert (row.name, row.unit) == (name, "tokens/s")
    # Both tokenize the same text to the same number of tokens.
    assert row.details["tokens"] == row.details["peer_tokens"] > 1000
    assert row.value > 0
    assert row.peak_rss_mb is not None
    assert row.peak_rss_mb > 10
    # The rounds of either side are known.
    assert row.spread is not None
    assert row.spread >= 1
    assert row.best_ratio is not None


def used(seconds: float) -> Usage:
    return Usage(seconds, 0.9 * seconds, 100.0, {"seconds": 0.1 * seconds})


def test_the_round_in_the_middle_counts_and_all_are_kept(bench: Bench) -> None:
    several = Bench(bench.corpus, bench.corpus.folder, Sizes(), repeats=3)
    rounds = iter([used(3.0), used(1.0), used(2.0)])
    usage, _ = several._median("what", lambda: (next(rounds), None))
    assert (usage.wall_s, usage.rounds_s, usage.best_s) == (2.0, (3.0, 1.0, 2.0), 1.0)
    # Start-up does not count where only what follows it is compared.
    rounds = iter([used(3.0), used(1.0), used(2.0)])
    usage, _ = several._median(
        "what", lambda: (next(rounds), None), lambda usage: float(usage.result["seconds"])
    )
    assert usage.best_s == pytest.approx(0.1)


def test_a_long_run_has_two_rounds(bench: Bench) -> None:
    several = Bench(bench.corpus, bench.corpus.folder, Sizes(), repeats=3)
    rounds = iter([used(30.0), used(29.0), used(1.0)])
    usage, _ = several._median("what", lambda: (next(rounds), None))
    assert usage.rounds_s == (30.0, 29.0)


def test_what_was_run_is_run_again_when_it_is_forgotten(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = Bench(bench.corpus, bench.corpus.folder, Sizes(), repeats=1)
    calls: list[str] = []

    def run(module: str, *_: object) -> Usage:
        calls.append(module)
        return used(1.0)

    monkeypatch.setattr(benching, "run_tokenizer", run)
    for _ in range(2):
        several.tokenizer("raw_tokenizer", None, Path("vocabulary"))
    assert len(calls) == 1
    several.forget()
    several.tokenizer("raw_tokenizer", None, Path("vocabulary"))
    assert len(calls) == 2


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
