"""The ``README.md`` of a Hugging Face folder with a classifier: what it is, how to use it."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline_config.training_schema import ModelConfig
from pipeline_store.formats import TaskSplit, TrialScores
from trained_models.architectures.architecture import Architecture, architecture_of
from training.finetuning.exporting.chosen import ChosenTrial

_KINDS = {
    "classification": "one of {labels} labels",
    "multi_label": "any of {labels} labels",
    "regression": "a number",
}
# With more labels, a card would consist of nothing else.
_MOST_LABELS = 50


def render(chosen: ChosenTrial, model: ModelConfig) -> str:
    """Return the card as Markdown.

    :param model: architecture of the encoder.
    """
    return "\n".join(_lines(chosen, architecture_of(model))) + "\n"


def _lines(chosen: ChosenTrial, architecture: Architecture) -> Iterator[str]:
    task, manifest, result = chosen.task, chosen.manifest, chosen.result
    trial, settings = result.trial, result.settings
    texts = "a text" if task.text_pair_column is None else "a pair of texts"
    answer = _KINDS[task.kind].format(labels=len(manifest.labels))
    yield "---\nlibrary_name: transformers\npipeline_tag: text-classification"
    yield f"tags:\n- {architecture.hugging_face.model_type}\n---\n"
    yield f"# {architecture.title} for the task {trial.task}\n"
    yield f"Of {texts} it tells {answer}{_names(manifest.labels)}.\n"
    yield from _use(chosen)
    yield "## Training\n"
    version = result.encoder.version_id
    yield (
        f"{f'Model version {version}' if version else 'An encoder'}, fine-tuned on "
        f"{result.train_examples} examples for {result.train_steps} steps of "
        f"{settings['global_batch_size']}, {manifest.max_seq_length} tokens each, at "
        f"{trial.learning_rate:g} from seed {trial.random_seed}.\n"
    )
    scores = result.scores.get(TaskSplit.TEST)
    if scores is not None:
        yield from _scores(scores)
    yield "## Limits\n"
    yield f"- Longer input than {manifest.max_seq_length} tokens was not seen; cut it."
    if task.text_pair_column is not None:
        yield (
            "- Pairs that are too long are cut by transformers a token differently than in "
            "training: if both are cut, and the second is not the shorter one, it keeps one more."
        )
    yield "- Scores are those of the test examples; text of another kind may be another matter."


def _names(labels: list[str]) -> str:
    shown = ", ".join(f"`{label}`" for label in labels[:_MOST_LABELS])
    more = ", …" if len(labels) > _MOST_LABELS else ""
    return f": {shown}{more}" if labels else ""


def _use(chosen: ChosenTrial) -> Iterator[str]:
    task = chosen.task
    inputs = '"A text."' if task.text_pair_column is None else (
        '{"text": "A text.", "text_pair": "Another one."}'
    )  # fmt: skip
    wanted = {
        "classification": "top_k=None",
        "multi_label": 'top_k=None, function_to_apply="sigmoid"',
        "regression": 'function_to_apply="none"',
    }[task.kind]
    yield "```python"
    yield "from transformers import pipeline\n"
    yield 'classify = pipeline("text-classification", model="THIS_FOLDER")'
    limit = f"truncation=True, max_length={chosen.manifest.max_seq_length}"
    yield f"classify({inputs}, {wanted}, {limit})"
    yield "```\n"


def _scores(scores: TrialScores) -> Iterator[str]:
    yield f"On {scores.examples} test examples:\n"
    yield "| metric | value |\n|---|---|"
    yield from (f"| {name} | {value:.4f} |" for name, value in scores.metrics.items())
    yield ""
