"""The base of all messages: frozen dataclasses whose annotations state shapes, ranges and units.

A request names its step, the type of its reply and the kinds of information that the reply lets out of a site, so
one declaration serves the codec (`kernfed.wire.codec`), the client's policy and the cohort's aggregation::

    @dataclass(frozen=True, slots=True)
    class Gradient(Reply):
        num_rows: Rows
        gradient: Annotated[Array, Shape("M", "C")]

    @dataclass(frozen=True, slots=True)
    class GradientRequest(Request[Gradient]):
        step = "newton.gradient"
        ...

Symbols in shapes (`"M"`) are bound by the request and must agree in its reply.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import numpy as np

from kernfed.arrays import Array
from kernfed.errors import InvalidTensorError, WireError
from kernfed.maths.model_spread import MODEL_SPREAD

Dims = dict[str, int]
"""Sizes bound to shape symbols so far."""

R = TypeVar("R", bound="Reply")
"""Type of a reply, in all that passes one on."""
R_co = TypeVar("R_co", bound="Reply", covariant=True)


class Kind(enum.StrEnum):
    """Kinds of information that may leave a site; a client's policy lists those it allows."""

    SUMMARY = "summary"
    MEAN_EMBEDDING = "mean_embedding"
    SUFFICIENT_STATISTIC = "sufficient_statistic"
    GRADIENT = "gradient"
    NEWTON_STEP = "newton_step"
    PREDICTION = "prediction"
    MODEL_UPDATE = "model_update"
    COLLABORATION_WEIGHTS = "collaboration_weights"
    METRIC = "metric"
    UNLABELLED_SAMPLE = "unlabelled_sample"
    STORED_STATISTIC = "stored_statistic"


@dataclass(frozen=True, slots=True)
class Shape:
    """Shape of an array: fixed sizes or symbols that must agree within a request and its reply."""

    dims: tuple[int | str, ...]

    def __init__(self, *dims: int | str) -> None:
        object.__setattr__(self, "dims", dims)


@dataclass(frozen=True, slots=True)
class Dim:
    """An integer field that binds a shape symbol."""

    symbol: str


@dataclass(frozen=True, slots=True)
class Range:
    """Closed range of a number; NaN and infinity are always refused."""

    ge: float = -float("inf")
    le: float = float("inf")


@dataclass(frozen=True, slots=True)
class Exact:
    """Marks an array that travels in float64 whatever the job's precision: a statistic, a share, a scale."""


@dataclass(frozen=True, slots=True)
class Dispensable:
    """Marks a field that a client of a release before it may pass over: the answer shows it, and is of use."""


@dataclass(frozen=True, slots=True)
class Whole:
    """Marks an array of whole numbers, int64 or uint8, each from 0 to 2^40, so that no sum of them overflows.

    All other arrays hold floats: counts that come as floats, or statistics that come as integers, are refused.
    """


@dataclass(frozen=True, slots=True)
class MaxLength:
    """Longest text (characters) or sequence (items) that a field may hold."""

    limit: int


_MOST_WHOLE = 2**40

Rows = Annotated[int, Range(ge=0, le=2**53)]
"""Training rows of the client; must equal what the client stated in its DataDescription."""

NumFeatures = Annotated[int, Dim("M"), Range(1, 10_000_000)]
"""Features M."""
NumOutputs = Annotated[int, Dim("C"), Range(1, 1_000_000)]
"""Outputs C: 1 for regression and binary, else one per class."""

Name = Annotated[str, MaxLength(256)]
Names = Annotated[tuple[str, ...], MaxLength(65536)]


@dataclass(frozen=True, slots=True)
class Message:
    """Anything that crosses the wire as a payload."""


@dataclass(frozen=True, slots=True)
class Stated:
    """What a client stated of its data before round 1, by which its later replies are checked."""

    num_rows: int = 0
    """Training rows."""
    num_test_rows: int | None = None
    """None: it was not stated."""


@dataclass(frozen=True, slots=True)
class Reply(Message):
    """A client's typed answer to a request.

    Class attributes:
        diagnostics: Floats of which honest ones may differ by any factor, as they tell how a client came to its answer,
            or have a rule of their own; they are not compared between clients.
        models: Floats that are models of one scale, of which means are formed; honest ones differ by less than others.
            `Request.models_differ` says by how much.
        directions: Arrays of which sums are formed, and which point the same way at clients whose rows are of one law.
            What a request has under the same name is where they begin.
    """

    diagnostics: ClassVar[tuple[str, ...]] = ()
    models: ClassVar[tuple[str, ...]] = ()
    directions: ClassVar[tuple[str, ...]] = ()

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """Say what in this reply cannot be, by itself or by what its client stated; a reply with such is refused.

        `kernfed.federation.ledger` compares `num_rows` and `num_test_rows` for every reply; counts and sums that only
        this reply has are its own to check.
        """
        del stated
        yield from ()


@dataclass(frozen=True, slots=True)
class Request(Message, Generic[R_co]):
    """A typed question to clients.

    Class attributes:
        step: Wire name of the step, `<method>.<verb>`.
        reply: Type of the answer.
        kinds: What the answer lets out of the site; the client's policy must allow each.
        setup: Whether the client keeps this request to rebuild its state for the job after a restart.
        leaves_later: Whether a setup step that is asked again leaves what was set up behind it as it is; what was set
            up behind any other one stands on it, and is set up again.
        once: Whether the step moves what the client keeps, or tells of what such steps moved: an answer from memory
            belongs to the state that there was, and counts only while no other of these steps was computed.
        young: Fields that a client does not know which states no fields in its hello, as releases of before did.
    """

    step: ClassVar[str]
    reply: ClassVar[type[Reply]]
    kinds: ClassVar[tuple[Kind, ...]] = ()
    setup: ClassVar[bool] = False
    leaves_later: ClassVar[bool] = False
    once: ClassVar[bool] = False
    young: ClassVar[tuple[str, ...]] = ()

    @property
    def bare(self) -> Request[Any]:
        """What is asked, without what hides its answer among those of others; the request itself where nothing does."""
        return self

    @property
    def remark(self) -> str:
        """What a site's audit log has to say of the answer beside its kinds; empty: nothing."""
        return ""

    def refusals(self, reply: Any) -> Iterator[str]:
        """Say why a reply cannot be an answer to this request; one with such leaves its client out of the step.

        `Reply.contradictions` looks at a reply alone.
        """
        del reply
        yield from ()

    def models_differ(self, rows: float) -> float:
        """How many times as large as another client's the models in a client's reply may be; see `Reply.models`.

        Args:
            rows: How many times the other client's training rows it has.
        """
        del rows
        return MODEL_SPREAD

    def reach(self, rows: int) -> float:
        """How far directions of a client with so many training rows go, beside one with others; see `Reply.directions`.

        As many steps as it takes, where it takes more of them the more rows it has.
        """
        del rows
        return 1.0

    @property
    def goes_on_from(self) -> str | None:
        """Id of the job whose state at the client the job goes on from; empty: of none; None: not this one's to say."""
        return None


def requests_in(*modules: ModuleType) -> tuple[type[Request[Any]], ...]:
    """The requests that modules define, in their order there; without a step it is but what several have in common."""
    return tuple(
        found
        for module in modules
        for found in vars(module).values()
        if isinstance(found, type) and issubclass(found, Request) and found.__module__ == module.__name__
        if hasattr(found, "step")
    )


@dataclass(frozen=True, slots=True)
class FieldInfo:
    """One field of a message, its annotation taken apart."""

    name: str
    type: Any
    """The bare type: int, float, str, bool, np.ndarray, an enum, a message class, or tuple."""
    item: Any
    """Item type where `type` is tuple, else None."""
    nested: bool
    """Whether the value, or each item of it, is a message itself."""
    shape: Shape | None
    dim: Dim | None
    range: Range | None
    max_length: MaxLength | None
    exact: bool = False
    """Whether the array keeps its digits in a job of lower precision."""
    whole: bool = False
    """Whether the array holds whole numbers; else floats."""
    dispensable: bool = False
    """See `Dispensable`."""


def _bare(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    if typing.get_origin(annotation) is Annotated:
        base, *metadata = typing.get_args(annotation)
        inner, more = _bare(base)
        return inner, (*more, *metadata)
    return annotation, ()


_FIELDS: dict[type, tuple[FieldInfo, ...]] = {}


def fields_of(cls: type) -> tuple[FieldInfo, ...]:
    """Fields of a message class in declaration order, which is also the order of tensors in a payload."""
    found = _FIELDS.get(cls)
    if found is None:
        found = _FIELDS[cls] = _read_fields(cls)
    return found


def _read_fields(cls: type) -> tuple[FieldInfo, ...]:
    hints = typing.get_type_hints(cls, include_extras=True)
    found = []
    for f in dataclasses.fields(cls):
        bare, metadata = _bare(hints[f.name])
        origin = typing.get_origin(bare)
        item = None
        if origin is tuple:
            item, more = _bare(typing.get_args(bare)[0])
            metadata = (*metadata, *more)
            bare = tuple
        elif origin is np.ndarray or bare is np.ndarray:
            bare = np.ndarray

        def pick(kind: type, metadata: tuple[Any, ...] = metadata) -> Any:
            return next((m for m in metadata if isinstance(m, kind)), None)

        nested = dataclasses.is_dataclass(item or bare)
        marks = (pick(Exact) is not None, pick(Whole) is not None, pick(Dispensable) is not None)
        found.append(
            FieldInfo(f.name, bare, item, nested, pick(Shape), pick(Dim), pick(Range), pick(MaxLength), *marks)
        )
    return tuple(found)


def validate(message: Any, dims: Dims, *, finite: bool = True) -> Dims:
    """Check a message against its annotations.

    Args:
        message: A message or a nested part of one.
        dims: Shape symbols bound so far, e.g. by the request that this message answers. Not changed.
        finite: Whether to look for NaN and infinity in arrays; False where that was done as their bytes arrived.

    Returns:
        `dims` with the symbols that this message binds.

    Raises:
        WireError: A number is out of range or not finite, or a text or list is too long.
        InvalidTensorError: A tensor has the wrong shape or type, or holds NaN or infinity, or counts beyond reason.
    """
    bound = dict(dims)
    _validate(message, bound, type(message).__name__, finite)
    return bound


def _validate(message: Any, dims: Dims, where: str, finite: bool) -> None:
    for f in fields_of(type(message)):
        value = getattr(message, f.name)
        if f.type is np.ndarray:
            _validate_array(value, f, dims, where, finite)
        elif f.type is tuple:
            if f.max_length and len(value) > f.max_length.limit:
                raise WireError(f"{where}.{f.name} has {len(value)} items, more than {f.max_length.limit}")
            for i, item in enumerate(value):
                if f.nested:
                    _validate(item, dims, f"{where}.{f.name}[{i}]", finite)
                else:
                    _validate_scalar(item, f, dims, where)
        elif f.nested:
            _validate(value, dims, f"{where}.{f.name}", finite)
        else:
            _validate_scalar(value, f, dims, where)


def _validate_scalar(value: Any, f: FieldInfo, dims: Dims, where: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise WireError(f"{where}.{f.name} is {value}, want a finite number")
    if f.range and not f.range.ge <= value <= f.range.le:
        raise WireError(f"{where}.{f.name} is {value}, want a number in [{f.range.ge:g}, {f.range.le:g}]")
    if isinstance(value, str) and len(value) > (f.max_length.limit if f.max_length else 65536):
        raise WireError(f"{where}.{f.name} is a text of {len(value)} characters, more than allowed")
    if f.dim and dims.setdefault(f.dim.symbol, value) != value:
        symbol = f.dim.symbol
        raise InvalidTensorError(f"{where}.{f.name}: size {symbol} is {value}, want {dims[symbol]}")


def _validate_array(value: Array, f: FieldInfo, dims: Dims, where: str, finite: bool) -> None:
    if f.shape is not None:
        want = f.shape.dims
        fits = value.ndim == len(want) and all(
            (dims.setdefault(d, size) if isinstance(d, str) else d) == size
            for size, d in zip(value.shape, want, strict=True)
        )
        if not fits:
            shown = tuple(dims.get(d, d) if isinstance(d, str) else d for d in want)
            raise InvalidTensorError(f"{where}.{f.name}: want shape {shown}, got {value.shape}")
    if value.dtype.kind not in ("iu" if f.whole else "f"):
        raise InvalidTensorError(
            f"{where}.{f.name}: want {'whole numbers' if f.whole else 'floats'}, got {value.dtype}; "
            "install the same release of kernfed at client and coordinator"
        )
    if f.whole and value.dtype.itemsize > 1 and value.size and not 0 <= value.min() <= value.max() <= _MOST_WHOLE:
        raise InvalidTensorError(f"{where}.{f.name} holds whole numbers outside of [0, {_MOST_WHOLE:,}]")
    if finite and not f.whole and not all_finite(value):
        raise InvalidTensorError(f"{where}.{f.name} holds NaN or infinity")


def all_finite(value: Array) -> bool:
    """Whether every number of a float array is finite, without a temporary of the array's size."""
    flat = value.reshape(-1)
    if flat.size <= 1024:
        return bool(np.isfinite(flat).all())
    # A finite sum has only finite terms; a sum that is not finite may have overflowed, and is looked at closely.
    with np.errstate(over="ignore", invalid="ignore"):
        if math.isfinite(flat.sum()):
            return True
    step = 1 << 17
    return all(bool(np.isfinite(flat[i : i + step]).all()) for i in range(0, flat.size, step))
