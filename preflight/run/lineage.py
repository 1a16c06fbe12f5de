"""Checks a configuration against its lineage, whose vocabulary, documents and architecture are
frozen."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator

from corpus.errors import UserError
from corpus.text.lineage_rules import kept_unit, load_manifests
from corpus.tokens.lineage_vocabulary import find_vocabulary, read_vocabulary, unfit
from corpus.tokens.vocabulary import Vocabulary, domain_words, is_cased, unused_places
from model_registry.plans import partitions_to_score
from model_registry.versions import manifests
from pipeline_config import ConfigError, PipelineConfig, parse_config
from pipeline_store import request_paths, uris
from pipeline_store.formats import (
    FormatError,
    ModelVersion,
    PartitionManifest,
    ProductionPointer,
    TrainingInputs,
    VocabularyInfo,
)
from pipeline_store.layout import StoreLayout, VersionLayout
from preflight.run.new_lineage import new_lineage_words
from trained_models import errors as training_errors
from trained_models import updates
from trained_models.architectures.architecture import architecture_of
from trained_models.artifacts import model_files
from trained_models.importing.checkpoint_index import read_index
from trained_models.importing.descriptions import (
    ARCHITECTURE,
    BERT,
    Description,
    check_description,
)
from trained_models.importing.plan import NO_HEAD
from trained_models.importing.shapes import in_hugging_face, refuse_other_shapes, tensor_shapes
from trained_models.importing.sources import (
    SourceKind,
    require_model,
    source_kind,
    weight_files,
)
from trained_models.importing.vocabulary import (
    SourceVocabulary,
    plan_rows,
    source_vocabulary,
    tokenizer_lower_cases,
)

_read = functools.partial(request_paths.read, model=True)
_open = functools.partial(request_paths.open_stream, model=True)
_ARCHITECTURE = tuple(f"model.{name}" for name in ARCHITECTURE)
# Values of models that are older than the setting.
_BEFORE = {"model.architecture": BERT}


def vocabulary_problems(config: PipelineConfig, store: StoreLayout) -> Iterator[str]:
    """Yield a line for every way in which the vocabulary does not fit.

    A given one must be of the configured kind and fit model and casing. The lineage's own must fit
    the configuration and be made from the given one, if there is one.
    """
    lineage = store.lineage(config.model.lineage_id)
    given, own = None, None
    if config.vocabulary.uri is not None:
        uri = store.resolve(config.vocabulary.uri)
        try:
            given = read_vocabulary(uri, by_request=True)
        except UserError as error:
            yield f"vocabulary.uri: {error}"
        else:
            yield from (f"vocabulary.uri: {uri}: {line}" for line in unfit(given, config))
    try:
        own = find_vocabulary(config, lineage)
    except UserError as error:
        yield f"model.lineage_id: {error} {new_lineage_words(config, store)}".rstrip()
    else:
        yield from _made_of(given, own, config, store)


def _made_of(
    given: Vocabulary | None, own: Vocabulary | None, config: PipelineConfig, store: StoreLayout
) -> Iterator[str]:
    """Yield a line if a lineage's vocabulary is not, or cannot be, made from the given one."""
    if given is None:
        return
    if own is not None:
        if domain_words(given, own) is None:
            lineage = store.lineage(config.model.lineage_id)
            yield (
                f"vocabulary.uri: {config.vocabulary.uri} differs from the vocabulary of lineage "
                f"{config.model.lineage_id!r} ({lineage.vocabulary}), which is frozen. Leave "
                "vocabulary.uri empty, or use a new model.lineage_id. "
                f"{new_lineage_words(config, store)}".rstrip()
            )
    elif config.vocabulary.domain_words and not unused_places(given):
        yield (
            f"vocabulary.domain_words: {config.vocabulary.domain_words} are asked for, but "
            f"{config.vocabulary.uri} has no [unused0] or the like to put a word into; set it to 0."
        )


def document_problems(config: PipelineConfig, store: StoreLayout) -> Iterator[str]:
    """Yield a line if the lineage's documents were made or split by another rule."""
    lineage = store.lineage(config.model.lineage_id)
    try:
        kept_unit(config, load_manifests(lineage).values(), config.corpus.partition)
    except UserError as error:
        yield f"{error} {new_lineage_words(config, store)}".rstrip()


def start_problems(config: PipelineConfig, store: StoreLayout) -> Iterator[str]:
    """Yield a line for every reason why training cannot start from the intended weights.

    These are the model in use, which must have the configured architecture and held-out rows of the
    configured length; or else ``model.init_checkpoint``, which must also have the lineage's
    vocabulary if it is a model of ours. The vocabularies of other models may differ token by token.
    """
    lineage = store.lineage(config.model.lineage_id)
    pointer = ProductionPointer.load_or_none(lineage.production)
    if pointer is not None:
        version = VersionLayout(lineage.version(pointer.version_id))
        differences = list(
            _differences(
                config,
                version,
                f"lineage {config.model.lineage_id!r} has {pointer.version_id} in use, with",
                "Keep it, or use a new model.lineage_id.",
            )
        )
        yield from differences[:-1]
        if differences:
            yield f"{differences[-1]} {new_lineage_words(config, store)}".rstrip()
        model = ModelVersion.load_or_none(version.model)
        if model is not None:
            yield from _rows_missing(config, manifests(lineage, model).values())
        if config.optimizer.carry_slots and updates.has_moments(version.root):
            try:
                updates.check_carried_slots(version.root, config)
            except (training_errors.UserError, FileNotFoundError) as error:
                yield str(error)
    elif config.model.init_checkpoint is not None:
        try:
            problems = list(_init_checkpoint(config, store, config.model.init_checkpoint))
        except FormatError as error:
            problems = [f"model.init_checkpoint: {error}"]
        yield from problems or _vocabulary_not_given(config, store, config.model.init_checkpoint)
    elif not config.model.from_scratch:
        yield (
            f"model.init_checkpoint: lineage {config.model.lineage_id!r} has no model yet, and "
            "none is named to begin with. Name a published BERT whose language is that of your "
            "text, with its vocabulary as vocabulary.uri (`python -m training.import_model FOLDER "
            "--write-preset FILE.toml` writes both), or set model.from_scratch=true for random "
            "weights."
        )


def _vocabulary_not_given(config: PipelineConfig, store: StoreLayout, start: str) -> Iterator[str]:
    """Yield a line if a lineage would begin with a model but not with that model's vocabulary."""
    lineage = store.lineage(config.model.lineage_id)
    if config.vocabulary.uri is None and not uris.exists(lineage.vocabulary_info):
        yield (
            f"vocabulary.uri: {start} was trained with a vocabulary of its own, and none is named: "
            "one made from this partition would have other words. Name the model's (vocab.txt, "
            "sentencepiece.model or tokenizer.json); `python -m training.import_model` shows it."
        )


def _differences(
    config: PipelineConfig, version: VersionLayout, whose: str, advice: str
) -> Iterator[str]:
    data = request_paths.read_or_none(version.config, model=True)
    if data is None:
        yield (
            f"model.lineage_id: {version.config} is missing, so the model cannot be checked. "
            "Restore the version's folder, or put another into use with "
            "`python -m model_registry rollback`."
        )
        return
    try:
        frozen = parse_config(data, version.config)
    except ConfigError as error:
        # Only the settings' names: the line of a rule that combines settings has their values.
        lines = [line.removeprefix(f"{version.config}: ") for line in error.violations]
        broken = sorted({line.partition(":")[0] for line in lines})
        yield (
            f"model.lineage_id: {version.config} is no configuration that can be used "
            f"({', '.join(broken)}). Restore the version's folder."
        )
        return
    for name in _ARCHITECTURE:
        wanted, existing = operator.attrgetter(name)(config), operator.attrgetter(name)(frozen)
        if wanted != existing:
            yield f"{name}: {wanted} is asked for, but {whose} {existing}. {advice}"


def general_problems(config: PipelineConfig, store: StoreLayout) -> Iterator[str]:
    """Yield a line if the partition of general text was never prepared."""
    partition = config.evaluation.general_partition
    if partition is None:
        return
    folder = store.lineage(config.model.lineage_id).manifests(partition)
    if not any(uri.endswith(".json") for uri in uris.list_files(folder)):
        yield (
            f"evaluation.general_partition: {partition} has no manifest in {folder}. Prepare it "
            "once with python -m beam_jobs.prepare_corpus, or leave it empty."
        )


def pattern_problems(config: PipelineConfig, store: StoreLayout) -> Iterator[str]:
    """Yield a line if no prepared partition has a name that matches ``evaluation.pattern``."""
    lineage = store.lineage(config.model.lineage_id)
    if config.evaluation.pattern is not None and not partitions_to_score(lineage, config):
        yield (
            f"evaluation.pattern: none of the prepared partitions in {lineage.partitions} has a "
            f"name like {config.evaluation.pattern}. Prepare one with python -m "
            "beam_jobs.prepare_corpus, or leave the pattern empty."
        )


def _rows_missing(config: PipelineConfig, manifest_uris: Iterable[str]) -> Iterator[str]:
    """Yield a line if a partition that the model in use has seen lacks rows of the wanted length.

    Candidate and model in use are compared on the held-out rows of earlier partitions too, any of
    which may be scored. The comparison would fail after the training was paid for.
    """
    masking = config.masking
    wanted = (masking.max_seq_length, masking.max_predictions_per_seq)
    for uri in manifest_uris:
        manifest = PartitionManifest.load(uri)
        shapes = [(manifest.max_seq_length, manifest.max_predictions_per_seq)]
        if manifest.extra_max_seq_length is not None:
            shapes.append(
                (manifest.extra_max_seq_length, manifest.extra_max_predictions_per_seq or 0)
            )
        if wanted not in shapes:
            found = " and ".join(f"{length} ({most})" for length, most in shapes)
            yield (
                f"masking.max_seq_length: {wanted[0]} (and max_predictions_per_seq {wanted[1]}) is "
                f"asked for, but partition {manifest.partition}, on which the model in use is "
                f"compared too, has rows of {found}. Keep that, or use a new model.lineage_id."
            )
            return


def _init_checkpoint(config: PipelineConfig, store: StoreLayout, start: str) -> Iterator[str]:
    version = VersionLayout(store.resolve(start))
    try:
        require_model(version.root)
        # This also catches errors on opening a file: a link may have been replaced meanwhile.
        yield from _start(config, store, version)
    except request_paths.OutsideRootsError as error:
        yield f"model.init_checkpoint: {error}"


def _start(config: PipelineConfig, store: StoreLayout, version: VersionLayout) -> Iterator[str]:
    data = request_paths.read_or_none(version.model, model=True)
    model = None if data is None else ModelVersion.parse(data, version.model)
    if model is None:
        yield from _other_weights(config, store, version.root)
        return
    yield from _differences(
        config,
        version,
        "model.init_checkpoint has",
        "Use its value, or leave model.init_checkpoint empty.",
    )
    if _lineage_vocabulary_sha256(config, store) != model.vocabulary_sha256:
        models = (version.sentencepiece_model, version.bpe_tokenizer)
        vocabulary = next((uri for uri in models if uris.exists(uri)), version.vocabulary)
        yield (
            f"model.init_checkpoint: {version.root} was trained with another vocabulary, so its "
            "token ids would mean other words. Start a new model.lineage_id with "
            f"vocabulary.uri={vocabulary}."
        )


def _other_weights(config: PipelineConfig, store: StoreLayout, uri: str) -> Iterator[str]:
    """Yield a line if weights that are no model version do not fit, as far as their files show."""
    try:
        kind = source_kind(uri)
        if kind is SourceKind.OURS:
            yield from _training_differences(config, store, uri)
            return
        found = check_description(uri, kind, config.model, _read)
        _check_weights(config, uri, kind, found)
        tokens = _lineage_tokens(config, store)
        if found is not None and tokens is not None:
            known = source_vocabulary(uri, kind, _read)
            rows = found.settings["vocab_size"]
            plan_rows(known, rows, tokens, config.model.vocab_size)
            yield from _other_casing(config, uri, kind, known, tokens)
    except (training_errors.UserError, training_errors.BadDataError) as error:
        yield f"model.init_checkpoint: {error}"


def _other_casing(
    config: PipelineConfig,
    uri: str,
    kind: SourceKind,
    known: SourceVocabulary | None,
    tokens: tuple[str, ...],
) -> Iterator[str]:
    """Yield a line if a source is cased and the lineage is not, or vice versa.

    A source's casing is that of its tokenizer, else of its vocabulary. The lineage's vocabulary is
    compared with the setting elsewhere. Byte-level BPE has no casing.
    """
    if config.vocabulary.kind == "bpe":
        return
    lower = tokenizer_lower_cases(uri, _read) if kind is SourceKind.HUGGING_FACE else None
    if lower is None and known is not None and known.tokens != tokens:
        cased = is_cased(known.tokens)
        lower = None if cased is None else not cased
    if lower is None or lower == config.vocabulary.do_lower_case:
        return
    learned, asked = ("uncased", "false") if lower else ("cased", "true")
    yield (
        f"model.init_checkpoint: {uri} is {learned} by its tokenizer or vocabulary, but "
        f"vocabulary.do_lower_case is {asked}: its rows would stand for words that are written in "
        "another way. Begin with a model of the same casing as vocabulary.uri, or use this one's "
        f"vocabulary with vocabulary.do_lower_case={str(lower).lower()}."
    )


def _check_weights(
    config: PipelineConfig, uri: str, kind: SourceKind, described: Description | None
) -> None:
    """Check the headers of weight files; PyTorch files are read only by the task that imports.

    :param described: the content of the description file next to them.
    :raises UserError: there is no masked-LM head although none is to be trained anew, or a tensor
        has another shape than described.
    :raises BadDataError: a file is damaged or incomplete.
    """
    by = "the model section" if described is None else described.uri
    if kind is not SourceKind.HUGGING_FACE:
        index = read_index(uri, _open)
        refuse_other_shapes(index.find, config.model, by, lambda _: f"{uri}.index")
        return
    found: dict[str, tuple[int, ...]] = {}
    files: dict[str, str] = {}
    for name in weight_files(uri, _read):
        if not name.endswith(".safetensors"):
            return
        file = uris.join(uri, name)
        with _open(file) as stream:
            shapes = tensor_shapes(stream, uris.size(file), file)
        found |= shapes
        files |= dict.fromkeys(shapes, file)
    form = architecture_of(config.model).stored_form(config.model)
    has_head = any(name.startswith(form.head_prefix) for name in found)
    if not has_head and not config.model.init_encoder_only:
        named = " or ".join(f"{prefix}*" for prefix in form.head_prefix)
        raise training_errors.UserError(f"{uri} has no tensor named {named}. {NO_HEAD}")
    refuse_other_shapes(in_hugging_face(found, form), config.model, by, files.__getitem__)


def _training_differences(config: PipelineConfig, store: StoreLayout, uri: str) -> Iterator[str]:
    """Yield a line for each mismatch with the result of a run that is not a version yet."""
    files = model_files(uri, read=_read)
    place = uris.join(files.folder, files.inputs)
    inputs = TrainingInputs.parse(_read(place), place)
    for name in _ARCHITECTURE:
        wanted = operator.attrgetter(name)(config)
        existing = inputs.settings.get(name, _BEFORE.get(name))
        if wanted != existing:
            shown = existing if type(existing) is type(wanted) is int else "another"
            yield f"{name}: {wanted} is asked for, but {uri} has {shown}. Use its value."
    if _lineage_vocabulary_sha256(config, store) != inputs.vocabulary_sha256:
        yield (
            f"model.init_checkpoint: {uri} was trained with another vocabulary, so its token ids "
            "would mean other words. Use that of its lineage as vocabulary.uri."
        )


def _lineage_tokens(config: PipelineConfig, store: StoreLayout) -> tuple[str, ...] | None:
    """Return the tokens the run will have; None if they are not known yet."""
    lineage = store.lineage(config.model.lineage_id)
    try:
        own = find_vocabulary(config, lineage)
        if own is None and config.vocabulary.uri is not None:
            own = read_vocabulary(store.resolve(config.vocabulary.uri), by_request=True)
    except UserError:
        # Already reported by vocabulary_problems.
        return None
    return own.tokens if own else None


def _lineage_vocabulary_sha256(config: PipelineConfig, store: StoreLayout) -> str | None:
    """Return the hash of the vocabulary the run will have; None if one will be made."""
    lineage = store.lineage(config.model.lineage_id)
    info = VocabularyInfo.load_or_none(lineage.vocabulary_info)
    if info is not None:
        return info.sha256
    # With words added, it is no longer the vocabulary that a model was trained with.
    if config.vocabulary.uri is None or config.vocabulary.domain_words:
        return None
    try:
        return read_vocabulary(store.resolve(config.vocabulary.uri), by_request=True).sha256
    except UserError:
        # Named by vocabulary_problems already.
        return None
