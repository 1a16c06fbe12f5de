"""Several replicas train as one does: the same losses from the same records in the same order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from pipeline_config import PipelineConfig
from tests.training.conftest import VIRTUAL_CPUS, replicas
from tests.training.corpora import TinyStore, tiny_config, training_batches
from tests.training.jobs import PREEMPTED, result, train, train_until
from trained_models import record_sources
from trained_models.errors import UserError
from training.architectures.models import build_model, trained_variables
from training.input.records import RecordReader
from training.loop.step import make_train_loop
from training.optimization.optimizers import build_optimizer
from training.runtime.strategies import create_strategy, is_chief, numbers_of_workers

STEPS = 24


class NotingReader(RecordReader):
    """Remembers which records were read, in order."""

    def __init__(self, store: TinyStore, manifest: str) -> None:
        super().__init__(record_sources.training_sources([manifest], store.layout, store.config))
        self.numbers: list[int] = []

    def read(self, numbers: npt.NDArray[np.int64]) -> list[bytes]:
        self.numbers += numbers.tolist()
        return super().read(numbers)


def loss_curve(count: int, config: PipelineConfig, reader: RecordReader) -> list[float]:
    strategy = replicas(count)
    with strategy.scope():
        model = build_model(config)
        optimizer = build_optimizer(config, trained_variables(model, config))
    loop = make_train_loop(strategy, model, optimizer, config)
    batches = iter(training_batches(reader, config, strategy))
    metrics = [loop(batches, tf.constant(1)) for _ in range(STEPS)]
    return [float(m.loss_sum) / float(m.masked_tokens) for m in metrics]


# What is traced for each replica takes the time.
@pytest.mark.thorough
@pytest.mark.parametrize("several", [2, 8])
def test_replicas_change_neither_the_losses_nor_the_order_of_records(
    tiny: TinyStore, several: int
) -> None:
    config = tiny_config(training__train_steps=STEPS)
    manifest = tiny.partition("2026-01-01")
    curves, orders = [], []
    for count in (1, several):
        reader = NotingReader(tiny, manifest)
        curves.append(loss_curve(count, config, reader))
        orders.append(reader.numbers[: STEPS * config.training.global_batch_size])

    assert orders[0] == orders[1]
    assert len(set(orders[0])) == len(reader) < len(orders[0])
    assert curves[0][-1] < curves[0][0] - 1.0, "nothing was learned"
    # Float32 sums in another order, after which Adam divides by the root of a moment.
    assert curves[1] == pytest.approx(curves[0], rel=1e-5)


@pytest.mark.slow
def test_mirrored_training_resumes_bit_identical_and_learns_as_one_device(
    tiny: TinyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(
        training__distribution_strategy="mirrored",
        training__gradient_accumulation_steps=2,
        training__global_batch_size=16,
    )
    alone = tiny_config(training__global_batch_size=16)
    manifest = tiny.partition("2026-01-01")
    straight, interrupted = tiny.run("straight", config), tiny.run("interrupted", config)
    assert train(tiny, straight, manifest) == 0
    assert train_until(2, monkeypatch, tiny, interrupted, manifest) == PREEMPTED
    assert train(tiny, interrupted, manifest) == 0
    assert result(interrupted).resumed_from == [4]
    assert result(interrupted).weights_sha256 == result(straight).weights_sha256

    one_device = tiny.run("one-device", alone)
    assert train(tiny, one_device, manifest) == 0
    assert result(straight).final_loss == pytest.approx(result(one_device).final_loss, rel=1e-5)
    assert result(straight).tokens == result(one_device).tokens


def test_mirrored_uses_all_devices_and_refuses_a_batch_that_they_cannot_share() -> None:
    config = tiny_config(training__distribution_strategy="mirrored")
    strategy = create_strategy(config, [8, 16])
    assert strategy.num_replicas_in_sync == VIRTUAL_CPUS
    with pytest.raises(UserError, match=r"batch of 12 rows .* over the 8 replicas of .*=mirrored"):
        create_strategy(config, [8, 12])


def test_a_process_alone_is_the_chief_and_agrees_with_itself() -> None:
    strategy = create_strategy(tiny_config(), [7])
    assert is_chief(strategy)
    assert numbers_of_workers(strategy, -3) == [-3]


def test_several_machines_need_a_list_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    config = tiny_config(training__distribution_strategy="multi_worker_mirrored")
    with pytest.raises(UserError, match="TF_CONFIG names no machines"):
        create_strategy(config, [8])


def test_evaluation_takes_one_of_several_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    config = tiny_config(training__distribution_strategy="multi_worker_mirrored")
    strategy = create_strategy(config, [8], one_machine=True)
    assert strategy.num_replicas_in_sync == VIRTUAL_CPUS
    assert is_chief(strategy)
