"""Failed handshakes, told in words: grpc prints them to stderr in OpenSSL's, and tells the program nothing.

Stderr (file descriptor 2) is led through a pipe while the coordinator runs. A thread turns lines about failed
handshakes into warnings with a remedy, at most a few a minute, and writes everything else on to the real stderr
unchanged. Python's own `sys.stderr` goes to the real one directly, so that only text from native code takes the pipe.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import queue
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator

import structlog

log = structlog.get_logger(__name__)

_PIPE_BYTES = 1 << 20
_MAX_LINE = 1 << 16
_INTERVAL_S = 5.0
_FAILURE = re.compile(rb"^[IWE]\d{4} .*(?:Handshake failed with error|TSI_PROTOCOL_FAILURE)")

_MAY_BE_FAILURE = re.compile(rb"[IWE](?:\d{0,3}|\d{4}(?: .*)?)", re.DOTALL)
"""An unfinished line of grpc's. Any other unfinished text is passed on at once."""

_ASK_DOCTOR = "have the peer run `kernfed-client doctor` or `kernfed doctor`"

_EXPLANATIONS: tuple[tuple[str, str, str], ...] = (
    (
        "certificate has expired",
        "the peer's certificate has expired",
        "make a token for it with `kernfed pki token NAME` and have it enrol again; if it should still be valid, check "
        "this machine's clock. `kernfed pki list` shows whose certificates expired",
    ),
    (
        "certificate is not yet valid",
        "the peer's certificate is not yet valid",
        "check this machine's clock and the one where it was made",
    ),
    (
        "unable to get local issuer|self.signed certificate|certificate signature failure|BAD_SIGNATURE",
        "the peer's certificate is from an unknown CA",
        "the peer belongs to another federation, or enrolled before `kernfed pki init` made this CA: have it enrol "
        "again",
    ),
    (
        "unsupported certificate purpose",
        "the peer's certificate has the wrong role",
        "a client or operator must use its own identity folder, not the coordinator's",
    ),
    (
        "PEER_DID_NOT_RETURN_A_CERTIFICATE",
        "the peer showed no certificate",
        "it must dial with an enrolled identity; for enrolment it must dial the enrolment port",
    ),
    (
        "WRONG_VERSION_NUMBER|HTTP_REQUEST|HTTPS_PROXY_REQUEST|UNSUPPORTED_PROTOCOL",
        "the peer speaks plain text or an old TLS version",
        "it is no kernfed client, or a health check or proxy dials this port without TLS",
    ),
    (
        "UNKNOWN_CA|BAD_PACKET_LENGTH|ALERT_BAD_CERTIFICATE|ALERT_CERTIFICATE_UNKNOWN",
        "the peer does not trust our certificate",
        "it belongs to another federation or enrolled with an earlier CA: have it run `kernfed-client doctor`",
    ),
    (
        "ALERT_CERTIFICATE_EXPIRED",
        "the peer finds our certificate expired",
        "run `kernfed pki renew coordinator`, or have the peer set its clock",
    ),
)


def explain(line: str) -> tuple[str, str] | None:
    """Meaning of a line of grpc's about a failed handshake, and the remedy; None for any other line."""
    if not _FAILURE.match(line.encode(errors="replace")):
        return None
    for pattern, what, remedy in _EXPLANATIONS:
        if re.search(pattern, line):
            return what, remedy
    return "a peer's handshake failed", _ASK_DOCTOR


@contextlib.contextmanager
def handshake_failures_logged() -> Iterator[None]:
    """Lead stderr through the filter for as long as the context lasts; the real one is back afterwards, and at exit."""
    read_end, write_end = os.pipe()
    real = os.dup(2)
    with contextlib.suppress(OSError):  # the limit for pipes of this user may be lower
        fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    python_stderr = sys.stderr
    python_stderr.flush()
    direct = os.fdopen(os.dup(real), "w", buffering=1, encoding="utf-8", errors="backslashreplace")
    sys.stderr = direct
    os.dup2(write_end, 2)
    os.close(write_end)
    # Two threads: the one that empties the pipe must never wait for a log line, which may itself go to stderr.
    failures: queue.Queue[str | None] = queue.Queue(maxsize=64)
    reader = threading.Thread(target=_pump, args=(read_end, real, failures), name="tls-log-pump", daemon=True)
    reporter = threading.Thread(target=_report_all, args=(failures,), name="tls-log", daemon=True)
    reader.start()
    reporter.start()
    done = False

    def restore() -> None:
        nonlocal done
        if done:
            return
        done = True
        os.dup2(real, 2)  # closes the pipe's last write end, so the reader drains it and ends
        reader.join(timeout=2)
        reporter.join(timeout=2)
        if sys.stderr is direct:
            sys.stderr = python_stderr
        direct.flush()

    atexit.register(restore)
    try:
        yield
    finally:
        restore()
        atexit.unregister(restore)


def _pump(read_end: int, real: int, failures: queue.Queue[str | None]) -> None:
    """Read lines until the pipe closes; queue those about handshakes, pass on the rest."""
    pending = b""
    while True:
        try:
            chunk = os.read(read_end, _MAX_LINE)
        except OSError:
            chunk = b""
        pending += chunk
        *lines, pending = pending.split(b"\n")
        for line in lines:
            if _FAILURE.match(line):
                # A full queue means hundreds of failures a second; the count of those left out may then be low.
                with contextlib.suppress(queue.Full):
                    failures.put_nowait(line.decode(errors="replace"))
            else:
                _write_all(real, line + b"\n")
        if pending and (not chunk or len(pending) > _MAX_LINE or not _MAY_BE_FAILURE.fullmatch(pending)):
            _write_all(real, pending)
            pending = b""
        if not chunk:
            os.close(read_end)
            failures.put(None)
            return


def _report_all(failures: queue.Queue[str | None]) -> None:
    report = failure_reporter()
    while (line := failures.get()) is not None:
        try:
            report(line)
        except Exception:
            log.exception("a handshake failure could not be reported")


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(handle, view) :]
        except BlockingIOError:
            time.sleep(0.01)  # somebody made the terminal non-blocking
        except OSError:
            return  # stderr is closed; there is nobody to tell


def failure_reporter() -> Callable[[str], None]:
    """Make the function that logs a failure: of each kind one per interval, with the number left out since."""
    last: dict[str, float] = {}
    left_out: dict[str, int] = {}

    def report(line: str) -> None:
        what, remedy = explain(line) or ("a peer's handshake failed", _ASK_DOCTOR)
        now = time.monotonic()
        if now - last.get(what, -_INTERVAL_S) < _INTERVAL_S:
            left_out[what] = left_out.get(what, 0) + 1
            return
        last[what] = now
        log.warning(
            "TLS handshake failed",
            why=what,
            remedy=remedy,
            more_since_last=left_out.pop(what, 0),
            grpc=line.partition("error ")[2][:200],
        )

    return report
