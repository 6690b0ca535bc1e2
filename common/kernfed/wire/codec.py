"""Messages to payloads and back, by reflection: a dataclass `Gradient` is the protobuf message `kernfed.v1.Gradient`.

Field names and types agree one to one (a test checks every message), so a method adds its dataclasses and its
.proto file and no conversion code. Classes of messages from outside are made when they are first needed
(`kernfed.wire.outside`).
"""

from __future__ import annotations

import enum
import functools
import importlib
import pkgutil
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtoMessage

import kernfed.v1
from kernfed.arrays import Array
from kernfed.errors import WireError
from kernfed.federation.messages.base import Dims, FieldInfo, Message, all_finite, fields_of, validate
from kernfed.wire.outside import is_outside, made_class
from kernfed.wire.payload import (
    MAX_HEADER_BYTES,
    Payload,
    Slot,
    SlotReader,
    place,
    prepared,
    tensor_to_proto,
)

M = TypeVar("M", bound=Message)

MAX_KEPT_HEADERS = 256
MAX_KEPT_HEADER_BYTES = 4096


@functools.cache
def _proto_classes() -> dict[str, type[ProtoMessage]]:
    found: dict[str, type[ProtoMessage]] = {}
    for module in pkgutil.iter_modules(kernfed.v1.__path__):
        if module.name.endswith("_pb2"):
            loaded = importlib.import_module(f"kernfed.v1.{module.name}")
            for name in loaded.DESCRIPTOR.message_types_by_name:
                found[name] = getattr(loaded, name)
    return found


def proto_class(cls: type) -> type[ProtoMessage]:
    """The generated class of a message dataclass; of one from outside it is made here."""
    generated = _proto_classes()
    return made_class(cls, enum_prefix) if is_outside(cls) else generated[cls.__name__]


def enum_prefix(cls: type[enum.Enum]) -> str:
    """What stands before the name of each member in a .proto file."""
    words = "".join(f"_{c}" if c.isupper() else c.upper() for c in cls.__name__)
    return f"{words.lstrip('_')}_"


def encode(message: Message, float_bits: int = 64) -> Payload:
    """Header and tensors of a message.

    Args:
        message: What to send; its arrays are not copied where they are already little-endian and row-major.
        float_bits: 64 or 32: size of the floats of its tensors, but for those that are `Exact`.
    """
    arrays: list[Array] = []
    _collect(message, arrays, float_bits)
    slots = place(arrays)
    header = _to_proto(message, slots)
    return Payload(header.SerializeToString(deterministic=True), tuple(arrays))


def _collect(message: Any, arrays: list[Array], float_bits: int) -> None:
    for f in fields_of(type(message)):
        value = getattr(message, f.name)
        if f.type is np.ndarray:
            arrays.append(prepared(value, 64 if f.exact else float_bits))
        elif f.type is tuple:
            for item in value if f.nested else ():
                _collect(item, arrays, float_bits)
        elif f.nested:
            _collect(value, arrays, float_bits)


def _to_proto(message: Any, slots: Any) -> ProtoMessage:
    out = proto_class(type(message))()
    for f in fields_of(type(message)):
        value = getattr(message, f.name)
        if f.type is np.ndarray:
            getattr(out, f.name).CopyFrom(tensor_to_proto(next(slots)))
        elif f.type is tuple:
            getattr(out, f.name).extend([_to_proto(i, slots) for i in value] if f.nested else map(_plain, value))
        elif f.nested:
            getattr(out, f.name).CopyFrom(_to_proto(value, slots))
        else:
            setattr(out, f.name, _plain(value))
    return out


def _plain(value: Any) -> Any:
    return f"{enum_prefix(type(value))}{value.name}" if isinstance(value, enum.Enum) else value


class Header:
    """A decoded header that waits for its body: where each tensor will lie, before a byte of it is read.

    In a loop of rounds the same header comes again and again, so decoded headers are kept, and what was checked of one
    (shapes, ranges) is not checked twice.
    """

    def __init__(self, cls: type[Message], proto: ProtoMessage, body_size: int) -> None:
        self._cls = cls
        self._proto = proto
        self._accepted: set[tuple[tuple[str, int], ...]] = set()
        reader = SlotReader(body_size)
        self.slots: list[Slot] = []
        """Slots of the tensors, in body order."""
        self._scan(cls, proto, reader, cls.__name__)
        reader.finish(cls.__name__)

    def _scan(self, cls: type, proto: Any, reader: SlotReader, where: str) -> None:
        for f in fields_of(cls):
            if f.type is not np.ndarray and not f.nested:
                continue
            path = f"{where}.{f.name}"
            value = getattr(proto, f.name)
            if f.type is tuple:
                if f.max_length and len(value) > f.max_length.limit:
                    raise WireError(f"{path} has {len(value)} items, more than {f.max_length.limit}")
                for i, item in enumerate(value):
                    self._scan(f.item, item, reader, f"{path}[{i}]")
                continue
            if not proto.HasField(f.name):
                raise WireError(f"{path} is missing")
            if f.nested:
                self._scan(f.type, value, reader, path)
            else:
                self.slots.append(reader.read(value, path))

    def message(self, arrays: list[Array], dims: Dims, *, finite: bool = True) -> Message:
        """The message, validated.

        Args:
            arrays: Its tensors in the order of `slots`.
            dims: Shape symbols already bound, e.g. by the request that this answers.
            finite: Whether to look for NaN and infinity; False where that was done as the bytes arrived.

        Raises:
            WireError: A number is out of range.
            InvalidTensorError: Wrong shape, NaN or infinity.
        """
        built = self._build(self._cls, self._proto, iter(arrays), self._cls.__name__)
        assert isinstance(built, Message)  # noqa: S101  # _build returns an instance of the class it is given
        bound = tuple(dims.items())
        if bound not in self._accepted:
            validate(built, dims, finite=False)
            if len(self._accepted) < MAX_KEPT_HEADERS:
                self._accepted.add(bound)
        if finite:
            for slot, array in zip(self.slots, arrays, strict=True):
                if slot.dtype.kind == "f" and not all_finite(array):
                    validate(built, dims)  # names the field
        return built

    def _build(self, cls: type, proto: Any, arrays: Any, where: str) -> Any:
        values: dict[str, Any] = {}
        for f in fields_of(cls):
            value = getattr(proto, f.name)
            if f.type is np.ndarray:
                values[f.name] = next(arrays)
            elif f.type is tuple:
                values[f.name] = tuple(
                    self._build(f.item, v, arrays, where) if f.nested else _scalar(f, f.item, v, where) for v in value
                )
            elif f.nested:
                values[f.name] = self._build(f.type, value, arrays, where)
            else:
                values[f.name] = _scalar(f, f.type, value, where)
        return cls(**values)


def _scalar(f: FieldInfo, kind: Any, value: Any, where: str) -> Any:
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        members = list(kind)
        if not 1 <= value <= len(members):
            raise WireError(f"{where}.{f.name}: unknown value {value}")
        return members[value - 1]
    return value


def decode_header(cls: type[Message], header: bytes, body_size: int) -> Header:
    """Read a header and check its tensors' places against the declared size of the body.

    Raises:
        WireError: Not a message of this type, or a tensor is missing or misplaced.
    """
    if len(header) > MAX_HEADER_BYTES:
        raise WireError(f"{cls.__name__}: header of {len(header)} bytes, at most {MAX_HEADER_BYTES} are read")
    if len(header) > MAX_KEPT_HEADER_BYTES:
        return _read_header(cls, header, body_size)
    return _read_small_header(cls, header, body_size)  # type: ignore[arg-type]  # mypy misses that classes are hashable


def _read_header(cls: type[Message], header: bytes, body_size: int) -> Header:
    proto = proto_class(cls)()
    try:
        proto.ParseFromString(header)
    except DecodeError as err:
        raise WireError(f"{cls.__name__}: not a {cls.__name__} message") from err
    return Header(cls, proto, body_size)


_read_small_header = functools.lru_cache(MAX_KEPT_HEADERS)(_read_header)


def decode(cls: type[M], header: bytes, body: memoryview, dims: Dims | None = None) -> M:
    """The message in a payload, validated; its arrays are views into `body`.

    Args:
        cls: Message class expected.
        header: Serialized protobuf message.
        body: Numbers of its tensors.
        dims: Shape symbols already bound, e.g. by the request that this answers.

    Raises:
        WireError: Malformed, or a number out of range.
        InvalidTensorError: Wrong shape, NaN or infinity.
    """
    parsed = decode_header(cls, header, len(body))
    message = parsed.message([slot.view(body) for slot in parsed.slots], dims or {})
    assert isinstance(message, cls)  # noqa: S101  # built from cls
    return message


__all__ = ["Header", "decode", "decode_header", "encode", "enum_prefix", "proto_class"]
