"""Writes the model card: what a model is, what it has seen, how good it is, how to use it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipeline_config import PipelineConfig
from pipeline_config.data_schema import MaskingConfig
from pipeline_store.formats import (
    ClassifierCheck,
    EvaluationReport,
    ExportCheck,
    Heritage,
    ModelExports,
    PartitionManifest,
    RunPlan,
    RunRecord,
    Split,
    TextCheck,
    TrainingResult,
    Verdict,
    VocabularyInfo,
)
from pipeline_store.layout import is_head
from trained_models.architectures.architecture import architecture_of
from trained_models.heritage import short_name
from trained_models.updates import effective_config

_KINDS = {
    "wordpiece": "WordPiece",
    "sentencepiece": "SentencePiece",
    "bpe": "byte-level BPE",
    "t5": "SentencePiece",
}


@dataclass(frozen=True)
class ModelFacts:
    """Everything that a model version is made of, besides its weights."""

    version_id: str
    folder: str
    record: RunRecord
    plan: RunPlan
    config: PipelineConfig
    result: TrainingResult
    report: EvaluationReport
    verdict: Verdict
    manifests: dict[str, PartitionManifest]
    manifest_files: dict[str, tuple[bytes, str]]
    """Stored content of each, and its address."""
    vocabulary: bytes
    vocabulary_model: bytes | None
    vocabulary_info: VocabularyInfo
    train_steps_total: int
    checkpoint_prefix: str
    exports: ModelExports
    heritage: Heritage | None


def render(facts: ModelFacts) -> str:
    """Return the card as Markdown."""
    trained = [_data, _training] if facts.plan.trained else []
    parts = [_what, *trained, _evaluation, _formats, _use, _limitations]
    return "\n".join(line for part in parts for line in part(facts)) + "\n"


def _what(facts: ModelFacts) -> Iterator[str]:
    model, record, parent_version = facts.config.model, facts.record, facts.plan.parent_version
    parent = f"`{parent_version}`" if parent_version else _start(facts.config)
    title = architecture_of(model).title
    made = f"A {title} encoder with a masked-language-model head"
    others = sorted({*facts.plan.trained} - {record.partition})
    also = f" and, as nobody had trained on them, on {_names(others)}" if others else ""
    yield f"# {title} {facts.version_id}\n"
    verdict = facts.verdict
    if facts.plan.trained:
        yield (
            f"{made}, re-pretrained on partition `{record.partition}`{also}. "
            f"{verdict.verdict.capitalize()}: {verdict.reason}\n"
        )
    else:
        yield f"{made}, as it was published elsewhere. {verdict.reason}\n"
    yield from _table(
        ("", ""),
        [
            ("lineage", f"`{record.lineage_id}`"),
            ("started from", parent),
            ("run", f"`{record.dag_id}`, `{record.run_id}` (`{record.run_key}`)"),
            (
                "architecture",
                (
                    f"{model.num_hidden_layers} layers, {model.hidden_size} wide, "
                    f"{model.num_attention_heads} heads, feed-forward {model.intermediate_size}, "
                    f"{model.max_position_embeddings} positions, {model.hidden_act}"
                ),
            ),
            (
                "vocabulary",
                (
                    f"{facts.vocabulary_info.size} {_KINDS[facts.vocabulary_info.vocabulary_kind]} "
                    f"tokens, {'uncased' if facts.vocabulary_info.do_lower_case else 'cased'}, "
                    f"SHA-256 `{facts.vocabulary_info.sha256}`"
                ),
            ),
        ],
    )


def _start(config: PipelineConfig) -> str:
    start = config.model.init_checkpoint
    return f"`{start}`" if start else "random weights"


def _data(facts: ModelFacts) -> Iterator[str]:
    yield "## Data\n"
    yield (
        "Every partition that this model or one of its ancestors has seen. Held-out documents are "
        "chosen by their content and were never trained on.\n"
    )
    rows = [
        (
            f"`{name}`",
            _count(manifest.documents),
            _count(manifest.training_rows),
            _count(manifest.tokens.get(Split.TRAIN, 0)),
            _count(manifest.records.get(Split.VALIDATION, 0)),
            _count(sum(manifest.dropped.values())),
        )
        for name, manifest in facts.manifests.items()
    ]
    head = (
        "partition",
        "documents",
        "training rows",
        "training tokens",
        "held-out rows",
        "dropped",
    )
    yield from _table(head, rows)


def _training(facts: ModelFacts) -> Iterator[str]:
    config, result = facts.config, facts.result
    optimizer = config.optimizer
    yield "## Training\n"
    yield from _table(
        ("", ""),
        [
            ("steps", f"{_count(result.train_steps)} ({_count(facts.train_steps_total)} in all)"),
            *_new_head(facts),
            ("rows a step", _count(config.training.global_batch_size)),
            ("tokens seen in this run", _count(result.tokens)),
            (
                "optimizer",
                (
                    f"{optimizer.type}, peak rate {_peak_rate(facts):g} after "
                    f"{_count(optimizer.warmup_steps)} steps, weight decay "
                    f"{optimizer.weight_decay_rate:g}"
                ),
            ),
            *_replay(facts),
            ("masking", _masking(config.masking)),
            ("arithmetic", config.training.mixed_precision_dtype),
            ("seed", str(config.training.random_seed)),
            ("last training loss", f"{result.final_loss:.4f}"),
            *_next_sentence(result),
        ],
    )
    yield "All settings: `config.json`.\n"


def _new_head(facts: ModelFacts) -> Iterator[tuple[str, str]]:
    head = facts.heritage.new_head if facts.heritage else None
    if head is None:
        return
    text = "trained with the encoder from its first step"
    if head.loss is not None:
        text = (
            f"trained alone for {_count(head.steps)} steps, the encoder held still, to a training "
            f"loss of {head.loss:.4f}"
        )
    report = facts.report
    for model in report.models:
        if is_head(model.model_uri):
            [scores] = [one for one in model.sets if one.set_name == report.current_set]
            text += (
                f"; under it the encoder as it was imported loses {scores.loss:.4f} on held-out "
                f"documents of `{report.current_set}`: {model.name} below"
            )
    yield "new masked-LM head", text


def _peak_rate(facts: ModelFacts) -> float:
    """Return the effective peak rate: an update of a lineage may have its own."""
    is_update = facts.plan.parent_version is not None
    return effective_config(facts.config, update=is_update).optimizer.learning_rate


def _replay(facts: ModelFacts) -> Iterator[tuple[str, str]]:
    if facts.plan.replayed:
        share = facts.config.training.replay_fraction
        yield "replayed", f"{share:.0%} of each batch, from {_names(sorted(facts.plan.replayed))}"


def _names(partitions: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in partitions)


def _masking(masking: MaskingConfig) -> str:
    when = "drawn anew in each epoch" if masking.dynamic else "drawn when rows are written"
    return (
        f"{masking.masked_lm_prob:.0%} of the tokens by {masking.unit}, {when}; rows of "
        f"{masking.max_seq_length} ({masking.packing})"
    )


def _next_sentence(result: TrainingResult) -> Iterator[tuple[str, str]]:
    if result.next_sentence_loss is not None and result.next_sentence_accuracy is not None:
        text = f"{result.next_sentence_loss:.4f}, {result.next_sentence_accuracy:.1%} right"
        yield "last next-sentence loss", text


def _evaluation(facts: ModelFacts) -> Iterator[str]:
    report, verdict = facts.report, facts.verdict
    yield "## Evaluation\n"
    yield (
        "Masked-LM loss in nats per token, perplexity, accuracy and mean reciprocal rank (MRR) of "
        "the right token on held-out documents; every model sees the same masks. *unigram* "
        "predicts each token by its frequency.\n"
    )
    scores = {
        (model.name, scores.set_name): scores for model in report.models for scores in model.sets
    }
    names = [model.name for model in report.models]
    sets = list(dict.fromkeys(set_name for _, set_name in scores))
    # Next sentences are predicted only if the rows are pairs and the model has learned to.
    scored = [
        name
        for name in names
        if any(scores[name, set_name].next_sentence_accuracy is not None for set_name in sets)
    ]
    # Older evaluations do not have it.
    embedded = [
        name
        for name in names
        if any(scores[name, set_name].recall_at_1 is not None for set_name in sets)
    ]
    rows = []
    for set_name in sets:
        cells = [f"`{set_name}`" + (" (new)" if set_name == report.current_set else "")]
        cells.append(_count(len(scores[names[0], set_name].document_ids)))
        for name in names:
            score = scores[name, set_name]
            cells += [f"{score.loss:.4f}", f"{score.perplexity:.1f}"]
            cells += [f"{score.accuracy:.1%}", f"{score.mrr:.3f}"]
        cells += [_share(scores[name, set_name].next_sentence_accuracy) for name in scored]
        cells += [_fraction(scores[name, set_name].recall_at_1) for name in embedded]
        unigram = report.unigram_losses.get(set_name)
        cells.append("" if unigram is None else f"{unigram:.4f}")
        rows.append(tuple(cells))
    kinds = ("loss", "perplexity", "accuracy", "MRR")
    columns = [f"{name} {kind}" for name in names for kind in kinds]
    columns += [f"{name} next-sentence accuracy" for name in scored]
    columns += [f"{name} recall@1" for name in embedded]
    yield from _table(("held-out set", "documents", *columns, "unigram loss"), rows)
    yield from _extra_lengths(report)
    interval = f"{verdict.improvement_low:z.4f} to {verdict.improvement_high:z.4f}"
    yield (
        f"Improvement over {verdict.reference}: {verdict.improvement:z.4f} nats per token "
        f"({facts.config.promotion.confidence:.0%} interval {interval}, {verdict.documents} "
        "documents).\n"
    )
    yield from _retrieval(verdict)
    if verdict.probes:
        yield "On labelled tasks, against the model that was in use:\n"
        yield from (f"- {probe.sentence}" for probe in verdict.probes)
        yield ""


def _extra_lengths(report: EvaluationReport) -> Iterator[str]:
    rows = [
        (f"`{scores.set_name}`", str(extra.max_seq_length), model.name, f"{extra.loss:.4f}")
        for model in report.models
        for scores in model.sets
        if (extra := scores.extra) is not None
    ]
    if rows:
        yield "In rows of the second length, which the verdict adds to the main one:\n"
        yield from _table(("held-out set", "tokens a row", "model", "loss"), rows)


def _retrieval(verdict: Verdict) -> Iterator[str]:
    found = verdict.retrieval
    if found is not None:
        yield (
            "Recall@1 of embeddings (means of the last hidden states): "
            f"{found.candidate_recall:.3f} after {found.reference_recall:.3f} of "
            f"{verdict.reference}, a difference of "
            f"{found.difference:+z.3f} (interval {found.low:+z.3f} to {found.high:+z.3f}, "
            f"{found.documents} documents): the share of documents whose second half is nearest to "
            "their first one among all of the set.\n"
        )


_FORMATS = {
    "hugging_face": (
        "Hugging Face, `transformers`",
        'pipeline("fill-mask", model="{folder}")("It is a [MASK].")',
    ),
    "saved_model": (
        "SavedModel, with `import tensorflow_text`",
        (
            'tf.saved_model.load("{folder}").signatures["fill_mask"]'
            '(text=tf.constant(["It is a [MASK]."]))["tokens"]'
        ),
    ),
}

_OTHER_FORMATS = {
    "bpe": {
        "hugging_face": (
            "Hugging Face, `transformers`",
            'pipeline("fill-mask", model="{folder}")("It is a <mask>.")',
        ),
        "saved_model": (
            "SavedModel of tokens, which the Hugging Face folder's tokenizer makes",
            'tf.saved_model.load("{folder}").signatures["mlm_logits"]',
        ),
    },
    "t5": {
        "hugging_face": (
            "Hugging Face, `transformers`, and `text_to_text.init_checkpoint` of `bert_finetuning`",
            'T5ForConditionalGeneration.from_pretrained("{folder}")',
        ),
    },
}
"""Formats for the kinds of vocabularies that differ from the usual."""


def _difference(check: ExportCheck | ClassifierCheck | TextCheck) -> str:
    return "" if isinstance(check, TextCheck) else f"{check.max_logit_difference:.1e}"


def _formats(facts: ModelFacts) -> Iterator[str]:
    """Yield the folder of each format, and the code to use it."""
    yield "## Formats\n"
    yield "Outputs of each were compared with the model's on held-out rows before publication.\n"
    # Nothing of tf-models itself can start from a checkpoint with a T5.
    is_read = not facts.config.model.has_decoder
    initial = f'`task.init_checkpoint: "{facts.folder}/{facts.checkpoint_prefix}"`'
    rows = [("tf-models", "`checkpoint/`", "", initial)] if is_read else []
    formats = _OTHER_FORMATS.get(facts.vocabulary_info.vocabulary_kind, _FORMATS)
    for name, exported in facts.exports.formats.items():
        title, line = formats[name]
        rows.append(
            (
                title,
                f"`{name}/`",
                _difference(exported.check),
                f"`{line.format(folder=f'{facts.folder}/{name}')}`",
            )
        )
    yield from _table(("format", "folder", "largest difference of a logit", "use"), rows)
    for name, reason in facts.exports.left_out.items():
        yield f"Not as `{name}`: {reason}.\n"


def _use(facts: ModelFacts) -> Iterator[str]:
    partition = facts.report.current_set
    yield "## Use\n"
    yield (
        "`model.json` lists every file with its SHA-256 and names the checkpoint's prefix "
        "(`checkpoint_prefix`), a `tf.train.Checkpoint`. Check the files with "
        f"`python -m model_registry verify {facts.version_id}`; recompute the losses with\n"
    )
    yield "```"
    yield "python -m training.evaluate --store STORE \\"
    yield f"    --config {facts.folder}/config.json --current-set {partition} \\"
    yield f"    --set {partition}={facts.plan.evaluated[partition]} \\"
    yield f"    --model candidate={facts.folder} --print-only"
    yield "```\n"
    yield f"To start another lineage from it: `model.init_checkpoint={facts.folder}`.\n"


def _limitations(facts: ModelFacts) -> Iterator[str]:
    yield "## Limitations\n"
    has_pooler = architecture_of(facts.config.model).has_pooler
    if has_pooler and facts.plan.trained and facts.result.next_sentence_loss is None:
        yield (
            "- Trained to predict masked tokens only. There was no next-sentence task, so "
            f"{_pooler(facts.heritage)}"
        )
    yield (
        f"- Rows had at most {facts.config.masking.max_seq_length} tokens; behavior on longer "
        "input was not measured."
    )
    tasks = sorted({probe.task for probe in facts.verdict.probes})
    measured = f"and {_names(tasks)} " if tasks else ""
    yield (
        "- It repeats what its text says, with its errors and prejudices. Nothing but the "
        f"pretraining tasks {measured}was measured."
    )


def _pooler(kept: Heritage | None) -> str:
    if kept is None or not kept.has_pooler:
        return (
            "the pooler is untrained: fine-tune it, or use the token outputs. The Hugging Face "
            "folder has no pooler."
        )
    origin = "an earlier run" if kept.pooler_trained else f"`{short_name(kept.pooler_from or '')}`"
    return (
        f"the pooler is that of {origin}, while the layers below it have changed: measure it "
        "before use, or fine-tune it. It is in the Hugging Face folder."
    )


def _fraction(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    for cells in (head, tuple("---" for _ in head), *rows):
        yield "| " + " | ".join(cells) + " |"
    yield ""


def _count(number: int) -> str:
    return f"{number:,}"
