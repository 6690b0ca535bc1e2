"""What clients agree on before round 1, and what happens to those who cannot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import ConfigError, DataError, JobError
from kernfed.federation.messages.data import DataDescription, FeaturesMapped
from kernfed.maths.statistics import median_distance
from kernfed_server.jobs.journal import Checkpoint
from kernfed_simulation.federation import Rows
from kernfed_testing.in_process import (
    INDEPENDENT,
    bench,
    label_skewed_rows,
    make_job,
    regression_rows,
    with_nan,
    with_rows,
    with_wrong_shape,
)

THREE = {"ant": 40, "bee": 50, "cat": 60}


def test_scales_are_those_of_the_pooled_training_rows(tmp_path: Path) -> None:
    """Mean and deviation in the model equal those of all training rows together."""
    rows = regression_rows(THREE, shift=2.0)
    outcome = bench(rows, tmp_path).run(make_job("dkrr"))
    pooled = np.concatenate([r.x_train for r in rows.values()])
    assert outcome.model is not None
    assert np.allclose(outcome.model.mean, pooled.mean(axis=0), rtol=1e-12)
    assert np.allclose(outcome.model.deviation, pooled.std(axis=0), rtol=1e-12)


def test_scales_keep_their_digits_in_a_float32_job(tmp_path: Path) -> None:
    """Two clients at 1.7e9 + 63 and + 65: their moments travel in float64, and so do the scales that come back."""
    random = np.random.default_rng(6)
    rows = {}
    for name, offset in (("ant", 63), ("bee", 65)):
        x, y = 1.7e9 + offset + random.normal(size=(200, 1)), 1e9 + random.normal(size=200)
        rows[name] = Rows(x[:150], y[:150], x[150:], y[150:])
    model = bench(rows, tmp_path).run(make_job("dkrr", num_columns=1, top='precision = "float32"')).model
    pooled = np.concatenate([r.x_train for r in rows.values()]) - 1.7e9
    targets = np.concatenate([r.y_train for r in rows.values()]) - 1e9
    assert model is not None
    assert model.deviation[0] == pytest.approx(pooled.std(), rel=1e-9)
    assert model.mean[0] - 1.7e9 == pytest.approx(pooled.mean(), abs=1e-6)
    assert model.target_mean[0] - 1e9 == pytest.approx(targets.mean(), abs=1e-6)


def test_evenly_spaced_rows_stay_a_choice_and_ties_are_told(tmp_path: Path) -> None:
    """`median-spaced` takes every k-th row as before; repeated rows at a client are named."""
    rows = regression_rows({"ant": 1300, "bee": 50})
    bee = replace(rows["bee"], x_train=np.vstack([np.ones((45, 3)), rows["bee"].x_train[:5]]))
    federation = bench({"ant": rows["ant"], "bee": bee}, tmp_path)
    drawn = federation.run(make_job("dkrr"))
    spaced = federation.run(make_job("dkrr", features='lengthscale = "median-spaced"'))
    (scale,) = spaced.model.spec.lengthscales
    x = (rows["ant"].x_train - spaced.model.mean) / spaced.model.deviation
    assert scale == median_distance(x, None).value
    assert drawn.model.spec.lengthscales != spaced.model.spec.lengthscales
    assert drawn.model.spec.lengthscales == pytest.approx((scale,), rel=0.1)
    assert any("distances between rows are 0 at bee" in note for note in drawn.notes)


def test_the_agreed_lengthscale_is_told_and_stored(tmp_path: Path) -> None:
    """The median heuristic's result is a note, and the model's specification has it."""
    outcome = bench(regression_rows(THREE), tmp_path).run(make_job("dkrr"))
    assert outcome.model is not None
    (scale,) = outcome.model.spec.lengthscales
    assert any(f"lengthscale {scale:.6g}" in note for note in outcome.notes)
    assert 1.0 < scale < 4.0  # standardised, three columns: about sqrt(2 * 3)


def test_identical_rows_get_a_floored_lengthscale_and_a_warning(tmp_path: Path) -> None:
    """Where no two rows differ there is no median distance: the operator is told to choose."""
    rows = {
        name: replace(r, x_train=np.ones_like(r.x_train), x_test=np.ones_like(r.x_test))
        for name, r in regression_rows(THREE).items()
    }
    notes = bench(rows, tmp_path).run(make_job("dkrr")).notes
    assert any("give features.lengthscale yourself" in note for note in notes)
    assert any("tell nothing: x0, x1, x2" in note for note in notes)


def test_the_job_seed_draws_the_features_and_a_features_seed_overrides_it(tmp_path: Path) -> None:
    """Two jobs with one features seed share their map whatever the job's seed."""
    federation = bench(regression_rows(THREE), tmp_path)

    def spec(features: str) -> Any:
        model = federation.run(make_job("dkrr", features=features)).model
        assert model is not None
        return model.spec

    assert spec("seed = 7").seed == 7
    assert spec("").seed == spec("").seed != 5


def test_models_without_standardisation_and_intercept_have_zeros(tmp_path: Path) -> None:
    """`standardise = false` and `intercept = false` leave columns, features and targets as they are."""
    model = bench(regression_rows(THREE), tmp_path).run(make_job("dkrr", **INDEPENDENT)).model
    assert model is not None
    assert not model.mean.any()
    assert (model.deviation == 1).all()
    assert not model.feature_mean.any()
    assert not model.target_mean.any()


@pytest.mark.parametrize("form", ["cosine", "half-cosine", "sine-cosine"])
def test_a_shift_of_all_inputs_changes_no_prediction(form: str, tmp_path: Path) -> None:
    """Without standardisation the columns' means are subtracted before random phases are added; `zero` is as before."""
    rows = regression_rows(THREE)

    def predicted(shift: float, origin: str = "") -> Any:
        moved = {c: replace(r, x_train=r.x_train + shift, x_test=r.x_test + shift) for c, r in rows.items()}
        features = f'form = "{form}"\nlengthscale = 1.5\n{origin}'
        done = bench(moved, tmp_path / f"{shift}{len(origin)}").run(
            make_job("dkrr", data="standardise = false", features=features)
        )
        assert done.model is not None
        assert (done.model.deviation == 1).all()
        local = [m["local"]["mse"] for m in done.metrics[-1].clients.values()]
        return np.array([*done.model.predict(moved["ant"].x_test).ravel(), *local])

    assert np.abs(predicted(1e3) - predicted(0.0)).max() < 1e-9
    if form != "sine-cosine":
        zero = 'origin = "zero"'
        assert np.abs(predicted(1e3, zero) - predicted(0.0, zero)).max() > 1e-2


def test_a_key_of_the_origin_that_does_nothing_is_refused() -> None:
    """Standardised columns have their means subtracted, and exact maps have no phases."""
    with pytest.raises(ConfigError, match=r"standardises them; remove features\.origin"):
        make_job("dkrr", features='origin = "zero"')
    with pytest.raises(ConfigError, match="origin"):
        make_job("dkrr", data="standardise = false", features='kernel = "linear"\norigin = "zero"')
    assert "origin" not in make_job("dkrr").plan()["features"]


def test_a_model_of_a_float32_job_subtracts_what_clients_subtract(tmp_path: Path) -> None:
    """Scales and means travel in float64, so that model and clients agree to the last bit."""
    federation = bench(regression_rows(THREE, shift=1.0), tmp_path)
    model = federation.run(make_job("dkrr", top='precision = "float32"')).model
    assert model is not None
    for job in federation.jobs.values():
        assert np.array_equal(job.mean, model.mean)
        assert np.array_equal(job.deviation, model.deviation)
        assert np.array_equal(job.feature_mean, model.feature_mean)
        assert np.array_equal(job.target_mean, model.target_mean)


BAD_DESCRIPTIONS = [
    pytest.param(with_nan, "INVALID_TENSOR", id="nan"),
    pytest.param(with_wrong_shape, "INVALID_TENSOR", id="shape"),
    pytest.param(with_rows(0), "INVALID_REPLY", id="no-rows"),
    pytest.param(with_rows(-1), "INVALID_MESSAGE", id="negative-rows"),
    pytest.param(with_rows(10**30), "INVALID_MESSAGE", id="absurd-rows"),
    pytest.param(lambda d: replace(d, sum_squares=-d.sum_squares), "INVALID_REPLY", id="negative-squares"),
    pytest.param(lambda d: replace(d, deviation=d.deviation[:-1]), "INVALID_REPLY", id="few-deviations"),
    pytest.param(lambda d: replace(d, deviation=(-1.0,) * 3), "INVALID_MESSAGE", id="negative-deviation"),
    pytest.param(lambda d: replace(d, mean_rest=(0.0,) * 9), "INVALID_REPLY", id="many-rests"),
    pytest.param(lambda d: replace(d, backbone="ab"), "INVALID_REPLY", id="backbone-of-its-own"),
    pytest.param(lambda d: replace(d, sparse_columns=("x0", "z")), "INVALID_REPLY", id="sparse-column-of-its-own"),
]


def test_rows_that_stand_out_in_a_column_are_told(tmp_path: Path) -> None:
    """The operator reads at which client, in which columns, and that there are products; not how many rows."""
    tamper: dict[tuple[str, str], Any] = {
        ("ant", "data.describe"): lambda d: replace(d, sparse_columns=("x0",), num_dropped_rows=11),
        ("bee", "data.describe"): lambda d: replace(d, sparse_columns=("x1", "y"), num_dropped_rows=12),
        ("cat", "data.map_features"): lambda found: replace(found, sparse_products=3),
    }
    notes = bench(regression_rows(THREE), tmp_path, tamper=tamper).run(make_job("dkrr")).notes
    assert [note for note in notes if "policy.sparse_columns" in note] == [
        "fewer rows than policy.min_rows, or very few test rows, differ from the others, or stand far out, in "
        "some columns of ant (x0), bee (x1, y); they are taken as the others; leave such columns out, or an "
        "administrator can allow them with policy.sparse_columns",
        "cat: some products of two columns are not 0 in fewer rows there than policy.min_rows; they are taken as 0, "
        "unless policy.sparse_columns allows them",
    ]
    assert "rows dropped for missing values, as data.missing says: ant 11, bee 12" in notes  # one line for all


def test_rows_that_are_held_out_anew_are_told(tmp_path: Path) -> None:
    """An operator who compares two jobs reads that their metrics are of other rows."""
    tamper: dict[tuple[str, str], Any] = {("bee", "data.describe"): lambda d: replace(d, dealt_anew=True)}
    notes = bench(regression_rows(THREE), tmp_path, tamper=tamper).run(make_job("dkrr")).notes
    [note] = [note for note in notes if "held out" in note]
    assert note.startswith("bee: other rows are held out than in an earlier job on these columns, though most rows")


def test_batches_that_are_larger_than_asked_for_are_told(tmp_path: Path) -> None:
    """The operator reads where, how large, and what to do; not where the job's batches are as large, or all rows."""
    tamper: dict[tuple[str, str], Any] = {
        ("ant", "data.describe"): lambda d: replace(d, block_rows=25),
        ("bee", "data.describe"): lambda d: replace(d, block_rows=12),
    }
    told = {}
    for batch in (0, 20):
        job = make_job("fedavg", rounds=1, batch_size=batch)
        notes = bench(regression_rows(THREE), tmp_path / str(batch), tamper=tamper).run(job).notes
        told[batch] = [note for note in notes if "batch_size" in note]
    assert told == {
        0: [],
        20: [
            "batches of method.batch_size = 20 would hold a few rows that stand out in a column, or of a class, "
            "or alike in columns of few values, or would tell about few rows with the sets of rows of earlier jobs, at "
            "ant (25 rows); they are as large as it takes there for policy.min_rows of them. Leave out columns in "
            "which few rows differ, take the rows of an earlier job, or set method.batch_size to so many"
        ],
    }


@pytest.mark.parametrize(("tamper", "reason"), BAD_DESCRIPTIONS)
def test_a_faulty_description_refuses_the_job_with_a_line_per_client(tmp_path: Path, tamper: Any, reason: str) -> None:
    """With preflight "all" nothing is trained, and the operator reads which client and why."""
    federation = bench(regression_rows(THREE), tmp_path, tamper={("bee", "data.describe"): tamper})
    with pytest.raises(JobError, match=rf"1 of 3 clients did not pass data.describe(.|\n)*  bee: {reason}: "):
        federation.run(make_job("dkrr"))


@pytest.mark.parametrize(("tamper", "reason"), BAD_DESCRIPTIONS)
def test_with_preflight_quorum_a_faulty_client_is_left_out(tmp_path: Path, tamper: Any, reason: str) -> None:
    """The model is that of the others, bit for bit, and a note says who is out."""
    rows = regression_rows(THREE)
    job = make_job("dkrr", cohort='preflight = "quorum"')
    outcome = bench(rows, tmp_path, tamper={("bee", "data.describe"): tamper}).run(job)
    without = bench({name: r for name, r in rows.items() if name != "bee"}, tmp_path).run(job)
    assert outcome.weights.tobytes() == without.weights.tobytes()
    assert any(note.startswith(f"bee is left out of this job: {reason}") for note in outcome.notes)
    assert set(outcome.metrics[-1].clients) == {"ant", "cat"}


def test_targets_a_thousand_times_as_large_leave_their_client_out(tmp_path: Path) -> None:
    """The model is that of the others, bit for bit; a job that needs all is refused, and a stated range decides."""
    rows = regression_rows(THREE)
    other = rows | {"bee": replace(rows["bee"], y_train=1000 * rows["bee"].y_train)}
    job = make_job("dkrr", cohort='preflight = "quorum"')
    outcome = bench(other, tmp_path).run(job)
    without = bench({name: r for name, r in rows.items() if name != "bee"}, tmp_path).run(job)
    assert outcome.weights.tobytes() == without.weights.tobytes()
    assert any(note.startswith("bee is left out of this job: INVALID_DATA: its targets lie") for note in outcome.notes)
    with pytest.raises(JobError, match=r"bee: INVALID_DATA: its targets lie .* say in data.ranges which values"):
        bench(other, tmp_path).run(make_job("dkrr"))
    assert bench(other, tmp_path).run(make_job("dkrr", data="ranges = {y = [-1e6, 1e6]}")).model is not None
    two = {name: other[name] for name in ("ant", "bee")}
    assert any("bee: values spread otherwise" in note for note in bench(two, tmp_path).run(make_job("dkrr")).notes)


def test_row_counts_must_add_up_over_classes(tmp_path: Path) -> None:
    """A client cannot claim more rows than its classes have."""

    def inflate(reply: Any) -> Any:
        assert isinstance(reply, DataDescription)
        return replace(reply, num_rows=1000 * reply.num_rows)

    federation = bench(
        label_skewed_rows(), tmp_path, ("red", "green", "blue"), tamper={("site-1", "data.describe"): inflate}
    )
    with pytest.raises(JobError, match="site-1: INVALID_REPLY: states 60000 training rows"):
        federation.run(make_job("dkrr", task="classification", num_columns=6))


@pytest.mark.parametrize("name", ["=1+1\x1b[2J", "\u202eder", "x" * 300])
def test_a_class_that_no_reader_lets_through_is_refused(tmp_path: Path, name: str) -> None:
    """A hostile client's name of a class reaches no model, no table and no terminal."""

    def rename(reply: Any) -> Any:
        assert isinstance(reply, DataDescription)
        return replace(reply, classes=(name, *reply.classes[1:]))

    federation = bench(
        label_skewed_rows(), tmp_path, ("red", "green", "blue"), tamper={("site-1", "data.describe"): rename}
    )
    with pytest.raises(JobError, match="site-1: INVALID_REPLY: states a class whose name no client's reader"):
        federation.run(make_job("dkrr", task="classification", num_columns=6))


def test_a_class_that_nobody_has_is_refused_unless_the_job_allows_it(tmp_path: Path) -> None:
    """A class that the job names and no client has a training row of is likely misspelt."""
    federation = bench(label_skewed_rows(), tmp_path, ("red", "green", "blue"))
    classes = 'classes = ["red", "green", "blue", "bleu"]'
    with pytest.raises(DataError, match=r"no client has a training row of 'bleu' in 'y', which data\.classes names"):
        federation.run(make_job("dkrr", task="classification", num_columns=6, data=classes))
    allowed = f'{classes}\nunseen_classes = "allow"'
    done = federation.run(make_job("dkrr", task="classification", num_columns=6, data=allowed))
    assert done.model is not None
    assert done.model.classes == ("red", "green", "blue", "bleu")
    assert "no client has a training row of class bleu: models cannot predict it" in done.notes


def test_a_job_of_an_earlier_version_goes_on_with_its_split(tmp_path: Path) -> None:
    """A new job deals copies of a row together; one whose checkpoint knows nothing of that deals rows one by one."""
    job = make_job("fedavg", rounds=3)
    new = bench(regression_rows(THREE), tmp_path / "new")
    first, *_ = new.run(job).journal.checkpoints
    assert new.jobs["ant"].schema.copies_together
    new.run(job, resumed=first)
    assert new.jobs["ant"].schema.copies_together
    earlier = {name: array for name, array in first.state.items() if not name.startswith("run.")}
    old = bench(regression_rows(THREE), tmp_path / "old")
    old.run(job, resumed=Checkpoint(first.round_num, earlier))
    assert not old.jobs["ant"].schema.copies_together


def test_a_client_with_other_features_is_refused(tmp_path: Path) -> None:
    """A fingerprint that differs tells of another version; nothing is trained with it."""
    tamper = {("cat", "data.map_features"): lambda r: FeaturesMapped(num_rows=r.num_rows, fingerprint="0" * 64)}
    with pytest.raises(JobError, match=r"cat drew other random features.*same version"):
        bench(regression_rows(THREE), tmp_path, tamper=tamper).run(make_job("dkrr"))


def test_few_rows_are_warned_of_only_for_the_papers_step(tmp_path: Path) -> None:
    """The default needs no warning: it cannot diverge."""
    federation = bench(regression_rows({"ant": 200, "bee": 30}), tmp_path)
    paper = federation.run(make_job("newton", ridge=10.0, rounds=2, step="paper"))
    assert any(note.startswith("bee: fewer rows than the 40 features") for note in paper.notes)
    auto = federation.run(make_job("newton", ridge=10.0, rounds=2))
    assert not any("fewer rows" in note for note in auto.notes)
