"""Messages to bytes and back; every class agrees with its .proto file; hostile headers are WireErrors."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernfed.errors import InvalidTensorError, WireError
from kernfed.federation.messages.base import Message, fields_of, validate
from kernfed.federation.messages.data import DataDescription, DescribeDataRequest, StandardiseRequest
from kernfed.federation.messages.evaluation import Evaluation, MetricSums
from kernfed.methods.ridge.messages import GradientRequest, LocalModel
from kernfed.v1 import data_pb2, evaluation_pb2, ridge_pb2, tensor_pb2
from kernfed.wire.codec import decode, decode_header, encode
from kernfed.wire.payload import MAX_HEADER_BYTES
from kernfed_testing.messages import message_classes, messages
from kernfed_testing.properties import examples

CLASSES = message_classes()
FLOAT64 = tensor_pb2.ELEMENT_TYPE_FLOAT64


def test_all_classes_are_found() -> None:
    """The classes under test contain those of each room."""
    assert {LocalModel, DataDescription, Evaluation} <= set(CLASSES)


def equal(a: Any, b: Any) -> None:
    for f in fields_of(type(a)):
        x, y = getattr(a, f.name), getattr(b, f.name)
        if f.type is np.ndarray:
            np.testing.assert_array_equal(x, y)
        elif f.type is tuple and f.item is not None and dataclasses.is_dataclass(f.item):
            assert len(x) == len(y)
            for i, j in zip(x, y, strict=True):
                equal(i, j)
        elif dataclasses.is_dataclass(x):
            equal(x, y)
        else:
            assert x == y
            assert type(x) is type(y)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_decode_inverts_encode(cls: type[Message], data: st.DataObject) -> None:
    """A message is decoded to itself, and to the same bytes again."""
    message = data.draw(messages(cls))
    validate(message, {})
    payload = encode(message)
    equal(decode(cls, payload.header, memoryview(payload.body())), message)
    assert encode(message).header == payload.header


def assert_survives_or_refused(cls: type[Message], header: bytes, body: bytes) -> None:
    """Bytes are refused, or are a valid message that the wire returns equal and to the same bytes."""
    try:
        message = decode(cls, header, memoryview(body))
    except WireError:
        return
    validate(message, {})
    payload = encode(message)
    again = decode(cls, payload.header, memoryview(payload.body()))
    equal(again, message)
    assert (encode(again).header, encode(again).body()) == (payload.header, payload.body())


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_garbage_is_a_wire_error(cls: type[Message]) -> None:
    """Any bytes are a WireError or a message that survives the wire."""
    draw = random.Random(cls.__name__)
    assert_survives_or_refused(cls, b"", b"")
    for _ in range(examples(200)):  # without Hypothesis, whose bookkeeping costs a hundred times what is tried
        header, body = (draw.randbytes(min(draw.randrange(81), draw.randrange(81))) for _ in range(2))
        assert_survives_or_refused(cls, header, body)


@settings(max_examples=examples(200))
@given(data=st.data())
def test_bent_header_is_a_wire_error(data: st.DataObject) -> None:
    """A good message with some of its bytes changed is a WireError or a message that survives the wire."""
    payload = encode(
        StandardiseRequest(classes=("no", "yes"), mean=np.zeros(3), deviation=np.ones(3), median_distance=True)
    )
    header = bytearray(payload.header)
    for _ in range(data.draw(st.integers(1, 4))):
        header[data.draw(st.integers(0, len(header) - 1))] = data.draw(st.integers(0, 255))
    assert_survives_or_refused(StandardiseRequest, bytes(header), payload.body())


def test_float32_on_the_wire() -> None:
    """Arrays sent with 32 bits arrive with 32."""
    payload = encode(LocalModel(num_rows=3, weights=np.full((2, 1), 0.1)), float_bits=32)
    back = decode(LocalModel, payload.header, memoryview(payload.body()))
    assert back.weights.dtype == np.float32
    assert back.weights[0, 0] == np.float32(0.1)


def test_means_and_deviations_of_what_a_file_holds_keep_their_digits() -> None:
    """Whatever the job's precision; means of embeddings, whose features are of about size 1, are as wide as it says."""
    named = {
        f"{cls.__name__}.{f.name}": f.exact
        for cls in CLASSES
        for f in fields_of(cls)
        if f.type is np.ndarray and f.name in {"mean", "deviation", "group_means", "target_mean", "sum_squares"}
    }
    assert len(named) > 3
    assert {name for name, exact in named.items() if not exact} <= {"ClientEmbedding.mean"}


def test_arrays_are_views_of_the_body() -> None:
    """Decoding copies no array."""
    payload = encode(LocalModel(num_rows=3, weights=np.ones((2, 1))))
    body = np.frombuffer(payload.body(), np.uint8)
    assert np.shares_memory(decode(LocalModel, payload.header, body.data).weights, body)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("bits", [64, 32])
def test_not_finite(value: float, bits: int) -> None:
    """NaN and infinity in an array are refused on arrival."""
    weights = np.zeros((5, 1))
    weights[3] = value
    payload = encode(LocalModel(num_rows=3, weights=weights), bits)
    with pytest.raises(InvalidTensorError, match="NaN or infinity"):
        decode(LocalModel, payload.header, memoryview(payload.body()))


def test_statistics_are_floats() -> None:
    """Integers in their place are refused: they would not be compared with those of other clients."""
    with pytest.raises(
        InvalidTensorError, match=r"LocalModel\.weights: want floats, got int64; install the same release"
    ):
        validate(LocalModel(num_rows=3, weights=np.full((5, 1), 10**18)), {})


def test_missing_tensor() -> None:
    """A header without one of its arrays is refused by the field."""
    with pytest.raises(WireError, match=r"LocalModel\.weights is missing"):
        decode_header(LocalModel, ridge_pb2.LocalModel(num_rows=1).SerializeToString(), 0)


def test_missing_part() -> None:
    """A header without one of its parts is refused by the field."""
    with pytest.raises(WireError, match=r"DescribeDataRequest\.schema is missing"):
        decode_header(DescribeDataRequest, data_pb2.DescribeDataRequest(dataset="x").SerializeToString(), 0)


@pytest.mark.parametrize("task", [0, 99])
def test_unknown_enum(task: int) -> None:
    """A number that stands for no value of its enum is refused."""
    schema = data_pb2.DataSchema(task=task, missing=1)  # type: ignore[arg-type]  # a number that the enum lacks
    header = data_pb2.DescribeDataRequest(dataset="x", schema=schema).SerializeToString()
    with pytest.raises(WireError, match="unknown value"):
        decode(DescribeDataRequest, header, memoryview(b""))


def test_truncated_and_trailing() -> None:
    """A body or header that is too short or too long is refused."""
    payload = encode(LocalModel(num_rows=3, weights=np.ones((2, 1))))
    body = memoryview(payload.body())
    with pytest.raises(InvalidTensorError, match="needs 16 bytes, the body has 15"):
        decode(LocalModel, payload.header, body[:-1])
    with pytest.raises(InvalidTensorError, match="its tensors fill 16"):
        decode(LocalModel, payload.header, memoryview(bytes(body) + b"\0"))
    with pytest.raises(WireError):
        decode(LocalModel, payload.header[:-1], body)


def test_shape_bound_by_request() -> None:
    """A reply whose arrays have another shape than the request says is refused."""
    request = GradientRequest(ridge=1.0, weights=np.ones((4, 1)))
    payload = encode(LocalModel(num_rows=3, weights=np.ones((2, 1))))
    with pytest.raises(InvalidTensorError, match=r"want shape \(4, 1\), got \(2, 1\)"):
        decode(LocalModel, payload.header, memoryview(payload.body()), validate(request, {}))


def test_header_too_long() -> None:
    """A header beyond the limit is not parsed."""
    with pytest.raises(WireError, match="header of"):
        decode_header(LocalModel, bytes(MAX_HEADER_BYTES + 1), 0)


def test_too_many_parts() -> None:
    """A list beyond its limit is refused."""
    header = evaluation_pb2.Evaluation(num_test_rows=1, sums=[evaluation_pb2.MetricSums()] * 17).SerializeToString()
    with pytest.raises(WireError, match="17 items, more than 16"):
        decode_header(Evaluation, header, 0)


@pytest.mark.parametrize("field", ["squared_error", "auc", "log_loss", "target_mean"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -1e400])
def test_numbers_are_finite(field: str, value: float) -> None:
    """NaN and infinity in a number are refused by the field."""
    sums = evaluation_pb2.MetricSums(model="global", num_rows=1)
    setattr(sums, field, value)
    header = evaluation_pb2.Evaluation(num_test_rows=1, sums=[sums]).SerializeToString()
    with pytest.raises(WireError, match=f"{field} is .*, want a"):
        decode(Evaluation, header, memoryview(b""))
    assert field in {f.name for f in fields_of(MetricSums)}
