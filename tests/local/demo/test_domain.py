"""`make demo-domain`: its text, its request, and when it says "promoted"."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from local.demo.domain import leaving, settings, text
from local.demo.domain.figures import figures
from local.demo.follow import DemoError
from local.demo.tasks.modules import Use, harvest
from local.stack.settings import PRESET
from model_registry import gate
from pipeline_config import load_preset, with_overrides
from pipeline_config.training_schema import PromotionConfig
from pipeline_store.formats import EvaluationReport
from pipeline_store.layout import StoreLayout
from tests.local.demo.docstrings import documented
from tests.model_registry.test_gate import NEW, OLD, VERSION, Documents, report
from tests.model_registry.test_gate_probes import comparison, probe
from tests.model_registry.test_gate_retrieval import measured, ranks_of
from tests.training.importing.test_import_hugging_face import only
from tests.training.pretrained import bert_weights, write_hugging_face

COUNT = 100


def documents_of(folder: Path, partition: str) -> list[str]:
    lines = (folder / partition / "text.jsonl").read_text().splitlines()
    return [json.loads(line)["text"] for line in lines]


@pytest.mark.thorough
def test_partitions_have_other_packages_and_no_module_of_the_task(tmp_path: Path) -> None:
    found = harvest(max_characters=30_000)
    for partition in (text.DOMAIN, text.GENERAL):
        count = text.write_partition(found, partition, tmp_path)
        written = documents_of(tmp_path, partition)
        assert len(written) == count > 10
        other = [
            part
            for docstring in found
            if docstring.use is not Use.PRETRAINING
            or docstring.package not in text.PACKAGES[partition]
            for part in docstring.paragraphs
        ]
        lines = {line for document in written for line in document.splitlines()}
        assert not lines & set(other)


def test_documents_of_a_module_stay_together(tmp_path: Path) -> None:
    text.write_partition(harvest(max_characters=30_000), text.DOMAIN, tmp_path)
    lines = (tmp_path / text.DOMAIN / "text.jsonl").read_text().splitlines()
    modules = [json.loads(line)[text.GROUP] for line in lines]
    assert len(set(modules)) < len(modules)
    assert {module.partition("/")[0] for module in modules} <= {*text.PACKAGES[text.DOMAIN]}


def test_packages_have_equal_parts(tmp_path: Path) -> None:
    text.write_partition(harvest(max_characters=60_000), text.DOMAIN, tmp_path, 7 * 5_000)
    # A document is not cut, so each has a little more.
    total = sum(map(len, documents_of(tmp_path, text.DOMAIN)))
    assert total > 7 * 5_000 * 0.8


def test_the_task_is_small_and_of_the_domain() -> None:
    task = text.labelled_task(documented(4000))
    assert sum(map(len, task.splits.values())) <= 1000
    labels = {example.label for part in task.splits.values() for example in part}
    assert labels <= set(text.PACKAGES[text.DOMAIN])


def test_the_request_fits_the_encoder_and_the_preset(tmp_path: Path) -> None:
    store = StoreLayout(str(tmp_path / "store"))
    weights = only(bert_weights(), "bert.")
    positions = weights["bert.embeddings.position_embeddings.weight"]
    weights["bert.embeddings.position_embeddings.weight"] = np.tile(positions, (4, 1))
    source = write_hugging_face(tmp_path / "hf", weights, {"max_position_embeddings": 96})
    encoder = settings.put_encoder(Path(source), store)
    assert settings.put_encoder(Path(source), store) == encoder
    asked = settings.request(store, encoder)
    config = with_overrides(load_preset(PRESET), asked)
    assert config.model.init_encoder_only
    assert Path(store.root, config.model.init_checkpoint or "").is_dir()
    assert Path(store.root, config.vocabulary.uri or "").is_file()
    assert config.training.head_steps == config.training.train_steps == settings.STEPS


WRITTEN = {"folder": "/x/hf", "rows": 16, "masks": 90, "max_logit_difference": 2e-6, "bytes": 1}
SAME = {
    "transformers": "5.0",
    "rows": 16,
    "masks": 90,
    "max_logit_difference": 5e-4,
    "largest_logit": 10.0,
    "max_embedding_difference": 1e-6,
}


class Commands:
    """The commands of the export, which runs none; what transformers says is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, found: dict[str, Any] | None) -> None:
        self.words: tuple[str, ...] = ()
        torch = Path(__file__) if found else Path("/no/such/python")
        monkeypatch.setattr(leaving, "TORCH_PYTHON", torch)
        monkeypatch.setattr(leaving, "run_module", self._run)
        monkeypatch.setattr(leaving, "_in_transformers", lambda *_: dict(found or {}))

    def _run(self, module: str, *words: str) -> str:
        assert module == "training.export_model"
        self.words = words
        return json.dumps({"hugging_face": WRITTEN})

    def export(self) -> dict[str, Any]:
        store = StoreLayout("/store")
        return leaving.export(store, store.run("key"), lambda _: None)


def test_the_candidate_leaves_whatever_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = Commands(monkeypatch, SAME)
    assert commands.export() == {
        "folder": "/x/hf",
        "compared_in": "transformers 5.0",
        **{name: value for name, value in SAME.items() if name != "transformers"},
    }
    run = StoreLayout("/store").run("key")
    words = dict(zip(commands.words[::2], commands.words[1::2], strict=True))
    assert (words["--model"], words["--output"]) == (run.training.root, run.exports.root)


def test_without_transformers_the_exporters_own_comparison_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands = Commands(monkeypatch, None)
    found = commands.export()
    assert found["compared_in"] == "training.export_model"
    assert found["max_logit_difference"] == 2e-6
    assert "--reference" not in commands.words


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_logit_difference": 1e-3},
        {"max_logit_difference": float("nan")},
        {"max_embedding_difference": 1e-4},
    ],
)
def test_what_is_not_the_model_in_transformers_is_refused(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, float]
) -> None:
    commands = Commands(monkeypatch, SAME | wrong)
    with pytest.raises(DemoError, match="/x/hf is not the model in transformers: logits differ by"):
        commands.export()


def evaluation(gain: float, unigram: float = 6.5) -> EvaluationReport:
    """Return the report of a model that is so much better than the imported one."""
    sets = [Documents(NEW), Documents(OLD, seed=1)]
    candidate, baseline = [], []
    for documents, shift in zip(sets, (-gain, 0.05), strict=True):
        candidate.append(measured(documents.score(shift), ranks_of(30, COUNT)))
        baseline.append(measured(documents.score(0, 0), ranks_of(50, COUNT)))
    found = report(candidate, baseline, {NEW: unigram, OLD: unigram})
    models = [*found.models]
    models[1] = models[1].model_copy(update={"model_uri": "/store/runs/held-still/training"})
    return found.model_copy(update={"models": models})


@pytest.mark.parametrize(
    ("gain", "unigram", "expected"),
    [
        (0.3, 6.5, "promoted"),
        (-0.3, 6.5, "rejected: worse"),
        (0.0, 6.5, "rejected: not enough evidence"),
        # Better than the encoder, and not than the frequencies of tokens.
        (0.3, 4.0, "rejected: worse"),
    ],
)
def test_promoted_is_what_is_better_than_both(gain: float, unigram: float, expected: str) -> None:
    promotion = PromotionConfig(probe_tasks=["things"])
    dag = gate.judge(
        report([Documents(NEW).score(-0.3)], [Documents(NEW).score(0, 0)]),
        PromotionConfig(),
        baseline_version=VERSION,
    )
    found = figures(
        evaluation(gain, unigram),
        promotion,
        general=OLD,
        verdict=dag,
        probe=probe(comparison("things", 0.05)),
    )
    assert found["verdict"] == expected
    assert found["imported_loss"] - found["continued_loss"] == pytest.approx(gain, abs=0.01)
    mean, low, high = found["better_than_imported"]
    assert low < mean < high
    assert found["old_text_loss"]["difference"][0] == pytest.approx(0.05, abs=0.01)
    assert (found["retrieval"]["before"], found["retrieval"]["after"]) == (0.5, 0.3)
    [task] = found["downstream"]
    assert task["after"] - task["before"] == pytest.approx(0.05)
