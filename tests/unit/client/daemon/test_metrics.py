"""`kernfed_client.daemon.metrics`."""

import socket
import urllib.request

import pytest

from kernfed.errors import ConfigError
from kernfed_client.daemon.metrics import ClientMetrics
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.ports import free_port


def test_what_left_is_counted_by_step() -> None:
    """A scrape tells replies and bytes per step, and whether there is a session."""
    metrics, port = ClientMetrics(), free_port()
    metrics.replied("newton.gradient", 1000)
    metrics.replied("newton.gradient", 24)
    metrics.serve(port, lambda: True)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT_S) as page:
            text = page.read().decode()
    finally:
        metrics.stop()
    assert 'kernfed_client_replies_total{step="newton.gradient"} 2.0' in text
    assert 'kernfed_client_reply_bytes_total{step="newton.gradient"} 1024.0' in text
    assert "kernfed_client_connected 1.0" in text


def test_a_taken_port_is_told() -> None:
    """The error names the key and the port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"metrics_port.*{port}"):
            ClientMetrics().serve(port, lambda: False)
