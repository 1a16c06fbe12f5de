"""What we write, the library transformers loads as it is, and it computes the same."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from pipeline_config import PipelineConfig
from pipeline_store.formats import ModelExports
from pipeline_store.layout import ExportsLayout
from tests.parity.conftest import RunTorch
from tests.training.corpora import TOKENS, TinyStore, tiny_config
from tests.training.exporting.test_export_text import of_the_data_job, texts, wordpiece
from tests.training.jobs import train
from training import export_model
from training.architectures.models import build_model
from training.exporting.hugging_face import write_configuration
from training.exporting.tokenizer_files import wordpiece_tokenizer, write_tokenizer
from training.model.checkpoints import load_weights

pytestmark = pytest.mark.parity

CLOSE = 1e-4
MASKED = ["w7 W8 [MASK] w10 w11", "[MASK] w9 [MASK]", "w20 w21 w22 [MASK]"]
MODELS = {
    "masked_lm": {},
    "pairs": {"masking__packing": "segment_pair", "model__hidden_act": "gelu_new"},
}


@dataclass
class Read:
    """An exported model, what it computes here, and what transformers makes of its folder."""

    config: PipelineConfig
    saved_model: Path
    model: Any
    rows: dict[str, np.ndarray]
    found: dict[str, Any]
    arrays: dict[str, np.ndarray]


@pytest.fixture(scope="module", params=MODELS)
def read(
    request: pytest.FixtureRequest, run_torch: RunTorch, tmp_path_factory: pytest.TempPathFactory
) -> Read:
    """Train, export and read one of the models."""
    changes = MODELS[request.param]
    config = tiny_config(training__train_steps=60, optimizer__learning_rate=1e-2, **changes)
    folder = tmp_path_factory.mktemp(request.param)
    store = TinyStore.create(folder / "store", config)
    run = store.run("run")
    assert train(store, run, store.partition("2026-01-01")) == 0
    arguments = ["--store", store.layout.root, "--config", run.config, "--output", f"{folder}/out"]
    assert export_model.main([*arguments, "--model", run.training.root]) == 0
    layout = ExportsLayout(f"{folder}/out")
    formats = ModelExports.load(layout.record).formats

    model = build_model(config)
    load_weights(model, run.training.root)
    random = np.random.default_rng(1)
    mask = (np.arange(16) < [[16], [9]]).astype(np.int32)
    rows = {
        "input_ids": random.integers(5, 300, (2, 16)).astype(np.int32) * mask,
        "attention_mask": mask,
        "token_type_ids": (np.arange(16) > 6).astype(np.int32) * mask,
    }
    asked = {
        "texts": MASKED,
        "masked": MASKED,
        "pairs": request.param == "pairs",
        "rows": {name: values.tolist() for name, values in rows.items()},
    }
    (folder / "asked.json").write_text(json.dumps(asked))
    exported = Path(layout.root, formats["hugging_face"].folder)
    program, result = Path(__file__).with_name("read_exports.py"), folder / "result.npz"
    printed = run_torch(program, exported, folder / "asked.json", result)
    return Read(
        config=config,
        saved_model=Path(layout.root, formats["saved_model"].folder),
        model=model,
        rows=rows,
        found=json.loads(printed.splitlines()[-1]),
        arrays=dict(np.load(result)),
    )


def test_no_weight_is_missing_or_left_over(read: Read) -> None:
    assert (read.found["class"], read.found["tokenizer"]) == ("BertForMaskedLM", "BertTokenizer")
    assert read.found["missing_keys"] == read.found["mismatched_keys"] == []
    dropped = [f"bert.pooler.dense.{part}" for part in ("bias", "weight")]
    dropped += [f"cls.seq_relationship.{part}" for part in ("bias", "weight")]
    # Google's own folders are the same: BertForMaskedLM has no place for these.
    assert read.found["unexpected_keys"] == (dropped if "pairs" in read.found else [])
    if "pairs" in read.found:
        assert not any(read.found["pairs"].values())


def test_outputs_are_the_same(read: Read) -> None:
    outputs = read.model(
        {
            "input_word_ids": read.rows["input_ids"],
            "input_mask": read.rows["attention_mask"],
            "input_type_ids": read.rows["token_type_ids"],
            "masked_lm_positions": np.tile(np.arange(16, dtype=np.int32), (2, 1)),
        }
    )
    ours = {"hidden_states": outputs["sequence_output"], "logits": outputs["mlm_logits"]}
    if "pairs" in read.found:
        ours["next_sentence"] = outputs["next_sentence"]
    differences = {n: float(np.abs(ours[n] - v).max()) for n, v in read.arrays.items()}
    print(differences)
    assert differences.keys() == ours.keys()
    assert max(differences.values()) < CLOSE


def test_masks_are_filled_with_the_same_words_in_all_formats(read: Read) -> None:
    signatures = tf.saved_model.load(str(read.saved_model)).signatures
    words = signatures["fill_mask"](text=tf.constant(MASKED))["tokens"].numpy()
    in_saved_model = [[[w.decode() for w in five] for five in row if five[0]] for row in words]
    encoded = signatures["encode"](text=tf.constant(MASKED))
    ids, mask = encoded["input_word_ids"].numpy(), encoded["input_mask"].numpy()
    assert read.found["ids"] == [row[: m.sum()].tolist() for row, m in zip(ids, mask, strict=True)]
    positions = np.tile(np.arange(ids.shape[1], dtype=np.int32), (len(ids), 1))
    inputs = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": np.zeros_like(ids)}
    logits = read.model(inputs | {"masked_lm_positions": positions})["mlm_logits"].numpy()
    best = np.argsort(-logits[:, :, : len(TOKENS)], axis=2)[:, :, :5]
    here = [
        [[TOKENS[number] for number in five] for five in row[row_ids == 4]]
        for row, row_ids in zip(best, ids, strict=True)
    ]
    assert [len(row) for row in here] == [1, 2, 1]
    assert read.found["words"] == in_saved_model == here


@pytest.mark.parametrize(
    ("do_lower_case", "normalization"), [(True, "NFC"), (False, "NFC"), (False, "none")]
)
def test_text_has_the_data_jobs_tokens(
    run_torch: RunTorch, tmp_path: Path, do_lower_case: bool, normalization: str
) -> None:
    vocabulary = wordpiece(do_lower_case)
    tokenizer = wordpiece_tokenizer(
        vocabulary.tokens, do_lower_case=do_lower_case, normalization=normalization
    )
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    write_configuration(folder, tiny_config().model)
    write_tokenizer(
        folder,
        vocabulary,
        tokenizer,
        do_lower_case=do_lower_case,
        max_seq_length=512,
        inputs=["input_ids", "token_type_ids", "attention_mask"],
    )
    # Special tokens that are written in a text are special there. Composed text, which the data
    # job has made of it, is the same in every form.
    chosen = [unicodedata.normalize("NFC", text) for text in texts() if "[" not in text]
    (tmp_path / "asked.json").write_text(json.dumps({"texts": chosen}))
    program = Path(__file__).with_name("read_exports.py")
    printed = run_torch(program, folder, tmp_path / "asked.json", tmp_path / "none.npz")
    found = json.loads(printed.splitlines()[-1])
    assert found["length"] == 512
    wanted = of_the_data_job(vocabulary, do_lower_case, chosen)
    assert found["ids"] == [[2, *ids, 3] for ids in wanted]
