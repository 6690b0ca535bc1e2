"""Names and SPIFFE URIs."""

from __future__ import annotations

import pytest

from kernfed.errors import ConfigError
from kernfed.pki.names import Principal, Role, check_name, parse_principal


@pytest.mark.parametrize("name", ["a", "0", "cleveland", "va-long-beach", "x" * 63])
def test_good_names(name: str) -> None:
    """Lower-case letters, digits and dashes, up to 63."""
    assert check_name(name, "client") == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-a",
        "A",
        "a_b",
        "a.b",
        "a/b",
        "../x",
        "x" * 64,
        "ä",
        "a\u0308",
        "\u0430",
        "\uff41",
        "\u0131",
        "a\u200b",
        "a\n",
        "a b",
        "a\x00",
    ],
)
def test_bad_names(name: str) -> None:
    """Nothing that could be a path, a shell word or another name's look-alike."""
    with pytest.raises(ConfigError):
        check_name(name, "client")


def test_principals() -> None:
    """Texts and URIs of the three roles."""
    client = parse_principal("hearts", "client/cleveland")
    assert client == Principal("hearts", Role.CLIENT, "cleveland")
    assert client.uri == "spiffe://hearts/client/cleveland"
    assert parse_principal("hearts", "coordinator").uri == "spiffe://hearts/coordinator"
    for text in ("cleveland", "coordinator/x", "admin/x", "client/", "client/a/b", "/a"):
        with pytest.raises(ConfigError):
            parse_principal("hearts", text)
