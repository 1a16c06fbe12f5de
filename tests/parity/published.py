"""A BERT with the layout of BERT-base, as it is published: in three formats, with its vocabulary.

Names, layouts and files are written out here or by tf-models' own converter, not by the code under
test.
"""

from __future__ import annotations

from pathlib import Path

from official.legacy.bert import configs
from official.nlp.tools import tf2_bert_encoder_checkpoint_converter as converter

from tests.model_registry.test_import_command import TOKENS
from tests.training.pretrained import (
    bert_weights,
    write_google,
    write_hugging_face,
    write_vocabulary,
)

Sizes = dict[str, int]

FORMATS = ("hugging_face", "google", "tf_models")
LAYOUT: Sizes = {
    "vocab_size": 320,
    "hidden_size": 96,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 384,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
}
"""Of BERT-base, but narrow: layers of two digits, heads, positions and segments are as there."""
# Of BERT, as layers this deep would saturate with more.
_SCALE = 0.05


def publish(folder: Path, form: str, sizes: Sizes = LAYOUT) -> str:
    """Write a model of random weights in one of the formats; return what an import is given.

    :param folder: a new one.
    :param form: one of :data:`FORMATS`. All have the same weights, and the gelu of their library.
    """
    weights = bert_weights(3, sizes, _SCALE)
    tokens = [*TOKENS, *(f"word{number}" for number in range(len(TOKENS), sizes["vocab_size"]))]
    if form == "hugging_face":
        return write_hugging_face(folder, weights, sizes, tokens=tokens)
    google = folder.with_name("google") if form == "tf_models" else folder
    prefix = write_google(google, weights, sizes, tokens=tokens)
    if form == "google":
        return prefix
    config = configs.BertConfig(**sizes, hidden_act="gelu")
    converter.convert_checkpoint(config, str(folder / "ckpt"), prefix, "model", "pretrainer")
    write_vocabulary(folder, tokens)
    (folder / "bert_config.json").write_bytes((google / "bert_config.json").read_bytes())
    return str(folder / "ckpt-1")
