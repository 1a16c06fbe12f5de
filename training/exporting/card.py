"""The ``README.md`` of a Hugging Face folder: what the model is, and how to use it."""

from __future__ import annotations

from pipeline_config.schema import ModelConfig
from pipeline_store.formats import TrainingInputs, VocabularyInfo

_FRONT = """\
---
library_name: transformers
pipeline_tag: fill-mask
tags:
- bert
---
"""


def render(model: ModelConfig, vocabulary: VocabularyInfo, inputs: TrainingInputs) -> str:
    """Return the card as Markdown.

    :param inputs: what the model was trained with.
    """
    settings = inputs.settings
    pairs = settings["masking.packing"] == "segment_pair"
    case = "lower-cases text and removes accents" if vocabulary.do_lower_case else "keeps case"
    lines = [
        f"{_FRONT}\n# BERT, {model.num_hidden_layers} layers of {model.hidden_size}\n",
        (
            f"Masked language model: {model.num_attention_heads} heads, feed-forward "
            f"{model.intermediate_size}, {model.max_position_embeddings} positions, "
            f"{model.hidden_act}; {vocabulary.size} WordPiece tokens, the tokenizer {case}.\n"
        ),
        "```python",
        "from transformers import pipeline\n",
        'fill = pipeline("fill-mask", model="THIS_FOLDER")',
        'fill("It is a [MASK].")',
        "```\n",
        "## Training\n",
        (
            f"The last {settings['training.train_steps']} steps of "
            f"{settings['training.global_batch_size']} rows, "
            f"{settings['masking.max_seq_length']} tokens each, with "
            f"{settings['optimizer.type']} at {settings['optimizer.learning_rate']:g}; "
            f"{settings['masking.masked_lm_prob']:.0%} of the tokens masked by "
            f"{settings['masking.unit']}. Data, scores and limits are in `MODEL_CARD.md` of the "
            "model version that this folder belongs to.\n"
        ),
        "## Limits\n",
        "- Nothing but the pretraining tasks was measured. It repeats what its text says.",
        f"- Longer input than {settings['masking.max_seq_length']} tokens was not seen lately.",
        (
            "- Pooler and next-sentence head are in it; `BertForMaskedLM` has neither and says so "
            "when it loads. `BertForPreTraining` has both."
            if pairs
            else "- There is no pooler: nothing trained it. `BertModel` makes a random one."
        ),
    ]
    return "\n".join(lines) + "\n"
