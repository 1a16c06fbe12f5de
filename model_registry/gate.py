"""The gate: decides from an evaluation whether a candidate may replace the model in production.

Both models are scored on the same held-out documents with the same masks, so their losses are
compared document by document, with the intervals of :mod:`model_registry.bootstrap`. Where files or
groups were held out as a whole, the intervals resample these; guards with too few of them resample
documents, which detects a loss sooner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from model_registry.best_scores import BASELINE, CANDIDATE, Floats, on_common_documents
from model_registry.bootstrap import FEWEST_DRAWN, Interval, interval, units_of
from model_registry.labelled_tasks import (
    decide_downstream,
    decide_probe_totals,
    probe_totals,
    probed,
)
from model_registry.panel import both_lengths, extra_length, judged
from model_registry.retrieval import (
    compare_retrieval,
    decide_retrieval,
    decide_retrieval_totals,
    retrieval_limit,
    retrieval_totals,
)
from pipeline_config.task import MIN_JUDGED_EXAMPLES
from pipeline_config.training_schema import PromotionConfig
from pipeline_store.formats import (
    BestScore,
    BestScores,
    DocumentSetScore,
    EvaluationReport,
    ForgettingScore,
    ModelScore,
    ProbeReport,
    TaskManifest,
    TaskSplit,
    Verdict,
    VerdictKind,
)
from pipeline_store.layout import is_head

UNIGRAM = "unigram"


@dataclass(frozen=True)
class _Comparison:
    """The candidate against its reference on one set.

    ``units``: number of the split's units that its documents are in. ``rows``: length of the rows,
    in words, if not all rows count.
    """

    set_name: str
    rows: str
    documents: int
    units: int
    candidate_loss: float
    reference_loss: float
    improvement: Interval
    """In nats per token."""


def judge(
    report: EvaluationReport,
    config: PromotionConfig,
    *,
    baseline_version: str | None,
    probe: ProbeReport | None = None,
    best: BestScores | None = None,
    from_sentence_encoder: bool = False,
    random_seed: int = 1,
) -> Verdict:
    """Return the verdict on a candidate, with the numbers it rests on.

    Too few documents are no evidence. Against a model in production, the interval of the
    improvement on the run's own documents must lie above ``min_improvement``; besides, on no other
    set may the loss have risen by more than ``max_forgetting`` with confidence, nor be above that
    of the lineage's best version by more than ``max_total_forgetting``. Without a model in
    production, the interval must lie above zero, measured from the unigram loss; this also holds in
    the first update of a model that came without a head. A candidate is worse if the whole interval
    lies below zero: an improvement smaller than required, however certain, is no evidence either.

    The interval expresses the confidence in the difference of these two models on documents like
    these. It does not say that training again with another seed would give the same difference: two
    models that differ only by seed also have different losses, and with many documents the interval
    shows it. Hence ``min_improvement``, which is larger than the differences between seeds.

    With ``probe_tasks``, a candidate with a better loss must not be worse on any of them: it is
    rejected if the comparison says that it hurt, and the whole interval of its metric's difference
    lies below ``-max_probe_loss``. Without a model in production there is nothing to compare with.

    If ``judge_retrieval`` requires it, its embeddings also may not find a document's other half
    less often by more than ``max_retrieval_loss``, with confidence.

    On both, it may also not have lost more than ``max_total_probe_loss`` and
    ``max_total_retrieval_loss`` since the lineage's best version.

    :param report: scores of the candidate, and of the baseline if there is one.
    :param baseline_version: version id of the model in production; None when there is none.
    :param probe: both models on ``probe_tasks``; None: there are none.
    :param best: of the lineage until now, by set: :func:`model_registry.best_scores.best_scores`.
    :param from_sentence_encoder: whether the lineage began with a model of sentence-transformers.
    :param random_seed: of the resampling; equal seeds give equal verdicts.
    :raises ValueError: the reports cannot be judged: scores are not finite, the models were not
        scored on the same documents and masks, or something is missing.
    """
    candidate = _model(report, CANDIDATE)
    baseline = _model(report, BASELINE) if baseline_version is not None else None
    if baseline is not None and not baseline.model_uri.rstrip("/").endswith(f"/{baseline_version}"):
        raise ValueError(
            f"The report compares with {baseline.model_uri}, but {baseline_version} was expected: "
            "evaluate again with the model in use."
        )
    current, *others = _comparisons(report, candidate, baseline, config.confidence, random_seed)
    reference = baseline_version or UNIGRAM
    named = reference if baseline is None else _named(baseline, reference)
    kind, reason = _decide(current, others, config, named)
    best = best or BestScores(sets={})
    forgetting = list(_forgotten(report, candidate, best.sets, config.confidence, random_seed))
    if kind is VerdictKind.PROMOTED and baseline is not None and is_head(baseline.model_uri):
        own = next(scores for scores in candidate.sets if scores.set_name == report.current_set)
        frequencies = _compare(
            report, own, None, confidence=config.confidence, random_seed=random_seed
        )
        kind, reason = _decide_new_head(frequencies, config, reason)
    if kind is VerdictKind.PROMOTED:
        kind, reason = _decide_forgetting(forgetting, config, reason)
    probes = probed(probe, candidate, config, baseline_version)
    if kind is VerdictKind.PROMOTED and probes:
        kind, reason = decide_downstream(probes, config, reason)
    task_totals = list(probe_totals(probe, probes, best.probes, config))
    if kind is VerdictKind.PROMOTED:
        kind, reason = decide_probe_totals(task_totals, reason)
    limit = retrieval_limit(config, from_sentence_encoder=from_sentence_encoder)
    retrieval = compare_retrieval(
        report.current_set,
        candidate,
        baseline,
        limit=limit,
        confidence=config.confidence,
        random_seed=random_seed,
    )
    if kind is VerdictKind.PROMOTED and retrieval is not None:
        kind, reason = decide_retrieval(retrieval, config, reason)
    totals = list(
        retrieval_totals(
            report,
            candidate,
            best.retrieval,
            config,
            is_judged=limit is not None,
            random_seed=random_seed,
        )
    )
    if kind is VerdictKind.PROMOTED:
        kind, reason = decide_retrieval_totals(totals, config, reason)
    return Verdict(
        verdict=kind,
        reason=reason,
        candidate_loss=current.candidate_loss,
        reference_loss=current.reference_loss,
        reference=reference,
        documents=current.documents,
        improvement=current.improvement.mean,
        improvement_low=current.improvement.low,
        improvement_high=current.improvement.high,
        probes=probes,
        forgetting=forgetting,
        retrieval=retrieval,
        retrieval_totals=totals,
        probe_totals=task_totals,
    )


def too_few_examples(manifest: TaskManifest) -> str | None:
    """Return why a task cannot judge a candidate, or None if it has enough test examples."""
    test = manifest.splits.get(TaskSplit.TEST)
    found = test.records if test is not None else 0
    if found >= MIN_JUDGED_EXAMPLES:
        return None
    return (
        f"promotion.probe_tasks: task {manifest.name!r} has {found} test examples; with fewer than "
        f"{MIN_JUDGED_EXAMPLES} nothing is proven for or against a candidate. Give it more (test "
        f"or test_fraction in tasks/{manifest.name}/task.toml), or leave it out."
    )


def _model(report: EvaluationReport, name: str) -> ModelScore:
    found = [model for model in report.models if model.name == name]
    if len(found) != 1:
        raise ValueError(
            f"The report has {len(found)} models named {name!r} instead of one; it has "
            f"{[model.name for model in report.models]}."
        )
    return found[0]


def _named(baseline: ModelScore, version_id: str) -> str:
    is_under_new_head = is_head(baseline.model_uri)
    return f"{version_id} under a head trained alone" if is_under_new_head else version_id


def _decide(
    current: _Comparison, others: list[_Comparison], config: PromotionConfig, reference: str
) -> tuple[VerdictKind, str]:
    needed = 0.0 if reference == UNIGRAM else config.min_improvement
    if current.documents < config.min_documents:
        return VerdictKind.NOT_ENOUGH_EVIDENCE, (
            f"{current.set_name} has {current.documents} held-out documents; "
            f"promotion.min_documents asks for {config.min_documents}."
        )
    if current.units == 1 < current.documents:
        return VerdictKind.NOT_ENOUGH_EVIDENCE, (
            f"All {current.documents} held-out documents of {current.set_name} are of one file or "
            "group, which was held out as a whole and says nothing of others. Raise "
            "corpus.validation_fraction, or give the partition more of them."
        )
    comparison = _sentence(current, config.confidence, reference)
    if current.improvement.high < 0:
        return VerdictKind.WORSE, f"{comparison}, and {needed:.4f} is needed."
    if current.improvement.low <= needed:
        return VerdictKind.NOT_ENOUGH_EVIDENCE, (
            f"{comparison}, which is not entirely above the required {needed:.4f}."
        )
    for other in others:
        if -other.improvement.high > config.max_forgetting:
            return VerdictKind.FORGETTING, (
                f"{_sentence(other, config.confidence, reference)}: more is forgotten than "
                f"promotion.max_forgetting={config.max_forgetting:g} allows. {comparison}."
            )
    return VerdictKind.PROMOTED, f"{comparison}, above the required {needed:.4f}."


def _decide_new_head(
    frequencies: _Comparison, config: PromotionConfig, better: str
) -> tuple[VerdictKind, str]:
    """Return the decision on a candidate that is better than a model under a head trained alone.

    That head had fewer steps than the candidate's, and may still be worse than token frequencies.
    """
    if frequencies.improvement.low > 0:
        return VerdictKind.PROMOTED, better
    kind = VerdictKind.NOT_ENOUGH_EVIDENCE
    if frequencies.improvement.high < 0:
        kind = VerdictKind.WORSE
    return kind, (
        f"{_sentence(frequencies, config.confidence, UNIGRAM)}, which is not entirely above 0: "
        "a model whose head is new has to predict better than token frequencies do as well. Train "
        f"for more steps. {better}"
    )


def _forgotten(
    report: EvaluationReport,
    candidate: ModelScore,
    best: Mapping[str, BestScore],
    confidence: float,
    random_seed: int,
) -> Iterator[ForgettingScore]:
    """Yield comparisons of the candidate with the lineage's best version on all sets but its own.

    Documents that only one of them was scored on, or with other masks, are left out: the number of
    held-out rows in use is a setting. A partition that was prepared again has no best score yet.
    """
    for scores in candidate.sets:
        known = best.get(scores.set_name)
        if scores.set_name == report.current_set or known is None:
            continue
        if known.manifest_sha256 != report.evaluated[scores.set_name]:
            continue
        losses, reference, tokens, places = on_common_documents(scores, known.scores)
        if not len(tokens):
            continue
        units = units_of(scores, places, FEWEST_DRAWN)
        improvement = interval(losses, reference, tokens, confidence, random_seed, units=units)
        yield ForgettingScore(
            set_name=scores.set_name,
            documents=len(tokens),
            best_version=known.version_id,
            best_loss=float(reference.sum() / tokens.sum()),
            candidate_loss=float(losses.sum() / tokens.sum()),
            forgotten=-improvement.mean,
            low=-improvement.high,
            high=-improvement.low,
        )


def _decide_forgetting(
    forgetting: list[ForgettingScore], config: PromotionConfig, better: str
) -> tuple[VerdictKind, str]:
    """Return the decision on forgetting for a candidate that is better than the baseline."""
    for one in forgetting:
        if one.low > config.max_total_forgetting:
            return VerdictKind.FORGETTING, (
                f"On {one.documents} held-out documents of {one.set_name} the candidate's loss is "
                f"{one.candidate_loss:.4f} and that of {one.best_version}, the lineage's best on "
                f"them, {one.best_loss:.4f}: {one.forgotten:.4f} nats per token are forgotten in "
                f"all, with a {config.confidence:.0%} interval from {one.low:z.4f} to "
                f"{one.high:z.4f}, and promotion.max_total_forgetting="
                f"{config.max_total_forgetting:g} allows less. {better}"
            )
    return VerdictKind.PROMOTED, better


def _sentence(comparison: _Comparison, confidence: float, reference: str) -> str:
    improvement = comparison.improvement
    few = comparison.units < comparison.documents
    of_units = f" ({comparison.units} files or groups held out as a whole)" if few else ""
    return (
        f"On {comparison.documents} held-out documents of {comparison.set_name}{comparison.rows}"
        f"{of_units} the "
        f"candidate's loss is {comparison.candidate_loss:.4f}, that of {reference} is "
        f"{comparison.reference_loss:.4f}: an improvement of {improvement.mean:z.4f} nats per "
        f"token with a {confidence:.0%} interval from {improvement.low:z.4f} to "
        f"{improvement.high:z.4f}"
    )


def _comparisons(
    report: EvaluationReport,
    candidate: ModelScore,
    baseline: ModelScore | None,
    confidence: float,
    random_seed: int,
) -> list[_Comparison]:
    """Return the comparison on the run's own set, then those that guard against losses.

    Sums over rows of two lengths are judged together. On the run's own set, each length by itself
    is another guard.
    """
    compare = partial(_compare, report, confidence=confidence, random_seed=random_seed)
    current: list[_Comparison] = []
    others: list[_Comparison] = []
    for scores in candidate.sets:
        is_own = scores.set_name == report.current_set
        found = current if is_own else others
        if baseline is None:
            if is_own:
                found.append(compare(scores, None))
            continue
        theirs = _of_baseline(baseline, scores.set_name)
        found.append(compare(*judged(scores, theirs)))
        if is_own and scores.extra is not None and both_lengths(scores, theirs):
            rows = f" in rows of {scores.extra.max_seq_length}"
            longer = extra_length(scores), extra_length(theirs)
            others += [
                compare(scores, theirs, rows=" in rows of the main length"),
                compare(*longer, rows=rows),
            ]
    if len(current) != 1:
        raise ValueError(
            f"The report has no scores of the candidate on its current set {report.current_set!r}; "
            f"it has {[scores.set_name for scores in candidate.sets]}."
        )
    return current + others


def _of_baseline(baseline: ModelScore, name: str) -> DocumentSetScore:
    found = [scores for scores in baseline.sets if scores.set_name == name]
    if len(found) != 1:
        raise ValueError(
            f"The baseline has {len(found)} scores on set {name!r}; it must have been scored once "
            "on every set of the candidate."
        )
    return found[0]


def _compare(
    report: EvaluationReport,
    scores: DocumentSetScore,
    baseline: DocumentSetScore | None,
    *,
    confidence: float,
    random_seed: int,
    rows: str = "",
) -> _Comparison:
    losses, tokens = _sums(scores, CANDIDATE)
    if baseline is None:
        reference = _unigram_loss(report, scores.set_name) * tokens
    else:
        reference = _paired_losses(scores, tokens, baseline)
    # A document without masked tokens says nothing about either model.
    used = tokens > 0
    losses, tokens, reference = losses[used], tokens[used], reference[used]
    if not len(tokens):
        raise ValueError(
            f"Set {scores.set_name!r} has no masked tokens in its {len(used)} held-out documents, "
            "so there is nothing to compare; the partition is too small."
        )
    total = tokens.sum()
    places = np.flatnonzero(used)
    is_own = scores.set_name == report.current_set and not rows
    fewest = 2 if is_own else FEWEST_DRAWN
    units = units_of(scores, places, fewest)
    known = units_of(scores, places, 1)
    return _Comparison(
        set_name=scores.set_name,
        rows=rows,
        documents=len(tokens),
        units=len(tokens) if known is None else len(np.unique(known)),
        candidate_loss=float(losses.sum() / total),
        reference_loss=float(reference.sum() / total),
        improvement=interval(losses, reference, tokens, confidence, random_seed, units=units),
    )


def _sums(scores: DocumentSetScore, name: str) -> tuple[Floats, Floats]:
    """Return loss sums and token counts by document, after checking them."""
    place = f"Set {scores.set_name!r} of the {name}"
    ids = scores.document_ids
    if not len(ids) == len(scores.loss_sums) == len(scores.token_counts):
        raise ValueError(
            f"{place} has {len(ids)} documents, {len(scores.loss_sums)} losses and "
            f"{len(scores.token_counts)} token counts; they must be equally many."
        )
    if len(set(ids)) != len(ids):
        raise ValueError(f"{place} lists a document more than once.")
    losses, tokens = np.array(scores.loss_sums, float), np.array(scores.token_counts, float)
    wrong = np.flatnonzero(~(np.isfinite(losses) & np.isfinite(tokens) & (tokens >= 0)))
    if len(wrong):
        first = wrong[0]
        raise ValueError(
            f"{place} has {len(wrong)} documents whose scores are not finite; the first is "
            f"{ids[first]} with loss {losses[first]} over {tokens[first]} tokens. The model has "
            "diverged, or its evaluation is damaged."
        )
    return losses, tokens


def _unigram_loss(report: EvaluationReport, set_name: str) -> float:
    loss = report.unigram_losses.get(set_name)
    if loss is None or not np.isfinite(loss):
        raise ValueError(
            f"The report's unigram loss on set {set_name!r} is {loss}; without a model in use the "
            "candidate is compared with it."
        )
    return loss


def _paired_losses(scores: DocumentSetScore, tokens: Floats, baseline: DocumentSetScore) -> Floats:
    """Return the baseline's loss sums in the candidate's order of documents."""
    name = scores.set_name
    losses, counts = _sums(baseline, BASELINE)
    place = {document: number for number, document in enumerate(baseline.document_ids)}
    differing = place.keys() ^ set(scores.document_ids)
    if differing:
        raise ValueError(
            f"Set {name!r}: {len(differing)} documents were scored by one model only, such as "
            f"{min(differing)}. Evaluate both on the same records."
        )
    order = np.array([place[document] for document in scores.document_ids], np.int64)
    unequal = np.flatnonzero(counts[order] != tokens)
    if len(unequal):
        first = unequal[0]
        raise ValueError(
            f"Set {name!r}: document {scores.document_ids[first]} has {tokens[first]:g} masked "
            f"tokens for the candidate and {counts[order][first]:g} for the baseline. Evaluate "
            "both on the same records."
        )
    return losses[order]
