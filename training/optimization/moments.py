"""Carries an optimizer's moments from a model version into the training that continues it.

Moments of many steps need no correction for having started at zero. The optimizers derive that
correction from their own step counter, which starts at 0 in every run, as the learning rate depends
on it. An optimizer with carried moments therefore counts the steps before this run separately.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tf_keras
from official.modeling.optimization.lamb import LAMB
from official.modeling.optimization.legacy_adamw import AdamWeightDecay
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from trained_models.errors import UserError
from trained_models.importing.checkpoint_index import OBJECT_GRAPH
from training.optimization.amos import Amos

CARRIED_STEPS = "carried_steps"
_ITERATIONS = "iter"
_OPTIMIZER = "optimizer"


class _Carrying(tf_keras.optimizers.legacy.Optimizer):
    """An optimizer with a counter of the steps that its slots had seen before this run."""

    carried_steps: tf.Variable | None = None

    def _create_all_weights(self, var_list: list[tf.Variable]) -> None:
        super()._create_all_weights(var_list)
        # Called in every step.
        if self.carried_steps is None:
            self.carried_steps = self.add_weight(
                CARRIED_STEPS,
                shape=[],
                dtype=tf.int64,
                trainable=False,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )
            self._weights.append(self.carried_steps)


class _CarryingAdam(_Carrying):
    """Adam with a bias correction by all steps that its moments have seen."""

    def _prepare_local(
        self, var_device: str, var_dtype: tf.DType, apply_state: dict[Any, dict[str, Any]]
    ) -> None:
        super()._prepare_local(var_device, var_dtype, apply_state)
        state = apply_state[var_device, var_dtype]
        step = tf.cast(self.iterations + 1 + self.carried_steps, var_dtype)
        first, second = tf.pow(state["beta_1_t"], step), tf.pow(state["beta_2_t"], step)
        state |= {"beta_1_power": first, "beta_2_power": second}
        if "lr" in state:
            state["lr"] = state["lr_t"] * tf.sqrt(1.0 - second) / (1.0 - first)


class CarryingAdamW(_CarryingAdam, AdamWeightDecay):
    """AdamW of tf-models that can go on with moments of an earlier training."""


class CarryingLamb(_CarryingAdam, LAMB):
    """LAMB of tf-models that can go on with moments of an earlier training."""


class CarryingAmos(_Carrying, Amos):
    """Amos that can go on with the statistics of an earlier training."""

    @property
    def _statistics_steps(self) -> tf.Tensor:
        return super()._statistics_steps + self.carried_steps


class Carried(NamedTuple):
    """Moments that were read from a checkpoint and fit the optimizer.

    :param values: by (variable's name, slot's name).
    :param steps: number of steps that the moments have seen.
    """

    values: dict[tuple[str, str], npt.NDArray[np.float32]]
    steps: int

    def __str__(self) -> str:
        variables = len({variable for variable, _ in self.values})
        return (
            f"The optimizer goes on with its moments of {variables} variables from there, which "
            f"have {self.steps} steps behind them; the learning rate's schedule begins anew."
        )


class Moments(NamedTuple):
    """The moments of an optimizer that can continue with those of an earlier training.

    :param variables: the variables that the optimizer has slots for.
    """

    optimizer: tf_keras.optimizers.legacy.Optimizer
    variables: list[tf.Variable]

    @property
    def _slots(self) -> dict[tuple[str, str], tf.Variable]:
        names = self.optimizer.get_slot_names()
        return {
            (variable.name.removesuffix(":0"), name): self.optimizer.get_slot(variable, name)
            for variable in self.variables
            for name in names
        }

    def read(self, reader: tf.train.CheckpointReader, uri: str) -> Carried:
        """Return the checkpoint's moments for each slot of the optimizer; nothing is changed.

        :param uri: the checkpoint's, for messages.
        :raises UserError: a slot is missing in the checkpoint or has another shape there.
        """
        keys, steps = _stored_slots(reader), _steps_behind(reader)
        shapes = reader.get_variable_to_shape_map()
        values, problems = {}, []
        for name, slot in self._slots.items():
            key = keys.get(name)
            if key is None:
                problems.append(f"{name[1]} of {name[0]} is missing")
            elif list(shapes[key]) != list(slot.shape):
                problems.append(f"{name[1]} of {name[0]} is {shapes[key]}, here {slot.shape}")
            else:
                values[name] = reader.get_tensor(key)
        if problems:
            raise UserError(
                f"optimizer.carry_slots: the moments in {uri} do not fit the optimizer here: "
                f"{'; '.join(problems[:5])}{'; …' if len(problems) > 5 else ''}. Set "
                "optimizer.carry_slots to false for this run, which then begins with zeros."
            )
        return Carried(values, steps)

    def set(self, carried: Carried) -> None:
        """Set the optimizer's moments to those that :meth:`read` returned."""
        for name, slot in self._slots.items():
            slot.assign(carried.values[name])
        self.optimizer.carried_steps.assign(carried.steps)


def _stored_slots(reader: tf.train.CheckpointReader) -> dict[tuple[str, str], str]:
    """Return the checkpoint's key of each slot by (variable's name, slot's name)."""
    graph, optimizer = _optimizer_node(reader)
    return {
        (attribute.full_name, slot.slot_name): _key(graph, slot.slot_variable_node_id)
        for slot in optimizer.slot_variables
        for attribute in graph.nodes[slot.original_variable_node_id].attributes
    }


def _steps_behind(reader: tf.train.CheckpointReader) -> int:
    """Return the steps of the checkpoint's training plus those of its carried moments."""
    graph, optimizer = _optimizer_node(reader)
    counters = {child.local_name: child.node_id for child in optimizer.children}
    found = [counters[name] for name in (_ITERATIONS, CARRIED_STEPS) if name in counters]
    return sum(int(reader.get_tensor(_key(graph, node))) for node in found)


def _optimizer_node(
    reader: tf.train.CheckpointReader,
) -> tuple[TrackableObjectGraph, TrackableObjectGraph.TrackableObject]:
    graph = TrackableObjectGraph()
    graph.ParseFromString(reader.get_tensor(OBJECT_GRAPH))
    (number,) = [c.node_id for c in graph.nodes[0].children if c.local_name == _OPTIMIZER]
    return graph, graph.nodes[number]


def _key(graph: TrackableObjectGraph, node: int) -> str:
    (attribute,) = graph.nodes[node].attributes
    return str(attribute.checkpoint_key)
