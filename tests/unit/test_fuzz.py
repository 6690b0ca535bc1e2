"""Bytes from peers and files: bent in every way, they are read or refused, and never anything else."""

from __future__ import annotations

import random
import time
import warnings
import zlib

import pytest

from kernfed_testing.hostile.fuzz import CORPUS, Target, bend, targets

NAMES = [
    "audit-log",
    "certificate",
    "checkpoint",
    "client-file",
    "coordinator-file",
    "csv",
    "fragment",
    "identity-ca.pem",
    "identity-cert.pem",
    "identity-identity.json",
    "identity-key.pem",
    "job-file",
    "model.json",
    "model.safetensors",
    "npz",
    "parquet",
    "payload",
    "public-csv",
    "public-npz",
    "public-parquet",
    "public-set",
    "reply-frame",
    "reply-journal",
    "signing-request",
    "stream-csv",
    "stream-jsonl",
    "submission",
    "task-frame",
    "token",
]
NUM_BENT = 150
LIMIT_S = 2.0
"""For one input, on a busy machine."""


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Target]:
    """All readers."""
    return targets(tmp_path_factory.mktemp("fuzz"))


def test_every_reader_is_tried(readers: dict[str, Target]) -> None:
    """A reader that is added is bent too."""
    assert sorted(readers) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_bent_input(readers: dict[str, Target], name: str) -> None:
    """Good input is read; bent input is read or refused by an error of ours, soon."""
    target = readers[name]
    for example in target.examples[:1]:
        assert target.feed(example)
    draw = random.Random(zlib.crc32(name.encode()))
    for _ in range(NUM_BENT):
        data = bend(draw, target.examples)
        began = time.process_time()
        try:
            target.feed(data)
        except Exception as err:
            raise AssertionError(f"{name}: {type(err).__name__} for {data!r}") from err
        assert time.process_time() - began < LIMIT_S, data


@pytest.mark.parametrize("name", NAMES)
def test_corpus(readers: dict[str, Target], name: str) -> None:
    """What once broke a reader, nothing and zeros are refused or read, and good input is read after it."""
    kept = [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]
    for data in [b"", bytes(100), *kept]:
        with warnings.catch_warnings():
            readers[name].feed(data)
    assert all(readers[name].feed(example) for example in readers[name].examples[:1])
