"""Settings of reweighting that contradict each other are refused, with the key to correct."""

from __future__ import annotations

import pytest

from kernfed.errors import ConfigError
from kernfed_testing.reweight import (
    SHARING,
    reweight_job,
)


def test_settings_that_contradict_each_other_are_refused() -> None:
    """With the key and what to do."""
    for settings, text in (
        ({"scope": "target"}, "needs target, the name of a client"),
        ({"target": "ant"}, 'target: belongs to scope = "target"'),
        ({"scope": "target", "target": "ant", "on_refusal": "leave-out"}, "no test points of the target"),
        ({"client_fraction": 0.5}, 'client_fraction: belongs to trainer = "adam" or "fedavg"'),
        ({"trainer": "adam", "average_last": 9}, "more than the 8 rounds"),
        ({"trainer": "adam", "network": 'kind = "cnn"'}, "image"),
        ({"trainer": "adam", "network": 'kind = "mlp"\nwidths = [6]\nbatch_norm = "own"'}, "is FedBN"),
        (
            {"trainer": "fedavg", "network": 'kind = "linear"\nbatch_norm = "average"'},
            'batch_norm: belongs to kind = "mlp" or "cnn"',
        ),
    ):
        with pytest.raises(ConfigError, match=text):
            reweight_job(**settings)
    assert SHARING["allow"]
