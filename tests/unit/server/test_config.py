"""The coordinator file: what it says of addresses is judged as it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernfed.errors import ConfigError
from kernfed.jobs.client_file import ClientFile
from kernfed.jobs.toml_file import parse_toml
from kernfed_server.config import CoordinatorFile, load_coordinator_file


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[web]\nport = 1\naddress = "page.example.org"', "web.address"),
        ('[web]\nlisten = "localhost"', "web.listen"),
        ('[web]\nlisten = "localhost:1"\nport = 1', "web"),
        ('metrics_listen = "9470"', "metrics_listen"),
        ('metrics_listen = "a:b"', "metrics_listen"),
        ('metrics_listen = "localhost:9470"\nmetrics_port = 9470', "(file)"),
        ('listen = "8470"', "listen"),
        ('enrolment_listen = ":0"', "enrolment_listen"),
    ],
)
def test_wrong_addresses_name_file_and_key(tmp_path: Path, text: str, key: str) -> None:
    """What is no address, and two keys that say one thing, are refused as the file is read."""
    path = tmp_path / "coordinator.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_coordinator_file(path)
    assert str(refused.value).startswith(f"{path}: {key}: ")
    assert "host:port" in str(refused.value) or "leave" in str(refused.value)


def test_a_client_file_names_its_keys_too() -> None:
    """A port beyond all ports is no address."""
    for key in ("coordinator", "metrics_listen"):
        with pytest.raises(ConfigError, match=f"^client.toml: {key}: 'host:70000' is not an address"):
            parse_toml(ClientFile, f'{key} = "host:70000"', "client.toml")


@pytest.mark.parametrize(
    ("listen", "port", "where"),
    [
        (None, None, None),
        (None, 9470, "127.0.0.1:9470"),
        ("0.0.0.0:9470", None, "0.0.0.0:9470"),
        ("[::]:1", None, "[::]:1"),
    ],
)
def test_where_metrics_are_served(listen: str | None, port: int | None, where: str | None) -> None:
    """Loopback by the short key, any address by the long one, nowhere by none; at either daemon."""
    for file in (CoordinatorFile, ClientFile):
        assert file(metrics_listen=listen, metrics_port=port).metrics_at == where


def test_the_system_may_choose_the_ports_of_a_listener() -> None:
    """Port 0 is one for whoever listens."""
    assert CoordinatorFile(listen="[::1]:0", enrolment_listen="127.0.0.1:0").listen == "[::1]:0"
