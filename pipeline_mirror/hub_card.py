"""Renders the model card of a version's repository on the Hugging Face Hub, with its metadata.

https://huggingface.co/docs/hub/model-cards
"""

from __future__ import annotations

from collections.abc import Iterator

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from pipeline_config import PipelineConfig, parse_config
from pipeline_store import uris
from pipeline_store.formats import EvaluationReport, ModelVersion, Verdict
from pipeline_store.formats.models import DocumentSetScore
from pipeline_store.layout import VersionLayout
from trained_models.architectures.architecture import architecture_of

_HERE = "THIS_FOLDER"
"""Placeholder in an export's own card for its address."""

_METRICS = {"loss": "loss", "perplexity": "perplexity", "accuracy": "accuracy"}


def render(
    place: VersionLayout, model: ModelVersion, exported: str, *, repository: str, license_id: str
) -> str:
    """Return the card as Markdown with metadata in front.

    Nothing in it names the store, which its readers may not know.

    :param exported: card of the export; empty: it has none.
    :param license_id: the Hub's id of the license; empty: the card names none.
    :raises ValueError: the card would not be valid.
    """
    config = parse_config(uris.read(place.config), place.config)
    report = EvaluationReport.load_or_none(place.evaluation)
    metadata = _metadata(config, model, report, repository, license_id)
    body = _body(exported).replace(_HERE, repository)
    parts = [body or f"# {architecture_of(config.model).title}\n", *_version(model, repository)]
    parts += [*_scores(report, Verdict.load_or_none(place.verdict))]
    text = f"---\n{metadata.to_yaml()}\n---\n" + "\n".join(parts) + "\n"
    # Reads the metadata back, as the Hub will.
    return str(ModelCard(text))


def _metadata(
    config: PipelineConfig,
    model: ModelVersion,
    report: EvaluationReport | None,
    repository: str,
    license_id: str,
) -> ModelCardData:
    return ModelCardData(
        library_name="transformers",
        # The Hub has no task for a T5 that is not fine-tuned.
        pipeline_tag=None if config.model.has_decoder else "fill-mask",
        tags=[architecture_of(config.model).hugging_face.model_type, "continual-pretraining"],
        license=license_id or None,
        language=config.corpus.keep_languages or None,
        model_name=repository.rpartition("/")[2] if report else None,
        eval_results=list(_results(model, report)) if report else None,
    )


def _results(model: ModelVersion, report: EvaluationReport) -> Iterator[EvalResult]:
    for scores in _of("candidate", report):
        for metric, name in _METRICS.items():
            yield EvalResult(
                task_type="fill-mask",
                task_name="masked words of held-out documents",
                dataset_type=f"{model.lineage_id}-held-out",
                dataset_name=f"held-out documents of {scores.set_name}",
                metric_type=metric,
                metric_name=name,
                metric_value=round(float(getattr(scores, metric)), 4),
            )


def _of(name: str, report: EvaluationReport) -> Iterator[DocumentSetScore]:
    for one in report.models:
        if one.name == name:
            yield from one.sets


def _body(exported: str) -> str:
    """Return a card without its metadata, which is written anew."""
    if not exported.startswith("---\n"):
        return exported
    return exported.partition("\n---\n")[2].lstrip("\n")


def _version(model: ModelVersion, repository: str) -> Iterator[str]:
    newest = model.partitions_seen[-1] if model.partitions_seen else "none"
    yield "## This version\n"
    yield "| | |"
    yield "| --- | --- |"
    yield f"| version | `{model.version_id}` |"
    yield f"| continues | {f'`{model.parent}`' if model.parent else 'no earlier version'} |"
    yield f"| parts of the corpus seen | {len(model.partitions_seen):,}, the last `{newest}` |"
    yield f"| steps in all | {model.train_steps_total:,} |"
    yield f"| SHA-256 of the vocabulary | `{model.vocabulary_sha256}` |"
    yield f"| created | {model.created:%Y-%m-%d %H:%M} UTC |"
    yield ""
    yield (
        "`main` is the version in use, which a newer one replaces and a rollback changes back. "
        f'`from_pretrained("{repository}", revision="{model.version_id}")` stays at this one.\n'
    )


def _scores(report: EvaluationReport | None, verdict: Verdict | None) -> Iterator[str]:
    if report is None:
        return
    yield "## Scores\n"
    yield (
        "On held-out documents, which no version was trained on; loss in nats per masked token. "
        "*By frequency* is the loss of naming each token as often as it occurs.\n"
    )
    yield "| documents of | model | documents | loss | perplexity | accuracy | by frequency |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for one, words in (("candidate", "this version"), ("baseline", "the one before")):
        for scores in _of(one, report):
            frequency = report.unigram_losses.get(scores.set_name)
            yield (
                f"| {scores.set_name} | {words} | {len(scores.document_ids):,} | "
                f"{scores.loss:.4f} | {scores.perplexity:.1f} | {scores.accuracy:.1%} | "
                f"{'' if frequency is None else f'{frequency:.4f}'} |"
            )
    yield ""
    if verdict is not None:
        yield f"{verdict.reason}\n"
