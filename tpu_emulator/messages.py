"""The Cloud TPU v2 protobuf classes, as plain protobuf: the store keeps and serves these bytes."""

from __future__ import annotations

from typing import Any

from google.cloud.tpu_v2.types import cloud_tpu
from google.longrunning import operations_pb2
from google.protobuf import any_pb2, empty_pb2, timestamp_pb2
from google.rpc import status_pb2

Node: Any = cloud_tpu.Node.pb()
QueuedResource: Any = cloud_tpu.QueuedResource.pb()
AcceleratorType: Any = cloud_tpu.AcceleratorType.pb()
RuntimeVersion: Any = cloud_tpu.RuntimeVersion.pb()
OperationMetadata: Any = cloud_tpu.OperationMetadata.pb()
Operation: Any = operations_pb2.Operation
Empty: Any = empty_pb2.Empty
Status: Any = status_pb2.Status

NodeState = cloud_tpu.Node.State
NodeHealth = cloud_tpu.Node.Health
ApiVersion = cloud_tpu.Node.ApiVersion
AcceleratorFamily = cloud_tpu.AcceleratorConfig.Type
QueueState = cloud_tpu.QueuedResourceState.State
StateInitiator = cloud_tpu.QueuedResourceState.StateInitiator


def request_class(method: str) -> Any:
    """The request message of an RPC of `google.cloud.tpu.v2.Tpu`, for example `GetNode`."""
    return getattr(cloud_tpu, f"{method}Request").pb()


def response_class(method: str) -> Any:
    """The response message of a `List...` RPC of `google.cloud.tpu.v2.Tpu`."""
    return getattr(cloud_tpu, f"{method}Response").pb()


def timestamp(seconds: float) -> Any:
    """Seconds since the epoch as a protobuf timestamp."""
    stamp = timestamp_pb2.Timestamp()
    stamp.FromNanoseconds(int(seconds * 1e9))
    return stamp


def seconds(stamp: Any) -> float:
    """A protobuf timestamp as seconds since the epoch."""
    return stamp.ToNanoseconds() / 1e9


def packed(message: Any) -> Any:
    """The message wrapped in `google.protobuf.Any`, as operations carry it."""
    wrapped = any_pb2.Any()
    wrapped.Pack(message)
    return wrapped
