"""`kernfed_client.daemon.metrics`."""

import socket
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kernfed.errors import CertificateError, ConfigError
from kernfed_client.daemon.metrics import ClientMetrics
from kernfed_client.streams.faults import RowFault
from kernfed_client.streams.notices import NOTICES
from kernfed_testing.limits import LIMIT_S

END = datetime(2030, 1, 2, tzinfo=UTC)


def scrape(metrics: ClientMetrics) -> str:
    """What Prometheus would read."""
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics", timeout=LIMIT_S) as page:
        text: str = page.read().decode()
    return text


def test_what_left_and_what_was_refused_is_counted_by_step(tmp_path: Path) -> None:
    """A scrape tells replies, bytes and refusals per step, rows of streams, the session, and what cannot go on."""
    folder = tmp_path / "stream"
    metrics = ClientMetrics("127.0.0.1:0", tmp_path, [("ward", folder)])
    metrics.replied("newton.gradient", 1000)
    metrics.replied("newton.gradient", 24)
    metrics.refused("newton.start", "POLICY_REFUSED")
    NOTICES.read(folder, 7)
    NOTICES.left_out(folder, RowFault.GAP, "a.csv, line 3")
    metrics.serve(lambda: True, lambda: "the stream of ward waits for disk", lambda: END)
    try:
        text = scrape(metrics)
    finally:
        metrics.stop()
    assert 'kernfed_client_replies_total{step="newton.gradient"} 2.0' in text
    assert 'kernfed_client_reply_bytes_total{step="newton.gradient"} 1024.0' in text
    assert 'kernfed_client_refusals_total{reason="POLICY_REFUSED",step="newton.start"} 1.0' in text
    assert 'kernfed_client_stream_rows_total{dataset="ward"} 7.0' in text
    assert 'kernfed_client_stream_rows_left_out_total{dataset="ward",kind="gap"} 1.0' in text
    assert "kernfed_client_connected 1.0" in text
    assert "kernfed_client_waits 1.0" in text
    end = next(
        line for line in text.splitlines() if line.startswith("kernfed_client_certificate_end_timestamp_seconds")
    )
    assert float(end.split()[1]) == END.timestamp()


def test_what_cannot_be_read_is_no_number(tmp_path: Path) -> None:
    """An identity in renewal and a state folder that is gone leave a scrape whole."""

    def torn() -> datetime:
        raise CertificateError("the parts do not fit")

    metrics = ClientMetrics("127.0.0.1:0", tmp_path / "gone")
    metrics.serve(lambda: False, lambda: "", torn)
    try:
        text = scrape(metrics)
    finally:
        metrics.stop()
    assert "kernfed_client_certificate_end_timestamp_seconds NaN" in text
    assert "kernfed_client_state_free_bytes NaN" in text


def test_a_taken_port_is_told(tmp_path: Path) -> None:
    """The error names the keys and the port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        metrics = ClientMetrics(f"127.0.0.1:{port}", tmp_path)
        with pytest.raises(ConfigError, match=f"metrics_port.*{port}"):
            metrics.serve(lambda: False, lambda: "", lambda: END)
