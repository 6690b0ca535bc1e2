"""`kernfed.wire.proxy`."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernfed.errors import ConfigError
from kernfed.jobs.proxy_section import ProxySection
from kernfed.wire import proxy
from kernfed.wire.channel import CHANNEL_OPTIONS
from kernfed.wire.proxy import Proxy, TunnelError, channel_options, dial, parse_proxy, proxy_of

TARGET = "fed.example.org:8470"
NAMES = ("https_proxy", "HTTPS_PROXY", "http_proxy", "no_proxy", "NO_PROXY")


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    yield
    proxy.use(None)


@contextlib.contextmanager
def answering(*pieces: bytes, wait_s: float = 0.0) -> Iterator[tuple[int, list[bytes]]]:
    """A server that answers one connection with these pieces; its port, and what was asked."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError), server.accept()[0] as made:
                asked.append(made.recv(4096))
                for piece in pieces:
                    made.sendall(piece)
                time.sleep(wait_s)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1], asked
        server.close()
        thread.join(10)


@pytest.mark.parametrize("target", ["localhost:8470", "127.0.0.1:8470", "[::1]:8470"])
def test_this_machine_is_dialled_straight(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy stands between a machine and itself."""
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    assert proxy_of(target) is None
    assert channel_options(target) == CHANNEL_OPTIONS


def test_whose_proxy_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file's comes before the environment's, and no_proxy before both; gRPC looks at no environment of its own."""
    assert proxy_of(TARGET) is None
    assert ("grpc.enable_http_proxy", 0) in channel_options(TARGET)
    monkeypatch.setenv("http_proxy", "http://other:80")  # of plain HTTP, which this is not
    assert proxy_of(TARGET) is None
    monkeypatch.setenv("HTTPS_PROXY", "http://us%40er:p%3Aw@proxy:8080")
    assert proxy_of(TARGET) == Proxy("proxy", 8080, "us@er", "p:w")
    options = dict(channel_options(TARGET))
    assert options["grpc.http_proxy"] == "http://us%40er:p%3Aw@proxy:8080"
    assert "grpc.enable_http_proxy" not in options
    proxy.use(Proxy("mine", 3128))
    assert proxy_of(TARGET) == Proxy("mine", 3128)
    monkeypatch.setenv("no_proxy", "example.org")
    assert proxy_of(TARGET) is None


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("socks5://proxy:1080", "a proxy of kind socks5"),
        ("https://us:secret@proxy:443", "a proxy of kind https"),
        ("http://proxy:99999", "no proxy's address"),
        ("http://", "no proxy's address"),
        ("http://a b:3128", "kind http"),
    ],
)
def test_what_is_no_proxy_is_refused(text: str, what: str) -> None:
    """The error names it without its password, and says what to write."""
    with pytest.raises(ConfigError, match=what) as told:
        parse_proxy(text, "https_proxy")
    assert "secret" not in str(told.value)
    assert "write http://HOST:PORT" in str(told.value)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            b"HTTP/1.1 407 Auth\r\nProxy-Authenticate: Negotiate\r\nProxy-Authenticate: Basic realm=x\r\n\r\n",
            "asks for",
        ),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n<html>", "does not reach"),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "refuses CONNECT"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://portal/\r\n\r\n", "redirection"),
        (b"<html><body>welcome</body></html>\r\n\r\n", "does not answer as an HTTP proxy"),
        (b"\x15\x03\x01\x00\x02\x02\x16", "does not answer as an HTTP proxy"),
        (b"", "closed the connection"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * proxy.MAX_HEAD_BYTES, "does not answer as an HTTP proxy"),
    ],
)
def test_answers_of_proxies(answer: bytes, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer that opens no tunnel is one sentence with a remedy."""
    with answering(answer) as (port, _):
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        with pytest.raises(TunnelError, match=says) as told:
            dial("fed.example.org", 8470, 30)
    assert told.value.remedy


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_a_tunnel_is_the_coordinators_from_its_first_byte(version: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name and password are sent, and what follows the head of the answer is not swallowed."""
    with answering(b"HTTP/" + version + b" 200 Connection established\r\n\r\nhello") as (port, asked):
        proxy.use(Proxy("127.0.0.1", port, "us@er", "p:w"))
        with dial("fed.example.org", 8470, 30) as made:
            assert made.recv(16) == b"hello"
    assert asked[0].startswith(b"CONNECT fed.example.org:8470 HTTP/1.1\r\n")
    assert b"\r\nProxy-Authorization: Basic dXNAZXI6cDp3\r\n" in asked[0]


def test_a_silent_proxy_is_not_waited_for() -> None:
    """Its answer has a deadline, also where it comes byte by byte."""
    with answering(b"HTTP/1.1", wait_s=1.0) as (port, _):
        proxy.use(Proxy("127.0.0.1", port))
        with pytest.raises(TunnelError, match="is silent on CONNECT"):
            dial("fed.example.org", 8470, 0.3)


def test_a_client_file_names_no_password(tmp_path: Path) -> None:
    """The password lies in a file of its own; user and file go together."""
    with pytest.raises(ValueError, match="is not the place of a password"):
        ProxySection(proxy="http://me:secret@proxy:3128")
    with pytest.raises(ValueError, match="go together"):
        ProxySection(proxy="http://proxy:3128", user="me")
    section = ProxySection(proxy="proxy:3128", user="me", password_file=Path("password")).placed(tmp_path)
    with pytest.raises(ConfigError, match=r"password_file: .*cannot be read"):
        section.to_proxy()
    (tmp_path / "password").write_text("one\ntwo\n")
    with pytest.raises(ConfigError, match="holds no password"):
        section.to_proxy()
    (tmp_path / "password").write_text("one\n")
    assert section.to_proxy() == Proxy("proxy", 3128, "me", "one")
    assert ProxySection().to_proxy() is None
