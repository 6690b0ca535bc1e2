"""Requests as bytes: to workers, and in the file of all that was asked. Nothing is ever unpickled."""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from kernfed.federation.exchange import Call
from kernfed.federation.messages.base import Request
from kernfed.wire.codec import decode, encode

Blob = bytes
_SIZE = struct.Struct("<Q")


@dataclass(frozen=True)
class Asked:
    """A request to several clients."""

    step: str
    float_bits: int
    clients: tuple[str, ...]
    blobs: tuple[Blob, ...]
    """Header and body of the request that all of these clients get, or of each one's own in their order."""

    @classmethod
    def of(cls, call: Call[Any]) -> Asked:
        """What a call asks, as it is sent."""
        requests = [call.request] if call.own is None else [call.request_of(client) for client in call.clients]
        payloads = [encode(request, call.float_bits) for request in requests]
        blobs = tuple(blob for payload in payloads for blob in (payload.header, payload.body()))
        return cls(call.request.step, call.float_bits, call.clients, blobs)

    def to(self, names: Collection[str]) -> Asked:
        """The same to some of its clients."""
        places = [i for i, client in enumerate(self.clients) if client in names]
        clients = tuple(self.clients[i] for i in places)
        if self.is_shared:
            return replace(self, clients=clients)
        return replace(self, clients=clients, blobs=tuple(b for i in places for b in self.blobs[2 * i : 2 * i + 2]))

    @property
    def is_shared(self) -> bool:
        """Whether all get the same."""
        return len(self.blobs) == 2

    def requests(self, known: Mapping[str, type[Request[Any]]]) -> Iterator[tuple[str, Request[Any]]]:
        """Each client with its request.

        Args:
            known: Types of requests by their steps.
        """
        kind, made = known[self.step], None
        for i, client in enumerate(self.clients):
            if made is None or not self.is_shared:
                header, body = self.blobs[0:2] if self.is_shared else self.blobs[2 * i : 2 * i + 2]
                made = decode(kind, header, memoryview(body))
            yield client, made

    def facts(self) -> bytes:
        """All but the blobs."""
        told = {"step": self.step, "bits": self.float_bits, "clients": self.clients, "blobs": len(self.blobs)}
        return json.dumps(told).encode()

    @classmethod
    def read(cls, facts: bytes, blobs: Iterator[Blob]) -> Asked:
        """What `facts` and the blobs behind them say."""
        told = json.loads(facts)
        parts = tuple(next(blobs) for _ in range(told["blobs"]))
        return cls(told["step"], told["bits"], tuple(told["clients"]), parts)


class AskedFile:
    """All that clients were asked, in order, in a file: what a worker that takes another's place does again."""

    def __init__(self, path: Path) -> None:
        """Begin an empty one."""
        self._path = path
        self._file = path.open("wb")
        self._num = 0

    def add(self, asked: Asked) -> int:
        """Write a request down; returns how many there were before it."""
        for blob in (asked.facts(), *asked.blobs):
            self._file.write(_SIZE.pack(len(blob)))
            self._file.write(blob)
        self._file.flush()
        self._num += 1
        return self._num - 1

    def first(self, num: int | None = None) -> Iterator[Asked]:
        """The first requests; None: all."""
        with self._path.open("rb") as file:
            blobs = _blobs(file)
            for _ in range(self._num if num is None else num):
                yield Asked.read(next(blobs), blobs)

    def close(self) -> None:
        """Nothing is added any more."""
        self._file.close()


def _blobs(file: BinaryIO) -> Iterator[Blob]:
    while size := file.read(_SIZE.size):
        yield file.read(_SIZE.unpack(size)[0])
