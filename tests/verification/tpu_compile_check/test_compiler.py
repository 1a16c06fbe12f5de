"""The real compiler on tiny programs; skipped where its environment was not made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from verification.tpu_compile_check.__main__ import main
from verification.tpu_compile_check.compiling import DEFAULT_COMPILER

pytestmark = [
    pytest.mark.tpu_compiler,
    pytest.mark.skipif(
        not DEFAULT_COMPILER.exists(), reason="no TPU compiler; make it: make tpu-compile-check"
    ),
]

TINY = [
    *("--preset", "bert_base_v5e_smoke", "--set", "model.num_hidden_layers=1"),
    *("--set", "model.vocab_size=512", "--set", "vocabulary.size=512"),
    *("--set", "masking.max_predictions_per_seq=20"),
]


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_ours_and_plain_are_compiled_and_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "programs"
    assert main([*TINY, "--rows", "8", "--compare-plain", "--keep", str(folder)]) == 0
    default, same, ours, against_default, against_same = lines(capsys)
    name = "bert_1x128_8x128_v5e"
    assert ours["name"] == name
    for peer, found, source in (
        (default, against_default, "tf_models_default"),
        (same, against_same, "tf_models_same_activation"),
    ):
        assert (peer["name"], found["name"]) == (f"{name}_{source}", f"{name}_vs_{source}")
        ratio = ours["estimated_cycles"] / peer["estimated_cycles"]
        assert found["cycles_ratio"] == pytest.approx(ratio, abs=1e-4)
    assert 0 < ours["peak_share"] < 1
    # Model, gradients and two slots of at least 4 bytes for each of some 400,000 weights.
    assert 4e6 / 2**30 < ours["hbm_gib"] < 1.0
    # Six operations a weight and token, for the weights of the layer alone.
    weights = 12 * 128 * 128
    assert 6 * weights * 8 * 128 / 1e12 < ours["tflop"] < 100 * 6 * weights * 8 * 128 / 1e12
    assert "estimated_cycles" in (folder / "bert_1x128_8x128.hlo.v5e.txt").read_text()


def test_evaluation_step_compiles_for_another_chip(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TINY, "--rows", "8", "--evaluation", "--topology", "v6e"]) == 0
    (line,) = lines(capsys)
    assert line["name"] == "bert_1x128_8x128_v6e_evaluation"


@pytest.mark.parametrize("chip", ["v5e", "v6e"])
@pytest.mark.parametrize("hidden_act", ["relu", "gelu_new"])
def test_a_t5_compiles(capsys: pytest.CaptureFixture[str], chip: str, hidden_act: str) -> None:
    preset = ["--preset", "t5_base_v5e", "--set", f"model.hidden_act={hidden_act}"]
    sizes = {
        "model.hidden_size": 128,
        "model.num_attention_heads": 2,
        "model.num_hidden_layers": 1,
        "model.intermediate_size": 512,
        "masking.max_seq_length": 128,
        "masking.max_predictions_per_seq": 27,
    }
    own = [word for name, value in sizes.items() for word in ("--set", f"{name}={value}")]
    assert main([*preset, *own, "--rows", "8", "--topology", chip]) == 0
    (line,) = lines(capsys)
    assert line["name"] == f"t5_1x128_8x128_{chip}"
    # What the compiler estimates counts each pass of each layer.
    assert line["unknown_loops"] == 0


def test_batch_that_does_not_fit_is_refused_with_one_that_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wide = ["--set", "model.intermediate_size=32768", "--set", "masking.max_seq_length=512"]
    wide += ["--set", "masking.max_predictions_per_seq=77"]
    assert main([*TINY, *wide, "--rows", "2048", "--max-compiles", "6"]) == 42
    (line,) = lines(capsys)
    assert line["fits"] is False
    assert line["hbm_available_gib"] == 15.75
    assert 0 < line["largest_rows"] < 2048
    assert line["largest_global_batch_size"] == 8 * line["largest_rows"]
