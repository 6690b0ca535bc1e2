"""`kernfed-client doctor` takes from the client file what the daemon takes from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernfed_client.commands.doctor import doctor


def test_identity_and_address_come_from_the_client_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file's identity and coordinator are tested, unless others are given."""
    asked: list[tuple[Path, str | None]] = []

    def run(identity: Path, address: str | None, **_: Any) -> None:
        asked.append((identity, address))

    monkeypatch.setattr("kernfed.cli.diagnosis.run", run)
    file = tmp_path / "client.toml"
    file.write_text('coordinator = "fed.example.org:9"\nidentity = "mine"\n[datasets.heart.train]\npath = "rows.csv"\n')
    doctor(config=file)
    doctor(config=file, identity=Path("other"), address="localhost:1")
    doctor()
    assert asked == [
        (tmp_path / "mine", "fed.example.org:9"),
        (Path("other"), "localhost:1"),
        (Path("identity"), None),
    ]
