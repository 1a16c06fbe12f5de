"""The ``README.md`` of a Hugging Face folder: what the model is, and how to use it."""

from __future__ import annotations

from collections.abc import Iterator

from corpus.tokens.bpe_model import ROBERTA_NAMES
from corpus.tokens.vocabulary import MASK
from pipeline_config.training_schema import ModelConfig
from pipeline_store.formats import TrainingInputs, VocabularyInfo
from trained_models.architectures.architecture import (
    Architecture,
    HuggingFaceForm,
    architecture_of,
)
from trained_models.heritage import of_inputs, short_name
from trained_models.record_sources import NEXT_SENTENCE_PACKING

_FRONT = """\
---
library_name: transformers
pipeline_tag: fill-mask
tags:
- {tag}
---
"""


def render(model: ModelConfig, vocabulary: VocabularyInfo, inputs: TrainingInputs) -> str:
    """Return the card as Markdown.

    :param inputs: training inputs of the model.
    """
    settings, architecture = inputs.settings, architecture_of(model)
    front = _FRONT.format(tag=architecture.hugging_face.model_type)
    case = "lower-cases text and removes accents" if vocabulary.do_lower_case else "keeps case"
    is_bpe = vocabulary.vocabulary_kind == "bpe"
    kind, mask = ("byte-level BPE", ROBERTA_NAMES[MASK]) if is_bpe else ("WordPiece", MASK)
    lines = [
        front,
        f"# {architecture.title}, {model.num_hidden_layers} layers of {model.hidden_size}\n",
        (
            f"Masked language model: {model.num_attention_heads} heads, feed-forward "
            f"{model.intermediate_size}, {model.max_position_embeddings} positions, "
            f"{model.hidden_act}; {vocabulary.size} {kind} tokens, the tokenizer {case}.\n"
        ),
        "```python",
        "from transformers import pipeline\n",
        'fill = pipeline("fill-mask", model="THIS_FOLDER")',
        f'fill("It is a {mask}.")',
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
        *_new_head(inputs),
        "## Limits\n",
        "- Nothing but the pretraining tasks was measured. It repeats what its text says.",
        f"- Longer input than {settings['masking.max_seq_length']} tokens was not seen lately.",
        *_pooler(inputs, architecture),
        *_sentence_embedding(inputs),
    ]
    return "\n".join(lines) + "\n"


def _new_head(inputs: TrainingInputs) -> Iterator[str]:
    kept = of_inputs(inputs)
    if kept is None or (head := kept.new_head) is None:
        return
    if head.loss is None:
        how = "No training of the head alone came before."
    else:
        how = (
            f"It was trained alone for {head.steps} steps, the encoder held still, to a training "
            f"loss of {head.loss:.4f} nats per token: that of the encoder as it was published, "
            "under a head that has learned. The training above went on from there."
        )
    yield f"The masked-LM head is new: the weights that the lineage began with had none. {how}\n"


def _sentence_embedding(inputs: TrainingInputs) -> Iterator[str]:
    kept = of_inputs(inputs)
    if kept is not None and kept.sentence_transformers:
        yield (
            '- `SentenceTransformer("THIS_FOLDER")` reads it as it did the weights that the '
            "lineage began with: the files of sentence-transformers are theirs. But the sentence "
            "embedding was not trained: masked-LM updates have changed the layers that it is made "
            "of. Measure it before use, and never mix its vectors with those of another version."
        )


def _pooler(inputs: TrainingInputs, architecture: Architecture) -> Iterator[str]:
    if architecture.has_pooler:
        yield f"- {_of_pooler(inputs, architecture.hugging_face)}"


def _of_pooler(inputs: TrainingInputs, form: HuggingFaceForm) -> str:
    if inputs.settings["masking.packing"] == NEXT_SENTENCE_PACKING:
        return (
            f"Pooler and next-sentence head are in it; `{form.masked_lm}` has neither and says so "
            "when it loads. `BertForPreTraining` has both."
        )
    kept = of_inputs(inputs)
    if kept is None:
        return (
            "There is no pooler: it is not recorded whether anything trained it. "
            f"`{form.encoder}` makes a random one."
        )
    if not kept.has_pooler:
        return f"There is no pooler: nothing trained it. `{form.encoder}` makes a random one."
    if kept.pooler_trained:
        origin = "was trained with next sentences in an earlier run"
    else:
        source = short_name(kept.pooler_from or "")
        origin = f"is, unchanged, that of `{source}`, which the lineage began with"
    return (
        f"The pooler {origin}. The layers below it were trained on since, without it, so that it "
        "gets other input than it learned from: measure it before use, or fine-tune it. "
        f"`{form.masked_lm}` has no pooler and says so when it loads; `{form.encoder}` has it."
    )
