"""Renders the ``README.md`` of a smaller model: its origin, what it costs and what it saves."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline_config.compression import STUDENT, TFLITE, TRIM, steps_of
from pipeline_store.formats import CompressedModel


def render(child: CompressedModel) -> str:
    """Return the card as Markdown."""
    return "\n".join(_lines(child)) + "\n"


def _lines(child: CompressedModel) -> Iterator[str]:
    parent, found, base = child.parent, child.figures, child.parent_figures
    yield f"# {child.name} of a classifier for the task {child.task}\n"
    of = f", fine-tuned from model version {parent.version_id}" if parent.version_id else ""
    yield f"Made of the classifier {parent.trial_id} of run {parent.run_key}{of}.\n"
    yield from (f"- {line}" for line in _steps(child))
    yield "\n| | parent | this model |\n|---|---|---|"
    yield f"| weights | {base.parameters:,} | {found.parameters:,} |"
    yield f"| MB | {base.megabytes:.2f} | {found.megabytes:.2f} |"
    yield f"| ms a row, median, one thread | {base.p50_ms:.2f} | {found.p50_ms:.2f} |"
    metric = f"{found.metric} on {found.examples} test examples"
    yield f"| {metric} | {base.value:.4f} | {found.value:.4f} |"
    yield f"| loss | {base.loss:.4f} | {found.loss:.4f} |\n"
    comparison = child.comparison
    yield (
        f"The difference of {found.metric} is {comparison.difference:+.4f} (95% interval "
        f"{comparison.interval.low:+.4f} to {comparison.interval.high:+.4f}); "
        f"{comparison.agreement:.2%} of the answers are the parent's.\n"
    )
    yield "```bash"
    yield f'python -m training.serve_check --model THIS_FOLDER/{child.served_as} --text "A text."'
    yield "```\n"
    yield "## Limits\n"
    yield "- Times are of the machine that made it, beside whatever else it did."
    yield "- Scores are those of the test examples; text of another kind may be another matter."
    if TRIM in steps_of(child.name):
        yield "- Words that the task's texts did not have are cut into shorter pieces."


def _steps(child: CompressedModel) -> Iterator[str]:
    steps, settings = steps_of(child.name), child.settings
    if STUDENT in steps:
        yield (
            f"{settings['layers']} of its parent's layers, trained for "
            f"{settings['num_train_epochs']:g} epochs on labels and on its parent's logits"
        )
    if TRIM in steps and child.comparison.covered is not None:
        yield (
            "a vocabulary of the tokens that the task's texts have; it covers "
            f"{child.comparison.covered:.1%} of the test examples"
        )
    if steps[-1] in TFLITE:
        yield f"TensorFlow Lite: {steps[-1].removeprefix('tflite_').replace('_', ' ')}"
