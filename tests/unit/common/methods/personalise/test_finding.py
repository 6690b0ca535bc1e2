"""The finding: what is written as JSON is read back, and so is what earlier releases wrote."""

from __future__ import annotations

from kernfed.methods.personalise.finding import Learner, PersonaliseFinding, Teacher
from kernfed_testing.findings import written


def test_it_is_written_and_read_back() -> None:
    """Keys and their order are those of earlier releases; the value read back is the same."""
    assert written(
        PersonaliseFinding(
            "crossfit",
            "exact",
            ("a word",),
            (Learner("a", 20, True, "embedding, h 0.5", (Teacher("a", 0.9),), 24.5, {"personal": {"mse": 0.25}}),),
        )
    ) == list(
        {
            "weights": "crossfit",
            "trainer": "exact",
            "words": ["a word"],
            "clients": [
                {
                    "client": "a",
                    "num_rows": 20,
                    "told": True,
                    "choice": "embedding, h 0.5",
                    "learns_from": [{"client": "a", "weight": 0.9}],
                    "effective_rows": 24.5,
                    "scores": {"personal": {"mse": 0.25}},
                    "learns": True,
                }
            ],
        }.items()
    )


def test_findings_of_other_releases_are_read() -> None:
    """Missing keys are defaults, and unknown ones are passed over."""
    assert PersonaliseFinding.from_json({"clients": [{"client": "a"}]}).clients == (Learner("a"),)
