"""Messages as plain JSON values, and the frames in which they cross the wire, for the golden file of recorded frames.

Nothing here names a module of a message: requests go by their step, protobuf messages by their full name.
"""

from __future__ import annotations

import enum
import hashlib
import importlib
import math
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message as ProtoMessage
from google.protobuf.message_factory import GetMessageClass

import kernfed.v1
from kernfed.federation.messages.base import FieldInfo, Message, Request, fields_of, validate
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.v1 import task_pb2
from kernfed.wire.codec import encode
from kernfed.wire.outgoing import payload_to_proto
from kernfed_client.daemon.outbox import Outbox
from kernfed_testing.messages import message_classes

GOLDEN = Path(__file__).parents[1] / "golden" / "frames.json"

_ELEMENT = {"kernels": "uint8", "asked": "uint8", "content": "uint8", "histogram": "int64"}
"""Of arrays that are not of floats, by the name of the field."""


def requests() -> dict[str, type[Request[Any]]]:
    """Request classes by step."""
    return {c.step: c for c in message_classes() if issubclass(c, Request)}


# A message as JSON values.


def to_plain(message: Any) -> dict[str, Any]:
    """Fields of a message as JSON values; arrays state their type and shape."""
    return {f.name: _to_plain(f, getattr(message, f.name)) for f in fields_of(type(message))}


def _to_plain(f: FieldInfo, value: Any) -> Any:
    if f.type is np.ndarray:
        return {"type": str(value.dtype), "shape": list(value.shape), "numbers": value.ravel().tolist()}
    if f.type is tuple:
        return [to_plain(item) if f.nested else item for item in value]
    if f.nested:
        return to_plain(value)
    return value.value if isinstance(value, enum.Enum) else value


def from_plain(cls: type, plain: dict[str, Any]) -> Any:
    """The message whose fields are these; a field that they do not name has its default."""
    return cls(**{f.name: _from_plain(f, plain[f.name]) for f in fields_of(cls) if f.name in plain})


def _from_plain(f: FieldInfo, value: Any) -> Any:
    if f.type is np.ndarray:
        return np.array(value["numbers"], value["type"]).reshape(value["shape"])
    if f.type is tuple:
        return tuple(from_plain(f.item, item) if f.nested else item for item in value)
    if f.nested:
        return from_plain(f.type, value)
    return f.type(value)


# Examples, the same each time.


def example(cls: type[Message], dims: dict[str, int] | None = None) -> Any:
    """A valid message of a class, the same for the same class.

    Args:
        cls: Its class.
        dims: Shape symbols already bound, by the request that it answers.
    """
    draw = np.random.default_rng(list(hashlib.sha256(cls.__name__.encode()).digest()))
    message = _example(draw, cls, dict(dims or {}))
    validate(message, dims or {})
    return message


def _example(draw: np.random.Generator, cls: type, dims: dict[str, int]) -> Any:
    values: dict[str, Any] = {}
    for f in sorted(fields_of(cls), key=lambda f: f.dim is None):  # sizes first: arrays follow them
        if f.type is np.ndarray:
            assert f.shape is not None
            shape = [_size(dims, d) if isinstance(d, str) else d for d in f.shape.dims]
            element = _ELEMENT.get(f.name, "float64")
            numbers = draw.normal(size=shape) if element == "float64" else draw.integers(0, 200, shape)
            values[f.name] = numbers.astype(element)
        elif f.type is tuple:
            values[f.name] = tuple(_item(draw, f, f.item, dims) for _ in range(2))
        else:
            values[f.name] = _item(draw, f, f.type, dims)
    return cls(**values)


def _item(draw: np.random.Generator, f: FieldInfo, kind: Any, dims: dict[str, int]) -> Any:
    low, high = (f.range.ge, f.range.le) if f.range else (-math.inf, math.inf)
    if f.nested:
        return _example(draw, kind, dims)
    if issubclass(kind, enum.Enum):
        return list(kind)[int(draw.integers(len(kind)))]
    if kind is bool:
        return bool(draw.integers(2))
    if kind is int:
        return _size(dims, f.dim.symbol) if f.dim else int(min(max(low, 0) + draw.integers(1, 300), high))
    if kind is float:
        return float(min(max(draw.normal() * 3, low), high))
    return f"{f.name} é{draw.integers(1000)}"


def _size(dims: dict[str, int], symbol: str) -> int:
    return dims.setdefault(symbol, 2 + len(dims) % 3)


# Frames.


def task_frame(request: Request[Any], float_bits: int = 64) -> bytes:
    """The frame in which a coordinator sends a request."""
    task = task_pb2.Task(
        task_id=f"job-1/2/{request.step}",
        job_id="job-1",
        round=2,
        step=request.step,
        payload=payload_to_proto(encode(request, float_bits), 5),
        float_bits=float_bits,
        submitted_by="ann",
        method="newton",
    )
    task.deadline.FromMilliseconds(90_500)
    return pb.ConnectResponse(task=task).SerializeToString(deterministic=True)


def reply_frame(step: str, reply: Message, float_bits: int = 64) -> bytes:
    """The frame in which a client's outbox sends a reply."""
    outbox = Outbox()
    outbox.add_reply(task_pb2.Task(job_id="job-1", task_id=f"job-1/2/{step}"), encode(reply, float_bits), 0.125)
    return outbox.frame(f"job-1/2/{step}")[0]


# Protobuf messages of every kind.


def proto_types() -> dict[str, Descriptor]:
    """Message types of all files of the contract, by full name."""
    files = []
    for module in pkgutil.iter_modules(kernfed.v1.__path__):
        if module.name.endswith("_pb2"):
            files.append(importlib.import_module(f"kernfed.v1.{module.name}").DESCRIPTOR)
    return {t.full_name: t for file in files for t in file.message_types_by_name.values()}


def proto_class(full_name: str) -> type[ProtoMessage]:
    """The class of a protobuf message."""
    return GetMessageClass(proto_types()[full_name])


def proto_examples(descriptor: Descriptor) -> Iterator[ProtoMessage]:
    """Messages of a type with every field set: one for each choice of a oneof."""
    choices: list[str | None] = [f.name for o in descriptor.oneofs for f in o.fields]
    for choice in choices or [None]:
        yield _filled(descriptor, choice)


def _filled(descriptor: Descriptor, choice: str | None = None) -> ProtoMessage:
    message = GetMessageClass(descriptor)()
    for f in descriptor.fields:
        if f.containing_oneof is not None and f.name != (choice or f.containing_oneof.fields[0].name):
            continue
        if f.is_repeated:
            values = [_value(f, i) for i in range(2)]
            getattr(message, f.name).extend(values)
        elif f.message_type is not None:
            getattr(message, f.name).CopyFrom(_value(f, 0))
        else:
            setattr(message, f.name, _value(f, 0))
    return message


def _value(f: FieldDescriptor, index: int) -> Any:
    number = f.number * 300 + index
    if f.message_type is not None:
        return _filled(f.message_type)
    if f.enum_type is not None:
        return f.enum_type.values[-1 - index].number
    if f.type == FieldDescriptor.TYPE_BYTES:
        return bytes([number % 256, 0, 255])
    return {
        FieldDescriptor.CPPTYPE_STRING: f"{f.name} é{number}",
        FieldDescriptor.CPPTYPE_BOOL: True,
        FieldDescriptor.CPPTYPE_DOUBLE: number / 7,
    }.get(f.cpp_type, number)
