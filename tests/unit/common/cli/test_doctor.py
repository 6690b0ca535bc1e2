"""`kernfed doctor` finds the operator's identity as the other commands of the operator do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernfed.cli.doctor import doctor


def test_the_identity_is_that_of_the_other_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --identity it is the one in ./pki."""
    asked: list[Path] = []

    def run(identity: Path, *_: Any, **__: Any) -> None:
        asked.append(identity)

    monkeypatch.setattr("kernfed.cli.diagnosis.run", run)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pki" / "operator-ann").mkdir(parents=True)
    doctor()
    doctor(identity=Path("other"))
    assert asked == [Path("pki/operator-ann"), Path("other")]
