"""Protobuf classes of the messages that packages from outside declare, made from their dataclasses when first needed.

A package writes no .proto file. Its fields have the numbers 1, 2, ... in the order in which they are declared, those
of a base class first. Both ends run the same release of it, which is checked before round 1.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, EnumDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from google.protobuf.message import Message as ProtoMessage

from kernfed import plugins
from kernfed.errors import ConfigError
from kernfed.federation.messages.base import FieldInfo, fields_of
from kernfed.v1 import tensor_pb2

_SCALARS = {
    float: FieldDescriptorProto.TYPE_DOUBLE,
    bool: FieldDescriptorProto.TYPE_BOOL,
    str: FieldDescriptorProto.TYPE_STRING,
}
EnumPrefix = Callable[[type[enum.Enum]], str]


def is_outside(cls: type) -> bool:
    """Whether a message, a part of one or an enum is declared by a package from outside."""
    return plugins.owner(cls.__module__) is not None


@functools.cache
def made_class(cls: type, prefix: EnumPrefix) -> type[ProtoMessage]:
    """The class of a message dataclass of a package from outside.

    Args:
        cls: The dataclass.
        prefix: What stands before the names of an enum's members.

    Raises:
        ConfigError: A field is of a type that cannot cross the wire; names it.
    """
    found: type[ProtoMessage] = message_factory.GetMessageClass(_message(cls, prefix))
    return found


@functools.cache
def _message(cls: type, prefix: EnumPrefix) -> Descriptor:
    if not is_outside(cls):
        return descriptor_pool.Default().FindMessageTypeByName(f"kernfed.v1.{cls.__name__}")
    file = _file(cls)
    message = file.message_type.add(name=cls.__name__)
    for number, f in enumerate(fields_of(cls), 1):
        field = message.field.add(name=f.name, number=number)
        field.label = FieldDescriptorProto.LABEL_REPEATED if f.type is tuple else FieldDescriptorProto.LABEL_OPTIONAL
        _set_type(field, file, cls, f, prefix)
    return _added(file).FindMessageTypeByName(f"{file.package}.{cls.__name__}")


def _set_type(
    field: FieldDescriptorProto, file: descriptor_pb2.FileDescriptorProto, cls: type, f: FieldInfo, prefix: EnumPrefix
) -> None:
    bare: Any = f.item or f.type
    part: Descriptor | EnumDescriptor | None = None
    if bare in _SCALARS:
        field.type = _SCALARS[bare]
    elif bare is int:
        counts = f.range is not None and f.range.ge >= 0
        field.type = FieldDescriptorProto.TYPE_UINT64 if counts else FieldDescriptorProto.TYPE_INT64
    elif bare is np.ndarray:
        field.type, part = FieldDescriptorProto.TYPE_MESSAGE, tensor_pb2.Tensor.DESCRIPTOR
    elif f.nested:
        field.type, part = FieldDescriptorProto.TYPE_MESSAGE, _message(bare, prefix)
    elif isinstance(bare, type) and issubclass(bare, enum.Enum):
        field.type, part = FieldDescriptorProto.TYPE_ENUM, _enum(bare, prefix)
    else:
        raise ConfigError(
            f"{cls.__module__}.{cls.__name__}.{f.name} of package {plugins.owner(cls.__module__)} is of type {bare!r}, "
            "which cannot cross the wire; see docs/add-a-method.md, or uninstall the package"
        )
    if part is not None:
        field.type_name = f".{part.full_name}"
        if part.file.name not in file.dependency:
            file.dependency.append(part.file.name)


@functools.cache
def _enum(cls: type[enum.Enum], prefix: EnumPrefix) -> EnumDescriptor:
    if not is_outside(cls):
        return descriptor_pool.Default().FindEnumTypeByName(f"kernfed.v1.{cls.__name__}")
    file, first = _file(cls), prefix(cls)
    made = file.enum_type.add(name=cls.__name__)
    for number, name in enumerate(["UNSPECIFIED", *(member.name for member in cls)]):
        made.value.add(name=f"{first}{name}", number=number)
    return _added(file).FindEnumTypeByName(f"{file.package}.{cls.__name__}")


def _file(cls: type) -> descriptor_pb2.FileDescriptorProto:
    name = f"outside/{cls.__module__}.{cls.__name__}.proto"
    return descriptor_pb2.FileDescriptorProto(name=name, package=f"outside.{cls.__module__}", syntax="proto3")


def _added(file: descriptor_pb2.FileDescriptorProto) -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    return pool
