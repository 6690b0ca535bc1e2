"""Stderr through the filter, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernfed_server.trust.tls_log import explain
from kernfed_testing.limits import LIMIT_S

LINE = (
    "I1128 01:27:20.259374    3965 ssl_transport_security.cc:2563] Handshake failed with error SSL_ERROR_SSL: "
    "error:1000007d:SSL routines:OPENSSL_internal:"
)


@pytest.mark.parametrize(
    ("tail", "words"),
    [
        ("CERTIFICATE_VERIFY_FAILED: certificate has expired", "expired"),
        ("CERTIFICATE_VERIFY_FAILED: certificate is not yet valid", "not yet valid"),
        ("CERTIFICATE_VERIFY_FAILED: unable to get local issuer certificate", "unknown CA"),
        ("BAD_SIGNATURE: certificate signature failure", "unknown CA"),
        ("CERTIFICATE_VERIFY_FAILED: unsupported certificate purpose", "wrong role"),
        ("PEER_DID_NOT_RETURN_A_CERTIFICATE: Invalid certificate verification context", "no certificate"),
        ("WRONG_VERSION_NUMBER: Invalid certificate verification context", "plain text"),
        ("TLSV1_ALERT_UNKNOWN_CA: ", "does not trust"),
        ("SOMETHING_NEW: ", "handshake failed"),
    ],
)
def test_explanations(tail: str, words: str) -> None:
    """Each of grpc's lines about a handshake has its explanation and a remedy."""
    found = explain(LINE + tail)
    assert found is not None
    what, remedy = found
    assert words in what
    assert remedy


def test_other_lines_are_nobodys_business() -> None:
    """Lines that only mention a handshake are not taken."""
    assert explain("I1128 01:27:20 3965 chttp2.cc:1] transport closed") is None
    assert explain("my program says: Handshake failed with error") is None


PROGRAM = f"""
import os, sys, structlog
structlog.configure(logger_factory=structlog.WriteLoggerFactory(open("log.txt", "w", buffering=1)))
from kernfed_server.trust.tls_log import handshake_failures_logged
big = b"x" * 3_000_000 + b"\\n"
with handshake_failures_logged():
    print("python line", file=sys.stderr)  # not beside native text, for it takes another way
    os.write(2, b"native line\\n")
    os.write(2, b"prompt without end")
    os.write(2, b" - ended\\n")
    for _ in range(100):
        os.write(2, {(LINE + "CERTIFICATE_VERIFY_FAILED: certificate has expired")!r}.encode() + b"\\n")
    view = memoryview(big)
    while view:
        view = view[os.write(2, view):]
    os.write(2, b"I1128 unfinished")
os.write(2, b"afterwards\\n")
print("python afterwards", file=sys.stderr)
{{crash}}
"""


@pytest.mark.slow
@pytest.mark.parametrize("crash", ["", "raise SystemExit(3)"])
def test_everything_else_passes_through(tmp_path: Path, crash: str) -> None:
    """Nothing but handshake lines leaves stderr; those become one warning; stderr is whole again afterwards."""
    program = PROGRAM.replace("{crash}", crash)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, cwd=tmp_path, timeout=LIMIT_S, check=False
    )
    assert done.returncode == (3 if crash else 0), done.stderr[-2000:]
    for text in (b"native line\n", b"prompt without end - ended\n", b"python line\n", b"x" * 3_000_000 + b"\n"):
        assert done.stderr.count(text) == 1
    assert b"I1128 unfinished" in done.stderr
    assert done.stderr.endswith(b"afterwards\npython afterwards\n")
    assert b"Handshake" not in done.stderr
    log = (tmp_path / "log.txt").read_text()
    assert log.count("TLS handshake failed") == 1
    assert "kernfed pki token" in log


@pytest.mark.slow
def test_restored_at_exit(tmp_path: Path) -> None:
    """A program that ends inside the context still prints its last words, the traceback included."""
    program = (
        "import os\nfrom kernfed_server.trust.tls_log import handshake_failures_logged\n"
        "handshake_failures_logged().__enter__()\nos.write(2, b'last native words')\n1/0\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, cwd=tmp_path, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 1
    assert b"last native words" in done.stderr
    assert b"ZeroDivisionError" in done.stderr
