"""One bad row, or one client in other units, must not break the others; and it is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import ConfigError, JobError
from kernfed.federation.messages.data import DataDescription
from kernfed.maths.statistics import moments
from kernfed_server.jobs.start.scales import stands_apart
from kernfed_server.jobs.start.units import places, unit_factors
from kernfed_simulation.federation import Rows
from kernfed_testing.in_process import Tamper, bench, make_job, regression_rows

SIZES = {"ant": 40, "bee": 50, "cat": 60, "dog": 45}


def spoilt(rows: dict[str, Rows], client: str, value: float) -> dict[str, Rows]:
    """The rows, one of which has another value in its first column."""
    x = rows[client].x_train.copy()
    x[0, 0] = value
    return {**rows, client: replace(rows[client], x_train=x)}


@pytest.mark.parametrize("value", [100.0, 1e4, 1e9])
def test_one_row_does_not_move_the_scales_and_its_client_is_named(tmp_path: Path, value: float) -> None:
    """Scales stay within a tenth of the clean ones; the former rule let the row set them."""
    rows = regression_rows(SIZES)
    clean = bench(rows, tmp_path).run(make_job("dkrr"))
    bad = bench(spoilt(rows, "cat", value), tmp_path)
    ended = bad.run(make_job("dkrr"))
    assert np.allclose(ended.model.deviation, clean.model.deviation, rtol=0.1)
    if value < 1e3:  # beyond, such moments are refused
        former = bad.run(make_job("dkrr", data='scales = "moments"'))
        assert former.model.deviation[0] > 5 * clean.model.deviation[0]
    assert any(note.startswith("cat: a row stands far out in x0, ") for note in ended.notes)


def test_clean_rows_give_the_scales_of_the_former_rule_to_the_bit(tmp_path: Path) -> None:
    """Where no row stands far out the two rules are one."""
    federation = bench(regression_rows(SIZES, shift=1.0), tmp_path)
    one, two = federation.run(make_job("dkrr")), federation.run(make_job("dkrr", data='scales = "moments"'))
    assert one.weights.tobytes() == two.weights.tobytes()
    assert one.notes == two.notes


def test_a_client_in_another_unit_is_named_with_column_and_factor(tmp_path: Path) -> None:
    """A column times 1,000 at one client: an alarm before round 1, and the others keep their scale."""
    rows = regression_rows(SIZES)
    x = rows["dog"].x_train * np.array([1.0, 1000.0, 1.0])
    y = rows["dog"].y_train * 0.01
    changed = bench({**rows, "dog": replace(rows["dog"], x_train=x, y_train=y)}, tmp_path).run(make_job("dkrr"))
    (alarm,) = [note for note in changed.notes if "another unit" in note]
    assert alarm.startswith("dog: values spread otherwise than the other clients'")
    assert "x1 by 1,04" in alarm
    assert "y by 1/" in alarm
    assert any(note.startswith("dog has no say in the scale of x1: ") for note in changed.notes)
    clean = bench(rows, tmp_path).run(make_job("dkrr"))
    assert changed.model.deviation[1] == pytest.approx(clean.model.deviation[1], rel=0.1)
    assert not any("another unit" in note for note in clean.notes)


def test_factors_of_two_clients_and_of_small_units() -> None:
    """Glucose in mg/dl against mmol/l is a factor of 18 in means and deviations; with two clients both see it."""
    mean, deviation = np.array([[5.5], [99.0]]), np.array([[1.2], [21.0]])
    factors = unit_factors(mean, deviation)
    assert factors[1, 0] == pytest.approx(17.5)
    assert factors[0, 0] == pytest.approx(1 / 17.5)
    apart = unit_factors(np.array([[5.5], [99.0]]), np.array([[1.2], [1.5]]))
    assert (apart == 1).all()
    assert (unit_factors(np.zeros((3, 1)), np.array([[0.0], [0.0], [2.0]])) == 1).all()


def test_no_client_stands_apart_among_two_or_with_most_of_the_rows() -> None:
    """With two clients nobody can tell which is wrong, and the many are not wrong by the few."""
    random = np.random.default_rng(5)

    def part(num_rows: int, offset: float) -> np.ndarray:
        return offset + random.normal(size=(num_rows, 1))

    two = {"a": moments(part(20, 0)), "b": moments(part(20, 1e4))}
    assert not any(found.columns.any() for found in stands_apart(two).values())
    most = {"a": moments(part(20, 0)), "b": moments(part(20, 0)), "c": moments(part(400, 1e4))}
    assert not any(found.columns.any() for found in stands_apart(most).values())
    few = {**most, "c": moments(part(20, 1e4))}
    assert [name for name, found in stands_apart(few).items() if found.columns.any()] == ["c"]


def test_columns_that_differ_between_clients_get_shorter_lengthscales(tmp_path: Path) -> None:
    """`lengthscale = "columns"`: clients with ranges of their own in a column; what is fine there is seen."""
    random = np.random.default_rng(8)
    rows = {}
    for i in range(6):
        x = random.normal(size=(180, 4))
        x[:, 0] = x[:, 0].clip(-2, 2) / 4 + i
        y = np.sin(4 * x[:, 0]) + np.sin(x[:, 1]) + 0.3 * x[:, 2] + 0.2 * random.normal(size=180)
        rows[f"c{i}"] = Rows(x[:120], y[:120], x[120:], y[120:])
    found = {}
    for rule in ("median", "columns"):
        job = make_job("newton", num_columns=4, frequencies=300, rounds=30, features=f'lengthscale = "{rule}"')
        found[rule] = bench(rows, tmp_path).run(job)
    (median,), columns = (found[rule].model.spec.lengthscales for rule in ("median", "columns"))
    x = np.concatenate([r.x_train for r in rows.values()])
    within = np.sqrt(np.mean([r.x_train.var(axis=0) for r in rows.values()], axis=0)) / x.std(axis=0)
    np.testing.assert_allclose(columns, median * within, rtol=1e-9)
    assert columns[0] < 0.2 * median
    mse = {rule: run.metrics[-1].pooled["global"]["mse"] for rule, run in found.items()}
    assert mse["columns"] < 0.6 * mse["median"]
    assert any("x0 0.13" in note or "x0 0.14" in note for note in found["columns"].notes)


def test_lengthscales_of_columns_need_random_features() -> None:
    """The key and the kernel are named."""
    with pytest.raises(ConfigError, match=r'lengthscale = "columns" is for random features, and the linear map'):
        make_job("newton", features='kernel = "linear"\nlengthscale = "columns"')


def test_a_client_whose_means_lie_elsewhere_is_named(tmp_path: Path) -> None:
    """Rows four deviations away, as with a turned sign: they count, and a note tells of client and column."""
    rows = regression_rows(SIZES)
    x = rows["dog"].x_train + np.array([0.0, 4.0, 0.0])
    changed = bench({**rows, "dog": replace(rows["dog"], x_train=x)}, tmp_path).run(make_job("dkrr"))
    (told,) = [note for note in changed.notes if "means lie elsewhere" in note]
    assert told.startswith("dog: means lie elsewhere than the other clients': x1 by 3.7 deviations")
    assert not any("means lie elsewhere" in note for note in bench(rows, tmp_path).run(make_job("dkrr")).notes)


def test_places_are_in_deviations_of_the_wider_rows() -> None:
    """A narrow client within the others' range lies nowhere else; columns without a deviation say nothing."""
    mean = np.array([[0.0, 1.0], [0.1, 2.0], [0.9, 3.0]])
    deviation = np.array([[1.0, 0.0], [1.0, 0.0], [0.01, 0.0]])
    np.testing.assert_allclose(places(mean, deviation), [[-0.1, 0.0], [0.0, 0.0], [0.8, 0.0]])


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (lambda d: {"mean_rest": (-1.0,) * len(d.mean)}, "states what a mean lost to rounding"),
        (lambda d: {"sum_squares": 1e5 * d.sum_squares}, "a sum of squares that is not of it"),
        (lambda d: {"deviation": (0.0,) * len(d.mean)}, "a sum of squares that is not of it"),
        (lambda d: {"deviation": (1e300,) * len(d.mean)}, "holds numbers beyond 1e\\+100"),
    ],
)
def test_moments_of_no_rows_are_refused(
    tmp_path: Path, changes: Callable[[DataDescription], dict[str, Any]], why: str
) -> None:
    """A mean's rest is of its last place, and a deviation says the same as its sum of squares."""

    def lie(reply: Any) -> Any:
        return replace(reply, **changes(reply))

    tamper: dict[tuple[str, str], Tamper] = {("bee", "data.describe"): lie}
    with pytest.raises(JobError, match=f"bee: INVALID_REPLY: .*{why}"):
        bench(regression_rows(SIZES), tmp_path, tamper=tamper).run(make_job("dkrr"))
