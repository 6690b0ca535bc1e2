"""A worker: a process that owns some clients, and answers what they are asked until its line ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import traceback
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from typing import Any

from kernfed.errors import KernfedError
from kernfed.federation.exchange import Fault
from kernfed.federation.in_process import StepFunction
from kernfed.federation.messages.base import Request
from kernfed.wire.codec import encode
from kernfed_simulation.engine.asked import Asked, AskedFile

Steps = Mapping[type[Request[Any]], StepFunction]


def serve(
    line: Connection, steps: Steps, jobs: Mapping[str, Any], before: AskedFile, num: int, others: list[Connection]
) -> None:
    """Do again what these clients were asked, then answer until the line ends, as when the simulation is over.

    Args:
        line: To the simulation.
        steps: The clients' step functions.
        jobs: The clients' local jobs.
        before: What was asked so far, of which the first `num` requests count.
        num: As above.
        others: Ends of lines that are this process's only since it was forked.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the simulation decides when it is over
    for other in others:
        other.close()
    try:
        do_again(steps, jobs, before, num)
        with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
            while True:
                _answer(line, steps, jobs, receive(line))
    except Exception:
        traceback.print_exc()  # a fault in kernfed: the simulation sees a worker that ended, and this says why
    finally:
        line.close()
        os._exit(0)  # what the parent registered for its own end is not ours


def do_again(steps: Steps, jobs: Mapping[str, Any], before: AskedFile, num: int | None, *, setup: bool = False) -> None:
    """Have clients do again what they were asked, so that they hold what they held; their answers are known.

    Args:
        steps: The clients' step functions.
        jobs: The clients.
        before: What was asked.
        num: How many requests of it count; None: all.
        setup: Whether only those count by which clients are set up, and the first of each step, whose sums are kept.
    """
    known, seen = {request.step: request for request in steps}, set[str]()
    for asked in before.first(num):
        if setup and asked.step in seen and not known[asked.step].setup:
            continue
        seen.add(asked.step)
        for client, request in asked.to(jobs.keys()).requests(known):
            with contextlib.suppress(KernfedError):  # it failed then as well
                steps[known[asked.step]](jobs[client], request)


def _answer(line: Connection, steps: Steps, jobs: Mapping[str, Any], asked: Asked) -> None:
    known = {request.step: request for request in steps}
    for client, request in asked.requests(known):
        try:
            reply = encode(steps[known[asked.step]](jobs[client], request), asked.float_bits)
        except KernfedError as err:
            fault = Fault.of(err)
            line.send_bytes(json.dumps({"reason": fault.reason, "message": fault.message}).encode())
        except Exception:
            line.send_bytes(json.dumps({"crash": traceback.format_exc()}).encode())
        else:
            line.send_bytes(b"{}")
            line.send_bytes(reply.header)
            line.send_bytes(reply.body())


def send(line: Connection, asked: Asked) -> None:
    """Send a request to a worker."""
    for blob in (asked.facts(), *asked.blobs):
        line.send_bytes(blob)


def receive(line: Connection) -> Asked:
    """The next request.

    Raises:
        EOFError: There is none any more.
    """
    blobs = _received(line)
    return Asked.read(next(blobs), blobs)


def _received(line: Connection) -> Iterator[bytes]:
    while True:
        yield line.recv_bytes()
