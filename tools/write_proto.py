"""Write the .proto files of messages from their dataclasses, where each message is declared: `make proto` runs it.

A field keeps the number that the generated code has for it; a new field gets the next one, and the number and name of a
field that went are reserved. So a method adds a field to its dataclass, and the wire contract follows. Files with
services, and those of tasks and tensors, are written by hand.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import enum
import importlib
import inspect
import itertools
import pathlib
import pkgutil
import sys
import textwrap
import typing
from collections.abc import Iterator
from functools import cache

import numpy as np
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FieldDescriptor, FileDescriptor

import kernfed.v1
from kernfed.federation.messages.base import FieldInfo, Message, Request, fields_of
from kernfed.federation.messages.catalogue import message_modules
from kernfed.wire.codec import enum_prefix

FOLDER = pathlib.Path(__file__).parent.parent / "proto/kernfed/v1"
WIDTH = 120
BIGGEST = {2**53: "2^53", 2**63 - 1: "2^63 - 1"}
SCALARS = {float: "double", bool: "bool", str: "string"}
WIRE_NAMES = {FieldDescriptor.TYPE_UINT32: "uint32", FieldDescriptor.TYPE_INT64: "int64"}


@dataclasses.dataclass(frozen=True)
class Known:
    """The wire contract so far: what the generated code holds."""

    files: dict[str, FileDescriptor]
    """By file name without folder and ending."""

    def file_of(self, name: str) -> str | None:
        """File in which a message or an enum is declared."""
        return next((f for f in self.files if name in self._names(f)), None)

    def _names(self, file: str) -> list[str]:
        found = self.files[file]
        return [*found.enum_types_by_name, *found.message_types_by_name]

    def place(self, name: str) -> int:
        """Place within its file; new names come last."""
        file = self.file_of(name)
        if file is None:
            return 1 << 30
        return self._names(file).index(name)

    def fields(self, name: str) -> dict[str, FieldDescriptor]:
        """Fields of a message by name; none for a new one."""
        file = self.file_of(name)
        return {} if file is None else dict(self.files[file].message_types_by_name[name].fields_by_name)

    def reserved(self, name: str) -> tuple[set[int], set[str]]:
        """Numbers and names of the fields that a message once had."""
        file = self.file_of(name)
        proto = descriptor_pb2.DescriptorProto()
        if file is not None:
            self.files[file].message_types_by_name[name].CopyToProto(proto)
        return {n for r in proto.reserved_range for n in range(r.start, r.end)}, set(proto.reserved_name)


def files(known: Known) -> dict[str, str]:
    """Text of each file of messages, by its name without folder and ending."""
    homes: dict[type, str] = {}
    for module in message_modules():
        declared = [t for t in vars(module).values() if isinstance(t, type) and t.__module__ == module.__name__]
        # A request without a step is but what several have in common.
        messages = [
            t for t in declared if issubclass(t, Message) and (hasattr(t, "step") or not issubclass(t, Request))
        ]
        *_, folder, own = module.__name__.split(".")  # a room has one file, and so has each module that all share
        new = own if folder == "messages" else folder
        named = next((f for t in messages if (f := known.file_of(t.__name__))), new)
        for found in messages:
            for part in _with_parts(found):
                homes.setdefault(part, known.file_of(part.__name__) or named)
    texts = {}
    for file in sorted(set(homes.values())):
        parts = [t for t, home in homes.items() if home == file]
        parts.sort(key=lambda t: (not _is_enum(t), known.place(t.__name__)))
        blocks = [_enum(t) if _is_enum(t) else message(t, known) for t in parts]
        uses = {"tensor" if t is np.ndarray else homes[t] for part in parts for t in _parts_of(part)} - {file}
        head = ["// Written by tools/write_proto.py from the dataclasses of the messages.", ""]
        head += ['syntax = "proto3";', "", "package kernfed.v1;", ""]
        head += [f'import "kernfed/v1/{name}.proto";' for name in sorted(uses)] + [""] * bool(uses)
        texts[file] = "\n".join(head) + "\n" + "\n\n".join(blocks) + "\n"
    return texts


def contract() -> Known:
    """What is on the wire so far, by the generated code."""
    modules = [m.name for m in pkgutil.iter_modules(kernfed.v1.__path__) if m.name.endswith("_pb2")]
    return Known({n.removesuffix("_pb2"): importlib.import_module(f"kernfed.v1.{n}").DESCRIPTOR for n in modules})


def _is_enum(cls: type) -> bool:
    return issubclass(cls, enum.Enum)


def _parts_of(cls: type) -> Iterator[type]:
    for f in () if _is_enum(cls) else fields_of(cls):
        bare = f.item or f.type
        if bare not in SCALARS and bare is not int:
            yield bare


def _with_parts(cls: type) -> Iterator[type]:
    for part in _parts_of(cls):
        if part is not np.ndarray:
            yield from _with_parts(part)
    yield cls


def _enum(cls: type[enum.Enum]) -> str:
    prefix, docs = enum_prefix(cls), _docs_inside(cls)
    lines = [*_comment(inspect.getdoc(cls) or "", 0), f"enum {cls.__name__} {{"]
    lines += ["  // Never sent; refused.", f"  {prefix}UNSPECIFIED = 0;"]
    for number, member in enumerate(cls, 1):
        lines += [
            *_comment(docs.get(member.name) or f"`{member.value}`.", 2),
            f"  {prefix}{member.name} = {number};",
        ]
    return "\n".join([*lines, "}"])


def message(cls: type, known: Known) -> str:
    """Text of one message.

    Raises:
        SystemExit: A field has no text that says what it is.
    """
    before, (numbers, names) = known.fields(cls.__name__), known.reserved(cls.__name__)
    fields = fields_of(cls)
    gone = before.keys() - {f.name for f in fields}
    numbers |= {before[name].number for name in gone}
    names |= gone
    following = max([0, *numbers, *(f.number for f in before.values())]) + 1
    lines = [*_comment(inspect.getdoc(cls) or "", 0), f"message {cls.__name__} {{"]
    if numbers:
        lines += [f"  reserved {', '.join(map(str, sorted(numbers)))};"]
    if names:
        quoted = [f'"{name}"' for name in sorted(names)]
        lines.append(f"  reserved {', '.join(quoted)};")
    placed = []
    for f in fields:
        old = before.get(f.name)
        number = old.number if old else following
        following += old is None
        placed.append((number, f, old))
    for number, f, old in sorted(placed, key=lambda p: p[0]):
        lines += _comment(f"{_doc_of_field(cls, f.name)} {_limits(f)}", 2)
        lines.append(f"  {'repeated ' if f.type is tuple else ''}{_type_name(f, old)} {f.name} = {number};")
    return "\n".join([*lines, "}"])


def _type_name(f: FieldInfo, old: FieldDescriptor | None) -> str:
    bare = f.item or f.type
    if bare is np.ndarray:
        return "Tensor"
    if bare is int:
        default = "uint64" if f.range and f.range.ge >= 0 else "int64"
        return WIRE_NAMES.get(old.type, "uint64") if old else default
    return SCALARS.get(bare) or bare.__name__


def _limits(f: FieldInfo) -> str:
    """What the annotations say, as sentences."""
    said = []
    if f.range:
        low, high = f.range.ge, f.range.le
        if low == 1e-300:
            said.append("Above 0." if high == float("inf") else f"Above 0, at most {_number(high)}.")
        elif high == float("inf"):
            said.append(f"At least {_number(low)}.")
        elif low == -float("inf"):
            said.append(f"At most {_number(high)}.")
        else:
            said.append(f"From {_number(low)} to {_number(high)}.")
    if f.max_length:
        said.append(f"At most {_number(f.max_length.limit)} {'items' if f.type is tuple else 'characters'}.")
    if f.shape:
        said.append(f"Shape ({', '.join(map(str, f.shape.dims))}).")
    if f.whole:
        said.append("Each from 0 to 2^40.")
    if f.dim:
        said.append(f"Binds {f.dim.symbol}.")
    return " ".join(said)


def _number(value: float) -> str:
    if value in BIGGEST:
        return BIGGEST[int(value)]
    return f"{int(value):,}" if float(value).is_integer() and abs(value) < 1e12 else f"{value:g}"


def _comment(text: str, indent: int) -> list[str]:
    lead = " " * indent + "//"
    lines = []
    for paragraph in text.strip().split("\n\n"):
        wrapped = textwrap.wrap(" ".join(paragraph.split()), WIDTH - len(lead) - 1, break_long_words=False)
        lines += [lead] * bool(lines) + [f"{lead} {line}" for line in wrapped]
    return lines


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(importlib.import_module(module)))


def _docs_in(body: list[ast.stmt]) -> dict[str, str]:
    """Texts that stand below the assignments of a module or a class, by the assigned name."""
    found = {}
    for statement, below in itertools.pairwise(body):
        if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(below, ast.Expr):
            target = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
            if isinstance(target, ast.Name) and isinstance(below.value, ast.Constant):
                found[target.id] = inspect.cleandoc(str(below.value.value))
    return found


def _class_body(cls: type) -> list[ast.stmt]:
    return next(
        n for n in ast.walk(_tree(cls.__module__)) if isinstance(n, ast.ClassDef) and n.name == cls.__name__
    ).body


def _docs_inside(cls: type) -> dict[str, str]:
    return _docs_in(_class_body(cls))


def _doc_of_field(cls: type, name: str) -> str:
    """Text below a field, or below the name of its type, or the first sentence of its type.

    Raises:
        SystemExit: There is none.
    """
    owner = next(c for c in cls.__mro__ if name in vars(c).get("__annotations__", {}))
    if said := _docs_inside(owner).get(name):
        return said
    declared = (s for s in _class_body(owner) if isinstance(s, ast.AnnAssign))
    annotation = next(s.annotation for s in declared if isinstance(s.target, ast.Name) and s.target.id == name)
    names = [n.id for n in ast.walk(annotation) if isinstance(n, ast.Name)]
    for used in names:
        if said := _doc_of_alias(owner.__module__, used):
            return said
    bare = next(f.item or f.type for f in fields_of(cls) if f.name == name)
    if bare not in SCALARS and bare not in (int, np.ndarray):
        return (inspect.getdoc(bare) or "").split("\n\n")[0]
    raise SystemExit(f"{cls.__module__}: {cls.__name__}.{name} has no text below it that says what it is")


def _doc_of_alias(module: str, name: str) -> str | None:
    if said := _docs_in(_tree(module).body).get(name):
        return said
    for statement in _tree(module).body:
        if isinstance(statement, ast.ImportFrom) and any(a.name == name for a in statement.names):
            return _doc_of_alias(str(statement.module), name) if str(statement.module).startswith("kernfed.") else None
    return None


def main(argv: list[str] | None = None) -> int:
    """Write the files, or compare them with what the dataclasses say."""
    parser = argparse.ArgumentParser(description=typing.cast("str", __doc__).split("\n\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where a file differs")
    only_check = parser.parse_args(argv).check
    differ = []
    for name, text in files(contract()).items():
        path = FOLDER / f"{name}.proto"
        if not path.exists() or path.read_text() != text:
            differ.append(path.name)
            if not only_check:
                path.write_text(text)
    if only_check and differ:
        print(f"proto: {', '.join(differ)} do not say what the dataclasses say; run make proto and commit it")
    return 1 if only_check and differ else 0


if __name__ == "__main__":
    sys.exit(main())
