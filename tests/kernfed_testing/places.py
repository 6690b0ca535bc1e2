"""Where things lie in the repository, for tests in whatever folder."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
TESTS: Final = ROOT / "tests"
GOLDEN: Final = TESTS / "golden"
HEART: Final = ROOT / "examples" / "heart"
EXPERIMENTS: Final = ROOT / "experiments"
