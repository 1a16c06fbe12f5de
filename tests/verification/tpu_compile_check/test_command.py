"""The command line: exit codes, JSON lines on stdout, people's words on stderr."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pipeline_config import load_preset, with_overrides
from preflight.compiled.errors import CheckError
from preflight.compiled.slices import CHIPS
from verification.tpu_compile_check import check as checking
from verification.tpu_compile_check.__main__ import main
from verification.tpu_compile_check.compiling import compile_program

SMALL = ["--preset", "bert_base_v5e_smoke", "--set", "model.num_hidden_layers=1"]


@pytest.mark.thorough
def test_export_only_writes_program_and_description(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "programs"
    # As in a preset whose plan decides the steps.
    auto = ["--set", "training.train_steps=auto", "--set", "training.max_passes=40"]
    assert main([*SMALL, *auto, "--export-only", "--keep", str(folder)]) == 0
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    # A global batch of 32 over the eight chips of v5litepod-8.
    assert line["name"] == "bert_1x128_4x128"
    assert line["batch"]["batch_input_word_ids"] == ["s32", 4, 128]
    assert Path(line["path"]).stat().st_size == line["hlo_bytes"]
    description = json.loads((folder / "bert_1x128_4x128.hlo.json").read_text())
    assert len(description["arguments"]) == line["arguments"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "no_such"], "no_such"),
        ([*SMALL, "--set", "model.hidden_size=0"], "model.hidden_size"),
        ([*SMALL, "--set", "tpu.accelerator_type=v9-8"], "v9-8"),
        ([*SMALL, "--set", "training.global_batch_size=4"], "4 rows"),
    ],
)
def test_what_cannot_be_checked_is_refused_before_tensorflow_works(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 40
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err


def test_missing_compiler_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(CheckError, match="make tpu-compile-check"):
        compile_program(tmp_path / "x.hlo.pb", CHIPS["v5e"], compiler=tmp_path / "python")


def test_failing_compiler_shows_the_end_of_its_log(tmp_path: Path) -> None:
    # The interpreter of the tests: it has no TPU compiler, so the compile side ends with an error.
    program = tmp_path / "x.hlo.pb"
    program.write_bytes(b"")
    lines: list[str] = []
    with pytest.raises(CheckError, match=r"(?s)ended with code 1.*ModuleNotFoundError"):
        compile_program(program, CHIPS["v5e"], compiler=Path(sys.executable), report=lines.append)
    assert lines[0] == "x: compiling for v5e ..."


def test_comparison_is_at_dropout_0_and_dropout_is_compiled_as_well(tmp_path: Path) -> None:
    def names(
        dropout: float,
        step: str = "train",
        compare_plain: bool = True,
        activation: str = "gelu",
    ) -> list[str]:
        overrides = {"model.hidden_dropout_prob": dropout, "model.hidden_act": activation}
        request = checking.Request(
            config=with_overrides(load_preset("bert_base_v5e"), overrides),
            chip=CHIPS["v5e"],
            folder=tmp_path,
            compiler=tmp_path,
            report=lambda line: None,
            step=step,
        )
        return [str(w) for _, w in checking.programs(request, compare_plain=compare_plain)]

    base = "bert_base_256x128"
    peers = ["tf_models_default", "tf_models_same_activation"]
    trained = [f"{base}_{peer}" for peer in peers]
    assert names(0.0) == [*trained, base]
    assert names(0.1) == [*trained, base, f"{base}_dropout0.1"]
    assert names(0.1, compare_plain=False) == [f"{base}_dropout0.1"]
    evaluated = [f"{base}_evaluation_{peer}" for peer in peers]
    assert names(0.1, step="evaluation") == [*evaluated, f"{base}_evaluation"]
    # Then the two are one program.
    assert names(0.0, activation="gelu_new") == [trained[0], base]


def test_each_peer_is_compared_and_dropout_only_with_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cycles = iter([400, 500, 300, 900])

    def compiled(*_: object) -> dict[str, object]:
        figures = dict.fromkeys(("hbm_bytes", "flops", "bytes_accessed"), 10**9)
        rest = {"fits": True, "unknown_loops": 0, "versions": {"libtpu": "1"}}
        return figures | rest | {"estimated_cycles": next(cycles) * 10**6}

    monkeypatch.setattr(checking, "_compile", compiled)
    overrides = {"model.hidden_dropout_prob": 0.1, "training.train_steps": 20_000}
    config = with_overrides(load_preset("bert_base_v5e"), overrides)
    request = checking.Request(config, CHIPS["v5e"], tmp_path, tmp_path, lambda line: None)
    found = list(checking.check(request, compare_plain=True))
    ratios = {row.name: row.cycles_ratio for _, _, rows in found for row in rows}
    ours = "bert_base_256x128_v5e"
    assert ratios == {
        f"{ours}_vs_tf_models_default": 0.75,
        f"{ours}_vs_tf_models_same_activation": 0.6,
        f"{ours}_dropout0.1_vs_ours": 3.0,
    }
    # The same work for all, whatever they compute.
    assert len({figures.model_tflop for _, figures, _ in found}) == 1
    assert found[0][1].model_tflop == pytest.approx(18.1, rel=0.02)
