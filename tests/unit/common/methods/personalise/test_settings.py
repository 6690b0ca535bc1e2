"""What the settings of personalisation say of the job."""

from __future__ import annotations

import pytest

from kernfed.methods.personalise.method import METHODS
from kernfed.methods.personalise.settings import PersonaliseSettings


@pytest.mark.parametrize(("changes", "rounds"), [({}, 1), ({"trainer": "newton", "rounds": 7}, 7)])
def test_the_exact_trainer_announces_its_one_round(changes: dict[str, object], rounds: int) -> None:
    """It has one round, so a job is not shown as at round 1 of 50 when it has ended."""
    (method,) = METHODS.values()
    assert method.rounds(PersonaliseSettings(name="personalise", **changes)) == rounds
