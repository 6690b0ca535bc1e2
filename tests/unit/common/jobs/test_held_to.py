"""What a job file fixes of the requests that a coordinator sends for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernfed import rng
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, make_spec
from kernfed.federation.messages.choosing import TrainingFoldSumsRequest
from kernfed.federation.messages.data import DescribeDataRequest, MapFeaturesRequest, StandardiseRequest
from kernfed.jobs.held_to import contradiction
from kernfed.jobs.job_file import JobFile, data_schema, parse_job
from kernfed.methods.heads.messages import HeadGradientRequest
from kernfed.methods.registry import METHODS
from kernfed.methods.ridge.messages import GradientDescentRequest

TEXT = """name = "demo"
seed = 3
[method]
name = "fedavg"
{method}
[data]
task = "regression"
target = "y"
features = ["a", "b"]
[features]
num_frequencies = 20
{features}
"""


def job(method: str = "", features: str = "") -> JobFile:
    return parse_job(TEXT.format(method=method, features=features))


def update(**numbers: Any) -> GradientDescentRequest:
    sent = {"ridge": 0.5, "learning_rate": 0.1, "num_steps": 5, "batch_size": 20, "seed": 1, **numbers}
    return GradientDescentRequest(weights=np.zeros((2, 1)), **sent)


def test_rows_held_out_as_an_earlier_release_did() -> None:
    """A job that a former release began may go on by its split, unless the file says how; no other job may."""
    text = TEXT.replace("[features]", 'split = "by-content"\n[features]')
    silent, said = job(), parse_job(text.format(method="", features=""))
    drawn = replace(data_schema(silent), by_content=False, copies_together=False)
    asked = DescribeDataRequest(dataset="default", schema=drawn)
    assert contradiction(silent, asked, former=True) == ""
    for refused in (contradiction(silent, asked), contradiction(said, asked, former=True)):
        assert "asks for copies_together False, and the job file says True" in refused
    other = replace(asked, schema=replace(drawn, test_fraction=0.5))
    assert "test_fraction" in contradiction(silent, other, former=True)


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        ({"batch_size": 1}, "fedavg.local_update asks for batch_size 1, and the job file says 20"),
        ({"num_steps": 1}, "asks for num_steps 1, and the job file says 5"),
        ({"ridge": 1e-300}, "asks for ridge 1e-300, and the job file says 0.5"),
        ({"learning_rate": 1.0}, "asks for learning_rate 1.0, and the job file says 0.1"),
    ],
)
def test_numbers_of_a_step(numbers: dict[str, float], told: str) -> None:
    """A batch of one row, one step, no ridge: each is another question than the file asks, and is told so."""
    fixed = job("ridge = 0.5\nlearning_rate = 0.1\nlocal_steps = 5\nbatch_size = 20")
    assert contradiction(fixed, update()) == ""
    assert told in contradiction(fixed, update(**numbers))


def test_rounds_end() -> None:
    """A round beyond those of the file is refused: each answers another question about the rows."""
    fixed = job("rounds = 2\nlocal_steps = 5")
    assert contradiction(fixed, update(), 2) == ""
    assert "asked in round 3, and the job file says 2 rounds" in contradiction(fixed, update(), 3)


def test_rules_are_left_to_the_coordinator() -> None:
    """What the file leaves to a rule, such as the ridge by rows, follows from the clients and may be any number."""
    assert contradiction(job("local_steps = 5"), update(ridge=0.123, learning_rate=7.0, batch_size=40)) == ""


@pytest.mark.parametrize(("keys", "held"), [("", False), ('raise_ridge = "up"', False), ("raise_ridge = false", True)])
def test_a_ridge_with_which_the_rounds_only_begin(keys: str, held: bool) -> None:
    """Newton rounds on a head choose another ridge by rows kept apart, unless the file says that they may not."""
    text = TEXT.replace("fedavg", "newton").format(method=f'loss = "squared"\nridge = 0.5\n{keys}', features="")
    told = contradiction(parse_job(text), HeadGradientRequest(ridge=5.0, leave_out=False, weights=np.zeros((2, 1))))
    assert (told == "head.gradient asks for ridge 5.0, and the job file says 0.5") is held


@pytest.mark.parametrize(
    ("keys", "asked", "good"),
    [
        ("", (0.5, 5.0, 0.05, 5e5, 0.5 * 10.0**-11), True),
        ("", (1e-300, 0.0, 0.7, 5e6, 5e-13), False),
        ('raise_ridge = "up"', (0.5, 0.7, 1e6), True),
        ('raise_ridge = "up"', (0.49, 1e-300, 1.1e6), False),
    ],
)
def test_ridges_that_rounds_choose_are_bounded(keys: str, asked: tuple[float, ...], good: bool) -> None:
    """Those of a search are the file's by factors of 10; raised once, it is no lower than the file's."""
    text = TEXT.replace("fedavg", "newton").format(method=f'loss = "squared"\nridge = 0.5\n{keys}', features="")
    for ridge in asked:
        request = HeadGradientRequest(ridge=ridge, leave_out=False, weights=np.zeros((2, 1)))
        assert (contradiction(parse_job(text), request) == "") is good, ridge


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("target", "a"),
        ("features", ("a",)),
        ("test_fraction", 0.5),
        ("seed", 4),
        ("classes", ("jane", "john")),
        ("backbone", "other"),
        ("clipped", True),
    ],
)
def test_the_data(key: str, value: Any) -> None:
    """Columns, split and classes are those of the file; so is the data set."""
    fixed = job()
    schema = data_schema(fixed)
    assert contradiction(fixed, DescribeDataRequest(dataset="default", schema=schema)) == ""
    changed: Any = {key: value if getattr(schema, key) != value else not value}
    other = DescribeDataRequest(dataset="default", schema=replace(schema, **changed))
    assert f"asks for {key} " in contradiction(fixed, other)
    assert "asks for data set secret" in contradiction(fixed, DescribeDataRequest(dataset="secret", schema=schema))


def test_the_feature_map() -> None:
    """Kernel, form, number and seed are those of the file, and the lengthscale where it is no rule."""
    seed = rng.seed(3, "features")

    def asked(scale: float = 2.0, frequencies: int = 20, seed: int = seed) -> MapFeaturesRequest:
        spec = make_spec(Kernel.GAUSSIAN, FeatureForm.COSINE, 2, scale, frequencies, seed)
        return MapFeaturesRequest(features=spec, num_outputs=1)

    free, fixed = job(), job(features="lengthscale = 2.0")
    assert contradiction(fixed, asked()) == contradiction(free, asked(1e-6)) == ""
    assert "lengthscales (1e-06,), and the job file says (2.0,)" in contradiction(fixed, asked(1e-6))
    assert "num_frequencies 21" in contradiction(free, asked(frequencies=21))
    assert "seed 1," in contradiction(free, asked(seed=1))
    exact = MapFeaturesRequest(features=make_spec(Kernel.POLYNOMIAL2, FeatureForm.COSINE, 2, 1.0, 0, 0), num_outputs=1)
    assert "kernel" in contradiction(free, exact)


def test_sums_over_folds_belong_to_a_choice() -> None:
    """A job that chooses nothing asks for none, and one that does asks by its own map, or by the first of it."""
    seed = rng.seed(3, "features")
    spec = make_spec(Kernel.GAUSSIAN, FeatureForm.COSINE, 2, 0.7, 20, seed)
    asked = TrainingFoldSumsRequest(features=spec, num_folds=5, num_outputs=1)
    assert "asks for a choice by folds True, and the job file says False" in contradiction(job(), asked)
    for choosing in (job('ridge = "auto"'), job("ridge = [0.1, 1.0]"), job(features='lengthscale = "auto"')):
        assert contradiction(choosing, asked) == ""
        assert contradiction(choosing, replace(asked, features=replace(spec, num_frequencies=9, num_features=9))) == ""
        more = replace(spec, num_frequencies=21, num_features=21)
        for other in (more, replace(spec, seed=4), replace(spec, kernel=Kernel.LAPLACE)):
            assert "asks for a map to choose by" in contradiction(choosing, replace(asked, features=other))


@pytest.mark.parametrize("name", sorted(METHODS))
def test_methods_ask_steps_of_their_own(name: str) -> None:
    """What every job of a method asks is among the steps that its clients answer."""
    method = METHODS[name]
    given = {"public": "points.csv"} if name == "distill" else {}
    settings = method.settings.model_validate({"name": name, **given})
    assert set(method.asks(settings)) <= set(method.steps or ())


def scales(**told: Any) -> StandardiseRequest:
    """Scales of two columns, as all clients' rows would have them."""
    sent = {"classes": (), "mean": np.array([3.0, 0.1]), "deviation": np.array([2.0, 1.0]), "median_distance": False}
    return StandardiseRequest(**{**sent, **told})


@pytest.mark.parametrize(
    ("keys", "asked", "told"),
    [
        ("", {}, ""),
        ("", {"bounds": (10.0, 0.0)}, ""),
        ("", {"bounds": (10.0, 0.5)}, "bounds [0.5]"),
        ('scales = "moments"', {"bounds": (10.0, 0.0)}, "bounds [10.0]"),
        ("standardise = false", {"mean": np.zeros(2)}, "deviations [2.0]"),
        ("standardise = false", {"deviation": np.ones(2)}, "means [3.0, 0.1]"),
        ("standardise = false", {"mean": np.zeros(2), "deviation": np.ones(2)}, ""),
        ("", {"median_distance": True}, "median_distance True"),
    ],
)
def test_scales(keys: str, asked: dict[str, Any], told: str) -> None:
    """Scales of columns that the file leaves as they are, bounds of its own making, and distances: all are told."""
    text = TEXT.replace("[features]", f"{keys}\n[features]")
    features = 'kernel = "linear"' if "standardise" in keys else "num_frequencies = 20\nlengthscale = 2.0"
    signed = parse_job(text.replace("num_frequencies = 20", features).format(method="", features=""))
    found = contradiction(signed, scales(**asked))
    assert found.startswith(f"data.standardise asks for {told}") if told else found == ""
