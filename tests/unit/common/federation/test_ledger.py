"""What clients stated binds their replies, and numbers of one client alone do not decide for all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernfed.errors import DivergedError, InvalidReplyError, InvalidTensorError
from kernfed.federation.ledger import SPREAD, Ledger
from kernfed.federation.messages.base import Reply, Request, Stated
from kernfed.federation.messages.evaluation import Evaluation, MetricSums
from kernfed.maths.model_spread import MODEL_SPREAD
from kernfed.methods.heads.messages import (
    HeadDescentRequest,
    HeadDirection,
    HeadDirectionRequest,
    HeadStep,
    HeadStepRequest,
    HeadWeights,
)
from kernfed.methods.ridge.messages import (
    Gradient,
    GradientDescentRequest,
    GradientRequest,
    LocalModel,
    LocalSolveRequest,
    NewtonStep,
    NewtonStepRequest,
    ProximalSolveRequest,
)

SUMS = MetricSums(
    model="global",
    num_rows=15,
    squared_error=2.0,
    target_mean=0.1,
    target_sum_squares=3.0,
    num_correct=9,
    log_loss=4.0,
    auc=0.7,
    auc_pairs=50.0,
)
ASKED = GradientRequest(ridge=1e-3, weights=np.zeros((2, 1)))
STEP = NewtonStepRequest(ridge=1e-3, gradient=np.ones((2, 1)))


def gradient(value: float, rows: int = 60) -> Gradient:
    return Gradient(num_rows=rows, gradient=np.array([[value], [0.0]]))


def ledger(*clients: str) -> Ledger:
    books = Ledger()
    books.register({client: Stated(60, 15) for client in clients})
    return books


@pytest.mark.parametrize(
    "changes",
    [
        {"num_rows": 10**15},
        {"num_correct": 16},
        {"log_loss": 1e6},
        {"auc_pairs": 1e9},
        {"squared_error": 1e300},
        {"target_sum_squares": 1e300},
    ],
)
def test_sums_are_of_the_rows_that_were_stated(changes: dict[str, Any]) -> None:
    """An evaluation of a client that stated 15 test rows holds counts and sums of 15 rows, else it is refused."""
    books = ledger("a")
    books.accept("a", Evaluation(num_test_rows=15, sums=(SUMS,)), 64)
    with pytest.raises(InvalidReplyError, match="15"):
        books.accept("a", Evaluation(num_test_rows=15, sums=(replace(SUMS, **changes),)), 64)


def test_other_test_rows_are_refused() -> None:
    """The number of test rows is the one stated at preparation; a client that stated none is not held to one."""
    sums = replace(SUMS, num_rows=10**15, num_correct=0)
    reply = Evaluation(num_test_rows=10**15, sums=(sums,))
    with pytest.raises(InvalidReplyError, match="stated 15 test rows"):
        ledger("a").accept("a", reply, 64)
    books = Ledger()
    books.register({"a": Stated(60)})
    books.accept("a", reply, 64)


def test_a_model_is_measured_once() -> None:
    """Two entries for one model are refused, for they would count twice."""
    with pytest.raises(InvalidReplyError, match="twice"):
        ledger("a").accept("a", Evaluation(num_test_rows=15, sums=(SUMS, SUMS)), 64)


def test_less_precise_numbers_are_refused() -> None:
    """float32 where the job asks for float64 is refused; float64 where it asks for float32 is not."""
    books = ledger("a")
    narrow = replace(gradient(1.0), gradient=np.ones((2, 1), dtype=np.float32))
    with pytest.raises(InvalidTensorError, match=r"float32.*asks for float64"):
        books.accept("a", narrow, 64)
    books.accept("a", narrow, 32)
    books.accept("a", gradient(1.0), 32)


@pytest.mark.parametrize("absurd", [1e9, 1e30, 1e308, -1e308])
def test_one_client_far_beyond_all_others_is_named(absurd: float) -> None:
    """Numbers that one client alone sends, far beyond those of all others, leave that client out."""
    found = ledger().outliers(ASKED, {"a": gradient(1.0), "b": gradient(-2.0), "m": gradient(absurd)})
    assert list(found) == ["m"]
    assert "check this client's data" in str(found["m"])


def test_what_is_absurd_is_not_remembered() -> None:
    """The next client that sends the like is left out as well, and two foes do not cover each other."""
    books = ledger()
    assert books.outliers(ASKED, {"a": gradient(1.0), "b": gradient(2.0), "m": gradient(1e30)})
    found = books.outliers(ASKED, {"a": gradient(1.0), "b": gradient(2.0), "c": gradient(1.0), "n": gradient(1e25)})
    assert list(found) == ["n"]


def test_honest_clients_may_be_done() -> None:
    """A client whose gradient is not yet 0 stays in, when those of all others are: earlier rounds count."""
    books = ledger()
    assert not books.outliers(ASKED, {"a": gradient(1.0), "b": gradient(2.0), "c": gradient(1.0)})
    assert not books.outliers(ASKED, {"a": gradient(1e-17), "b": gradient(0.0), "c": gradient(0.5)})
    assert not books.outliers(STEP, {c: NewtonStep(num_rows=60, newton_step=np.zeros((2, 1))) for c in "abc"})


def test_numbers_below_those_of_another_step_stay() -> None:
    """Where others send nothing but rounding, a client with ordinary numbers is no outlier."""
    books = ledger()
    assert not books.outliers(ASKED, {"a": gradient(1.0), "b": gradient(2.0), "c": gradient(1.0)})
    steps = {c: NewtonStep(num_rows=60, newton_step=np.full((2, 1), 1e-17)) for c in "ab"}
    steps["c"] = NewtonStep(num_rows=60, newton_step=np.ones((2, 1)))
    assert not books.outliers(STEP, steps)


def test_one_other_client_is_a_weak_witness() -> None:
    """Of two clients, one is left out only by the square of the factor."""
    books = ledger()
    assert not books.outliers(ASKED, {"a": gradient(1.0), "m": gradient(SPREAD * 10)})
    assert list(ledger().outliers(ASKED, {"a": gradient(1.0), "m": gradient(SPREAD**2 * 10)})) == ["m"]


def test_all_beyond_is_divergence() -> None:
    """Where every client sends numbers that are of no use, the iteration diverges, and nobody is at fault."""
    found = ledger().outliers(ASKED, {"a": gradient(1e120), "b": gradient(1e130)})
    assert all(isinstance(err, DivergedError) for err in found.values())


def test_all_beyond_later_is_divergence_too() -> None:
    """So it is in a round of which earlier ones are remembered."""
    books = ledger()
    assert not books.outliers(ASKED, {"a": gradient(1.0), "b": gradient(1.0)})
    found = books.outliers(ASKED, {"a": gradient(1e120), "b": gradient(1e130)})
    assert [type(found[client]) for client in "ab"] == [DivergedError, DivergedError]


def test_a_methods_own_rule_is_followed() -> None:
    """A method may let clients differ by more."""
    books = ledger()
    books.spread = 1e12
    assert not books.outliers(ASKED, {"a": gradient(1.0), "b": gradient(1.0), "m": gradient(1e9)})


AT = np.zeros((2, 1))
DESCENT = HeadDescentRequest(
    ridge=1e-9, weights=AT, proximal=0.0, learning_rate=0.1, momentum=0.9, num_epochs=2, batch_size=0, seed=1
)
OF_MODELS: dict[str, tuple[Request[Any], type[Reply], str]] = {
    "fedavg": (
        GradientDescentRequest(ridge=1e-9, weights=AT, learning_rate=0.1, num_steps=3, batch_size=0, seed=1),
        LocalModel,
        "weights",
    ),
    "fedprox": (ProximalSolveRequest(ridge=1e-9, weights=AT, proximal=0.1), LocalModel, "weights"),
    "dkrr": (LocalSolveRequest(ridge=0.1, num_features=2, num_outputs=1), LocalModel, "weights"),
    "head": (DESCENT, HeadWeights, "weights"),
    "fednew": (
        HeadDirectionRequest(
            ridge=1e-9, weights=AT, damping=0.1, penalty=0.1, tolerance=0.1, max_iterations=9, dual=AT, previous=AT
        ),
        HeadDirection,
        "direction",
    ),
}


@pytest.mark.parametrize("method", OF_MODELS)
def test_a_model_a_thousand_times_as_large_is_left_out(method: str) -> None:
    """Models of which means are formed are of one scale, whatever larger numbers others sent in other steps."""
    asked, reply, field = OF_MODELS[method]
    books = ledger()
    assert not books.outliers(ASKED, {"a": gradient(1e9), "b": gradient(1e9), "m": gradient(1e9)})

    def of(size: float) -> Reply:
        changed: dict[str, Any] = {"num_rows": 60, field: np.array([[size], [0.0]])}
        return reply(**changed)

    found = books.outliers(asked, {"a": of(1.0), "b": of(-1.05), "m": of(999.0)})
    assert list(found) == ["m"]
    assert "9.5e+02 times the largest of any other client; 100 times is the most" in str(found["m"])
    assert not ledger().outliers(asked, {"a": of(1.0), "b": of(-1.05), "m": of(50.0)})


def test_a_client_with_more_rows_moves_further() -> None:
    """Passes over the rows in batches: as many more steps as rows; a solution of a small ridge may be long as well."""
    asked, _, _ = OF_MODELS["head"]
    books = Ledger()
    books.register({"a": Stated(10), "b": Stated(12), "c": Stated(120), "m": Stated(12)})
    weights = {
        c: HeadWeights(num_rows=1, weights=np.array([[v], [0.0]])) for c, v in (("a", 1.0), ("b", 1.0), ("c", 300.0))
    }
    assert not books.outliers(asked, weights)
    weights["m"] = replace(weights["a"], weights=np.array([[4e4], [0.0]]))
    assert list(books.outliers(asked, weights)) == ["m"]
    small = LocalSolveRequest(ridge=1e-6, num_features=2, num_outputs=1)
    assert small.models_differ(1.0) == pytest.approx(3e4)
    assert replace(small, ridge=1.0).models_differ(1e6) == MODEL_SPREAD


def test_with_two_clients_both_are_named() -> None:
    """Nobody can tell which of the two is wrong, so both count, and both are named."""
    asked, _, _ = OF_MODELS["fedavg"]
    books = ledger()
    models = {c: LocalModel(num_rows=60, weights=np.array([[v], [0.0]])) for c, v in (("a", 1.0), ("b", 1000.0))}
    assert not books.outliers(asked, models)
    assert books.loudest is not None
    assert books.loudest.of_model
    assert "b sent numbers 1e+03 times as large as a " in books.loudest.words
    assert "with two clients nobody can tell" in books.loudest.words


def test_diagnostics_are_not_compared() -> None:
    """Numbers that tell how a client came to its answer may differ by any factor."""
    steps = {
        c: HeadStep(num_rows=60, iterations=3, residual=r, newton_step=np.ones((2, 1)))
        for c, r in (("a", 1e-15), ("b", 1e-16), ("c", 0.5))
    }
    asked = object.__new__(HeadStepRequest)
    assert not ledger().outliers(asked, steps)


def test_where_most_are_far_beyond_nobody_is_blamed() -> None:
    """Three of four whose numbers explode are no outliers: the iteration diverges; one of three is still out alone."""
    values = {"a": gradient(1e40), "b": gradient(1e20), "c": gradient(1e30), "m": gradient(1.0)}
    found = ledger().outliers(ASKED, values)
    assert set(found) == {"a", "b", "c"}
    assert all(isinstance(err, DivergedError) for err in found.values())
    alone = ledger().outliers(ASKED, {"a": gradient(1.0), "b": gradient(1.0), "m": gradient(1e30)})
    assert isinstance(alone["m"], InvalidReplyError)


def test_numbers_of_no_use_are_a_part_of_it() -> None:
    """Two beyond 10^100 and a third far off, against one client of ordinary numbers."""
    values = {"a": gradient(1e88), "b": gradient(1e120), "c": gradient(1e300), "m": gradient(7.0)}
    found = ledger().outliers(ASKED, values)
    assert set(found) == {"a", "b", "c"}
    assert all("a, b, c" in str(err) and isinstance(err, DivergedError) for err in found.values())


@pytest.mark.parametrize(("spread", "value"), [(SPREAD, 2e3), (float("inf"), 2e4)])
def test_numbers_that_count_though_they_are_far_off_are_remembered(spread: float, value: float) -> None:
    """The client, step and field, and how many times the others' they were; ordinary ones are nothing of the kind."""
    books = ledger()
    books.spread = spread
    assert not books.outliers(ASKED, {"a": gradient(1.0), "b": gradient(2.0), "m": gradient(3.0)})
    assert books.loudest is None
    assert not books.outliers(ASKED, {"a": gradient(1.0), "b": gradient(2.0), "m": gradient(2 * value)})
    assert books.loudest is not None
    assert (books.loudest.client, books.loudest.times) == ("m", value)
    assert "Gradient.gradient of newton.gradient" in books.loudest.words


def test_who_points_against_all_others_is_remembered() -> None:
    """A client whose gradients are of the other sign in most rounds is told of at the end, and its numbers count."""
    books = ledger("a", "b", "c", "m")
    for size in (1.0, 0.5, 0.1):
        sent = {"a": gradient(size), "b": gradient(1.1 * size), "c": gradient(0.9 * size), "m": gradient(-size)}
        assert not books.outliers(ASKED, sent)
    assert not books.outliers(ASKED, {client: gradient(0.1) for client in "abcm"})
    (odd,) = books.odd
    assert (odd.client, odd.times, odd.of) == ("m", 3, 4)
    assert "m sent numbers that point another way than those of all other clients" in odd.words
    assert "Gradient.gradient of newton.gradient, 3 of 4 times" in odd.words


def test_who_differs_once_is_nobody_to_tell_of() -> None:
    """One round in three in which a client's own rows pull the other way."""
    books = ledger("a", "b", "c")
    for m in (-1.0, 1.0, 1.0):
        assert not books.outliers(ASKED, {"a": gradient(1.0), "b": gradient(1.0), "m": gradient(m)})
    assert not books.odd


def test_who_takes_more_steps_goes_further() -> None:
    """Passes over twenty times the rows end forty times as far; a client of few rows that goes as far is told of."""
    rows = {"a": 20, "b": 20, "c": 400}
    for far in ("b", "c"):
        books = Ledger()
        books.register({client: Stated(num) for client, num in rows.items()})
        lengths = {client: 40.0 if client == far else 1.0 for client in rows}
        sent = {c: HeadWeights(num_rows=rows[c], weights=np.array([[v], [0.0]])) for c, v in lengths.items()}
        assert not books.outliers(replace(DESCENT, batch_size=10), sent)
        named = {odd.client for odd in books.odd} | {loud.client for loud in (books.loudest, books.largest) if loud}
        assert named == ({"b"} if far == "b" else set())


def test_of_two_the_larger_model_is_remembered_with_the_other() -> None:
    """For a job whose model is of no use; and so are gradients, which move a model."""
    asked, _, _ = OF_MODELS["fedavg"]
    books = ledger()
    models = {c: LocalModel(num_rows=60, weights=np.array([[v], [0.0]])) for c, v in (("a", 1.0), ("b", 27.0))}
    assert not books.outliers(asked, models)
    assert books.largest is not None
    assert "b sent numbers 27 times as large as a " in books.largest.words
    books = ledger()
    assert not books.outliers(ASKED, {"a": gradient(1.0), "b": gradient(2.0), "m": gradient(27.0)})
    assert books.largest is not None
    assert (books.largest.client, books.largest.times) == ("m", 13.5)


@pytest.mark.parametrize("after", [-1.0, 1.0])
def test_two_that_never_agree_are_told_of(after: float) -> None:
    """Each time they are compared, in what moves a model first; at an optimum honest ones differ in sign too."""
    books = ledger("a", "b")
    assert books.opposed is None
    assert not books.outliers(ASKED, {"a": gradient(1.0), "b": gradient(after)})
    assert not books.outliers(ASKED, {"a": gradient(0.1), "b": gradient(-0.1)})
    assert (books.opposed is not None) == (after < 0)
    if books.opposed is not None:
        assert "a and b sent numbers that point against each other each time (Gradient.gradient" in books.opposed.words


def test_two_of_three_clients_are_not_told_of() -> None:
    """Two that were drawn for a round of a larger job may differ from each other at its optimum."""
    books = ledger("a", "b", "c")
    assert not books.outliers(ASKED, {"a": gradient(1.0), "b": gradient(-1.0)})
    assert books.opposed is None


def test_what_no_model_is_made_of_tells_no_direction() -> None:
    """Gradients at the last weights sum to about 0, and one client's is against the others', which is no sign."""
    against = {"a": gradient(1.0), "b": gradient(1.0), "m": gradient(-1.0)}
    books = ledger("a", "b", "m")
    assert not books.outliers(ASKED, against, moves=False)
    assert not books.odd
    assert not books.outliers(ASKED, against)
    assert [odd.client for odd in books.odd] == ["m"]
