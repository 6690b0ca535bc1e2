"""Settings of reweighting that contradict each other are refused, with the key to correct."""

from __future__ import annotations

import pytest

from kernfed.errors import ConfigError
from kernfed.methods.reweight.settings import ReweightSettings
from kernfed_testing.in_process import make_job
from kernfed_testing.methods.reweight import (
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


def test_the_plan_of_a_job_lists_what_acts() -> None:
    """Defaults are in it; other variants' keys and unused tables are not."""
    plan = make_job("reweight", frequencies=None, trainer="adam").plan()
    assert plan["method"]["step_size"] == 1e-3
    assert plan["method"]["ratios"]["num_frequencies"] == 200
    assert not {"learning_rate", "tolerance", "ridge"} & plan["method"].keys()
    assert "features" not in plan
    assert plan["data"]["test_fraction"] == 0.25


def test_a_scope_of_a_table_below_is_a_condition_too() -> None:
    """A key may depend on a key of a table within its own."""
    settings = ReweightSettings.model_validate({"name": "reweight", "ratios": {"source": "labels"}})
    assert {"num_points", "on_refusal"} <= settings.idle_keys().keys()
    assert not {"num_points", "on_refusal"} & ReweightSettings(name="reweight").idle_keys().keys()
