"""A run that continues its lineage's model in use: its rate, and the moments it carries."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import InitialWeights, ModelVersion, TrainingInputs
from pipeline_store.layout import RunLayout, StoreLayout, VersionLayout
from tests.training.corpora import TinyStore, tiny_config
from tests.training.jobs import PREEMPTED, USER_ERROR, result, train, train_until
from tests.training.poison import not_a_number, poison
from tests.training.versions import version_of
from trained_models import artifacts, updates
from trained_models.errors import UserError
from trained_models.metric_files import LOOP, read
from training.architectures.models import build_model, trained_variables
from training.model import checkpoints
from training.optimization.moments import Moments
from training.optimization.optimizers import build_optimizer

OPTIMIZERS = ("adamw", "lamb", "amos")


class Lineage:
    """A store with a first model, published as a version, and a second day to go on with.

    ``settings`` are those of the first model and, but for changes, of the runs that continue it.
    """

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.settings = settings
        self.store = TinyStore.create(folder / "store", tiny_config(**settings))
        self.second = self.store.partition("2026-01-02", documents=40)
        self.first = self.store.run("day1")
        assert train(self.store, self.first, self.store.partition("2026-01-01")) == 0
        self.version = version_of(self.store, self.first)
        self._runs = 0

    def run(self, **changes: Any) -> RunLayout:
        """Return the folder of a new run with these settings changed."""
        self._runs += 1
        return self.store.run(f"update{self._runs}", self.config(**changes))

    def config(self, **changes: Any) -> PipelineConfig:
        """Return the configuration with these settings changed."""
        return tiny_config(**self.settings | changes)

    def update(self, **changes: Any) -> RunLayout:
        """Train on the second day, from the version."""
        run = self.run(**changes)
        assert train(self.store, run, *self.words) == 0
        return run

    @property
    def words(self) -> list[str]:
        """The trainer's arguments for an update."""
        return [self.second, "--init-model", self.version]


@pytest.fixture(scope="module")
def lineages(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Lineage]:
    """Return what makes a lineage, once for each first model; tests only add runs to it."""

    @cache
    def made(**settings: Any) -> Lineage:
        return Lineage(tmp_path_factory.mktemp("lineage"), **settings)

    def lineage(*, optimizer__type: str = "adamw", **settings: Any) -> Lineage:
        return made(optimizer__type=optimizer__type, **settings)

    return lineage


Lineages = Callable[..., Lineage]
CARRY = {"optimizer__carry_slots": True}
LOW_RATE = {"optimizer__update_learning_rate": 1e-4}


def peak_rate(run: RunLayout) -> float:
    return max(float(r["learning_rate"]) for r in read(run.training.metrics) if r["kind"] == LOOP)


def inputs_of(run: RunLayout) -> TrainingInputs:
    files = artifacts.model_files(run.training.root)
    return TrainingInputs.load(uris.join(files.folder, files.inputs))


def test_an_update_has_a_rate_of_its_own_and_a_first_run_has_not(tmp_path: Path) -> None:
    lineage = Lineage(tmp_path, **CARRY, **LOW_RATE)
    run = lineage.update()
    assert peak_rate(lineage.first) == pytest.approx(lineage.store.config.optimizer.learning_rate)
    assert peak_rate(run) == pytest.approx(1e-4)
    # The identity is made of what acts, so a first run is one of the plain settings.
    assert inputs_of(lineage.first).settings["optimizer.carry_slots"] is False
    assert inputs_of(lineage.first).settings["optimizer.update_learning_rate"] is None
    assert inputs_of(run).settings["optimizer.learning_rate"] == 1e-4
    assert inputs_of(run).settings["optimizer.carry_slots"] is True


@pytest.mark.thorough
def test_only_a_version_of_the_lineage_makes_an_update(lineages: Lineages) -> None:
    lineage = lineages()
    # The same weights, but not as the lineage's version: by a run's folder, and by the setting.
    folder = lineage.run(**CARRY, **LOW_RATE)
    words = [lineage.second, "--init-model", lineage.first.training.root]
    assert train(lineage.store, folder, *words) == 0
    setting = lineage.run(**CARRY, **LOW_RATE, model__init_checkpoint=lineage.version)
    assert train(lineage.store, setting, lineage.second) == 0
    for run in (folder, setting):
        assert peak_rate(run) == pytest.approx(lineage.store.config.optimizer.learning_rate)
    assert result(folder).weights_sha256 == result(setting).weights_sha256
    # Without these settings an update differs by its rows: their passes are counted on.
    assert result(lineage.update()).weights_sha256 != result(folder).weights_sha256


def test_replayed_rows_are_masked_as_never_before_and_again_alike_after_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaying = {"training__replay_fraction": 0.5, "masking__dynamic": True}
    lineage = Lineage(tmp_path, **replaying)
    place = VersionLayout(lineage.version).model
    version = ModelVersion.load(place)
    version.model_copy(update={"train_steps_total": 12}).write(place)
    assert updates.first_epoch(lineage.version, update=True) == 12
    assert updates.first_epoch(lineage.version, update=False) == 0
    assert updates.first_epoch(None, update=False) == 0
    words = [*lineage.words, "--replay-manifest", lineage.store.partition("2025-12-31")]
    straight, stopped, once_more = (lineage.run() for _ in range(3))
    assert train(lineage.store, straight, *words) == 0
    assert train_until(2, monkeypatch, lineage.store, stopped, *words) == PREEMPTED
    assert train(lineage.store, stopped, *words) == 0
    assert result(stopped).weights_sha256 == result(straight).weights_sha256
    # Of a version with more steps behind it the same rows are masked in another way.
    version.model_copy(update={"train_steps_total": 24}).write(place)
    assert train(lineage.store, once_more, *words) == 0
    assert result(once_more).weights_sha256 != result(straight).weights_sha256


def test_which_weights_are_a_version_of_the_lineage(tmp_path: Path) -> None:
    layout, config = StoreLayout(str(tmp_path)), tiny_config()
    version = layout.lineage("default").version("v-1")
    assert updates.is_update(version, layout, config)
    assert updates.is_update(f"{version}/", layout, config)
    versions = layout.lineage("default").versions
    other = layout.lineage("other").version("v-1")
    for uri in (None, versions, f"{versions}/", f"{version}/saved_model", other):
        assert not updates.is_update(uri, layout, config)


@pytest.mark.parametrize(
    "kind", ["adamw", "amos", pytest.param("lamb", marks=pytest.mark.thorough)]
)
def test_carried_moments_are_those_of_the_version(lineages: Lineages, kind: str) -> None:
    lineage = lineages(optimizer__type=kind)
    config = lineage.config(**CARRY)
    model = build_model(config)
    variables = trained_variables(model, config)
    optimizer = build_optimizer(config, variables)
    report = checkpoints.load_weights(model, lineage.version, Moments(optimizer, variables))
    (note,) = report.notes
    assert f"moments of {len(variables)} variables" in note
    assert "12 steps behind them" in note
    assert int(optimizer.carried_steps) == lineage.store.config.training.train_steps
    # The run's own counter begins anew, and with it the schedule.
    assert int(optimizer.iterations) == 0
    # TensorFlow's own way of restoring says the same.
    training = lineage.first.training.root
    plain = build_optimizer(lineage.store.config, variables)
    manifest, options = artifacts.result_checkpoint(training), tf.train.CheckpointOptions()
    checkpoints.restore(training, manifest, model, plain, options)
    for variable in variables:
        for slot in plain.get_slot_names():
            expected = plain.get_slot(variable, slot).numpy()
            assert (optimizer.get_slot(variable, slot).numpy() == expected).all()
            assert expected.any()


def with_carrying(config: PipelineConfig) -> PipelineConfig:
    optimizer = config.optimizer.model_copy(update={"carry_slots": True})
    return config.model_copy(update={"optimizer": optimizer})


def looked_up(gradient: tf.Tensor) -> tf.IndexedSlices:
    """Return a gradient as it is of a table that is looked up."""
    return tf.IndexedSlices(gradient, tf.range(len(gradient)), tf.shape(gradient))


@pytest.mark.parametrize(
    ("kind", "given"),
    [*((kind, tf.identity) for kind in OPTIMIZERS), ("adamw", looked_up), ("lamb", looked_up)],
)
def test_a_training_cut_in_two_is_the_same_as_a_whole_one(
    kind: str, given: Callable[[tf.Tensor], tf.Tensor | tf.IndexedSlices]
) -> None:
    # At a constant rate nothing but the moments, and what they are corrected by, would differ.
    whole = tiny_config(
        optimizer__type=kind,
        optimizer__learning_rate=0.1,
        optimizer__end_learning_rate=0.1,
        optimizer__warmup_steps=0,
    )
    draw = np.random.default_rng(3)
    gradients = [tf.constant(draw.normal(size=(3, 4)), tf.float32) for _ in range(8)]
    start = draw.normal(size=(3, 4)).astype(np.float32)

    def apply(optimizer: Any, variable: tf.Variable, part: list[tf.Tensor]) -> None:
        for gradient in part:
            pairs = [(given(gradient), variable)]
            optimizer.apply_gradients(pairs, experimental_aggregate_gradients=False)

    variable = tf.Variable(start, name="kernel")
    first = build_optimizer(whole, [variable])
    apply(first, variable, gradients[:5])
    half = tf.Variable(variable.numpy(), name="kernel")
    second = build_optimizer(with_carrying(whole), [half])
    for slot in first.get_slot_names():
        second.get_slot(half, slot).assign(first.get_slot(variable, slot))
    second.carried_steps.assign(5)
    apply(first, variable, gradients[5:])
    apply(second, half, gradients[5:])
    np.testing.assert_allclose(half.numpy(), variable.numpy(), rtol=1e-6)
    assert np.abs(half.numpy() - start).max() > 0.1


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_without_steps_behind_them_moments_are_corrected_as_ever(kind: str) -> None:
    plain = tiny_config(optimizer__type=kind)
    results = []
    for config in (plain, with_carrying(plain)):
        variable = tf.Variable(np.arange(12, dtype=np.float32).reshape(3, 4), name="kernel")
        optimizer = build_optimizer(config, [variable])
        for number in range(6):
            gradient = tf.fill([3, 4], 0.1 * (number - 2))
            optimizer.apply_gradients(
                [(gradient, variable)], experimental_aggregate_gradients=False
            )
        results.append(variable.numpy())
    assert (results[0] == results[1]).all()


@pytest.mark.thorough
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_an_interrupted_update_ends_as_a_straight_one(
    lineages: Lineages, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    lineage = lineages(optimizer__type=kind)
    straight, zeros = lineage.update(**CARRY), lineage.update()
    cut = lineage.run(**CARRY)
    for loops in (1, 2):
        assert train_until(loops, monkeypatch, lineage.store, cut, *lineage.words) == PREEMPTED
    assert train(lineage.store, cut, *lineage.words) == 0
    assert len(result(cut).resumed_from) == 2
    assert result(cut).weights_sha256 == result(straight).weights_sha256
    assert result(zeros).weights_sha256 != result(straight).weights_sha256
    for run, carried in ((straight, True), (zeros, False)):
        notes = " ".join(InitialWeights.load(run.training.initial_weights).notes)
        assert ("goes on with its moments" in notes) == carried


def test_going_back_to_the_start_carries_the_moments_again(lineages: Lineages) -> None:
    lineage = lineages()
    settings = CARRY | {"training__checkpoint_interval": 12}
    bad = lineage.store.partition("bad", documents=40)
    poison(lineage.store, bad, 2, not_a_number)
    run = lineage.run(**settings)
    assert train(lineage.store, run, bad, "--init-model", lineage.version) == 0
    (rollback,) = result(run).rollbacks
    assert rollback.to_step == 0
    assert carried_steps(run) == 12


def carried_steps(run: RunLayout) -> int:
    files = artifacts.model_files(run.training.root)
    reader = tf.train.load_checkpoint(uris.join(files.folder, files.prefix))
    return int(reader.get_tensor("optimizer/carried_steps/.ATTRIBUTES/VARIABLE_VALUE"))


def test_steps_behind_the_moments_add_up_over_updates(lineages: Lineages) -> None:
    lineage = lineages()
    second = lineage.update(**CARRY)
    assert carried_steps(second) == 12
    third = lineage.run(**CARRY)
    words = [lineage.second, "--init-model", version_of(lineage.store, second)]
    assert train(lineage.store, third, *words) == 0
    assert carried_steps(third) == 24


def test_going_on_as_another_kind_of_run_is_refused(
    lineages: Lineages, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lineage = lineages()
    run = lineage.run(**LOW_RATE)
    assert train_until(2, monkeypatch, lineage.store, run, *lineage.words) == PREEMPTED
    assert train(lineage.store, run, lineage.second) == USER_ERROR
    assert "optimizer.learning_rate was 0.0001 and is 0.003" in capsys.readouterr().out


# Settings of a version and of the run that is to continue it, and what the refusal says.
UNFIT: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"optimizer__type": "amos"}, "optimizer.type is 'adamw' there and 'amos' here"),
    (
        {"training__frozen_layers": 1},
        {"training__frozen_layers": 0},
        "training.frozen_layers is 1 there and 0 here",
    ),
    (
        {},
        {"masking__packing": "segment_pair"},
        "masking.packing is 'doc_sentences' there and 'segment_pair' here",
    ),
]


@pytest.mark.parametrize(("before", "now", "said"), UNFIT)
def test_moments_of_other_settings_are_refused(
    lineages: Lineages,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    before: dict[str, Any],
    now: dict[str, Any],
    said: str,
) -> None:
    lineage = lineages(**before)
    run = lineage.run(**now, **CARRY)
    day = f"for-{next(iter(now.values()))}"
    manifest = lineage.store.using(lineage.config(**now)).partition(day.replace("_", "-"))
    words = [manifest, "--init-model", lineage.version]
    assert train(lineage.store, run, *words) == USER_ERROR
    output = capsys.readouterr().out
    assert said in output
    assert "set optimizer.carry_slots to false" in output
    assert not Path(run.training.checkpoints).exists()
    # The message is right: the weights alone are loaded, and training begins.
    again = lineage.run(**now)
    assert train_until(0, monkeypatch, lineage.store, again, *words) == PREEMPTED
    assert InitialWeights.load(again.training.initial_weights).uri == lineage.version


def test_moments_that_do_not_fit_change_nothing(lineages: Lineages) -> None:
    # What the settings of a version do not show, its tensors do: here, a layer has no moments.
    lineage = lineages(training__frozen_layers=1)
    config = tiny_config(**CARRY)
    model = build_model(config)
    variables = trained_variables(model, config)
    optimizer = build_optimizer(config, variables)
    before = [v.numpy() for v in (*model.variables, *optimizer.variables())]
    with pytest.raises(UserError, match=r"m of .* is missing; .*; …\. Set optimizer.carry_slots"):
        checkpoints.load_weights(model, lineage.version, Moments(optimizer, variables))
    after = [v.numpy() for v in (*model.variables, *optimizer.variables())]
    assert all((a == b).all() for a, b in zip(before, after, strict=True))
