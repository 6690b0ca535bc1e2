"""Distillation by kernel ridge regression: algorithms and limits, against an independent program's numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from kernfed.errors import ConfigError, DataError, NotPositiveDefiniteError, NumericalError
from kernfed.features.kernels import KernelSpec, PointKernel
from kernfed.maths.folds import units
from kernfed.maths.points.kernels import gram
from kernfed.maths.settling import progress, relative_movement
from kernfed.methods.distill.alpha import check_alpha
from kernfed.methods.distill.consensus import (
    Deregulariser,
    fixed_point,
    mean_predictions,
    remember,
    spectral_radius,
)
from kernfed.methods.distill.tensors.distillation import (
    DistilledRidge,
    KernelModel,
    check_memory,
    distil,
    kernel_ridge,
    leave_out,
    memory_needed,
)
from kernfed.methods.distill.tensors.shrinkage import Unshrunk
from kernfed.methods.distill.tensors.spread import spread
from kernfed_testing.methods.ridge_clients import load_golden

KERNELS = {"dataset1": PointKernel.ONE_PLUS_MIN, "dataset3": PointKernel.WENDLAND}


def column(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


@dataclass
class Golden:
    """Clients of one golden problem."""

    numbers: dict[str, Any]
    spec: KernelSpec
    x: list[Tensor]
    y: list[Tensor]
    public: Tensor
    test: Tensor

    @classmethod
    def load(cls, name: str) -> Golden:
        g = load_golden("distill")[name]
        x = [torch.tensor(part, dtype=torch.float64) for part in g["X"]]
        public, test = (torch.tensor(g[key], dtype=torch.float64) for key in ("Xp", "Xt"))
        return cls(g, KernelSpec(KERNELS[name], (1.0,), False), x, [column(y) for y in g["y"]], public, test)

    @property
    def ridge(self) -> float:
        return float(self.numbers["lam"])

    def pretrained(self) -> list[KernelModel]:
        return [kernel_ridge(self.spec, x, y, self.ridge) for x, y in zip(self.x, self.y, strict=True)]

    def clients(self, alpha: float | None = None) -> list[DistilledRidge]:
        alpha = alpha or self.numbers["alpha"]
        pairs = zip(self.x, self.y, strict=True)
        return [DistilledRidge(self.spec, x, y, self.public, self.ridge, alpha) for x, y in pairs]

    def deregulariser(self) -> Deregulariser:
        return Deregulariser(gram(self.spec, self.public.numpy()), self.ridge)


@pytest.fixture(params=list(KERNELS))
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden.load(request.param)


def assert_close(found: Any, expected: Any, tolerance: float = 1e-12) -> None:
    found = np.asarray(found)
    np.testing.assert_allclose(found[:, 0] if found.ndim == 2 else found, expected, rtol=0, atol=tolerance)


def test_closed_forms_are_those_of_the_independent_program(golden: Golden) -> None:
    """Gram matrix, pre-training, equation (12) both ways, and equation (7), to 1e-12."""
    g, targets = golden.numbers, column(golden.numbers["eq12"]["v"])
    np.testing.assert_allclose(gram(golden.spec, golden.public.numpy()), g["Kpp"], atol=1e-14)
    for model, expected in zip(golden.pretrained(), g["pretrain_coef"], strict=True):
        assert_close(model.coefficients, expected)
    whole = distil(golden.spec, golden.x[0], golden.y[0], golden.public, targets, golden.ridge, g["alpha"])
    assert_close(whole.coefficients, g["eq12"]["coef"], 1e-11)
    factored = golden.clients()[0]
    assert_close(factored.model(targets).coefficients, g["eq12"]["coef"], 1e-11)
    torch.testing.assert_close(factored.predict_public(targets), whole(golden.public), rtol=0, atol=1e-13)
    assert_close(golden.deregulariser()(targets.numpy()), g["dereg_of_v"])


@pytest.mark.parametrize("form", ["plain", "dereg"])
def test_iterations_are_those_of_the_independent_program(golden: Golden, form: str) -> None:
    """Algorithms 1 and 2 after 1, 2, 5 and 200 rounds: consensus and every client's test predictions, to 1e-10."""
    clients, deregularise = golden.clients(), golden.deregulariser()
    v = mean_predictions([model(golden.public).numpy() for model in golden.pretrained()])
    for round_num in range(1, 201):
        if (expected := golden.numbers.get(f"{form}_t{round_num}")) is not None:
            assert_close(v, expected["v"], 1e-10)
            for client, predictions in zip(clients, expected["test"], strict=True):
                assert_close(client.model(torch.from_numpy(v))(golden.test), predictions, 1e-10)
        w = torch.from_numpy(deregularise(v) if form == "dereg" else v)
        v = mean_predictions([client.predict_public(w).numpy() for client in clients])


def test_fixed_points_by_one_solve(golden: Golden) -> None:
    """The limits of both algorithms, to 1e-10; the spectral radii say how fast they are reached."""
    maps = [(a.numpy(), offset.numpy()) for a, offset in (c.affine_map for c in golden.clients())]
    k = gram(golden.spec, golden.public.numpy())
    plain, dereg = fixed_point(maps), fixed_point(maps, k, golden.ridge)
    assert_close(plain, golden.numbers["fixed_point_plain"], 1e-10)
    assert_close(dereg, golden.numbers["fixed_point_dereg"], 1e-10)
    assert spectral_radius(maps) < spectral_radius(maps, k, golden.ridge) < 1
    deregularise, clients = golden.deregulariser(), golden.clients()
    movements, v = [1.0], np.zeros_like(plain)
    while movements[-1] > 1e-8 and len(movements) <= 150:  # below it rounding is a part of the quotients
        after = mean_predictions([c.predict_public(torch.from_numpy(deregularise(v))).numpy() for c in clients])
        movements.append(relative_movement(v, after))
        v = after
    found = progress(movements[1:])
    assert found.contraction is not None
    assert -1e-7 < spectral_radius(maps, k, golden.ridge) - found.contraction < 0.01  # from below
    assert found.distance is not None
    distance = np.linalg.norm(v - dereg) / np.linalg.norm(dereg)
    assert found.distance < 2 * distance + 1e-12
    assert distance < 2 * found.distance + 1e-12


@pytest.mark.parametrize("form", ["proof", "stale"])
def test_partial_participation_in_both_forms(golden: Golden, form: str) -> None:
    """Algorithm 3: with the current consensus fitted first (proof), or the model of the last selection (as printed)."""
    clients, pretrained, deregularise = golden.clients(), golden.pretrained(), golden.deregulariser()
    v = w = None
    last: list[np.ndarray | None] = [None] * len(clients)
    for round_num, chosen in enumerate(golden.numbers["alg3"]["schedule"], 1):
        uploads = []
        for j in chosen:
            targets = w if form == "proof" else last[j]
            own = pretrained[j](golden.public)
            uploads.append((own if targets is None else clients[j].predict_public(torch.from_numpy(targets))).numpy())
        v = remember(v, mean_predictions(uploads), round_num, golden.numbers["alg3"]["q"])
        w = deregularise(v)
        for j in chosen:
            last[j] = w
    assert_close(v, golden.numbers["alg3"][form], 1e-10)


def test_limits_of_a_single_client(golden: Golden) -> None:
    """Theorem 5.2: plain distillation tends to ridge λ/α. Theorem 5.3: the model before the last plain step."""
    m1 = golden.numbers["m1"]
    client = golden.clients(m1["alpha"])[0]
    maps = [tuple(part.numpy() for part in client.affine_map)]
    plain = client.model(torch.from_numpy(fixed_point(maps)))(golden.test)  # type: ignore[arg-type]  # a pair
    assert_close(plain, m1["thm52_at_Xt"], 1e-10)
    same = kernel_ridge(golden.spec, golden.x[0], golden.y[0], golden.ridge / m1["alpha"])
    torch.testing.assert_close(plain, same(golden.test), rtol=0, atol=1e-12)
    k = gram(golden.spec, golden.public.numpy())
    v = fixed_point(maps, k, golden.ridge)  # type: ignore[arg-type]  # a pair
    before_last = client.model(torch.from_numpy(golden.deregulariser()(v)))
    assert_close(before_last(golden.test), m1["thm53_at_Xt"], 1e-10)


def test_repeated_public_points_are_deregularised_on_their_span() -> None:
    """Cholesky cannot factor K_pp then; W agrees with that of the points taken once, where λ₀ is scaled alike."""
    spec = KernelSpec(PointKernel.GAUSSIAN, (0.7,), False)
    points = np.random.default_rng(1).normal(size=(8, 2))
    v = gram(spec, points) @ np.random.default_rng(2).normal(size=(8, 1))
    once = Deregulariser(gram(spec, points), 0.01)
    twice = Deregulariser(gram(spec, np.vstack([points, points])), 0.01)
    assert (once.rank, twice.rank) == (8, 8)
    w = twice(np.vstack([v, v]))
    np.testing.assert_allclose(w[:8], w[8:], atol=1e-10)
    # With each point twice, N_p doubles and K_pp⁺ halves: the same W.
    np.testing.assert_allclose(w[:8], once(v), atol=1e-8)


def test_public_points_equal_to_own_rows(golden: Golden) -> None:
    """The public set may be a client's own rows: the factored form still agrees with the one solve."""
    x, y = golden.x[0], golden.y[0]
    w = column(np.linspace(-1, 1, len(x)))
    factored = DistilledRidge(golden.spec, x, y, x, golden.ridge, 0.4)
    whole = distil(golden.spec, x, y, x, w, golden.ridge, 0.4)
    torch.testing.assert_close(factored.model(w)(golden.test), whole(golden.test), rtol=0, atol=1e-12)


def test_one_row_is_enough(golden: Golden) -> None:
    """N = 1: pre-training gives y k(x, ·)/(k(x, x) + λ), and distillation works."""
    x, y = golden.x[1][:1], golden.y[1][:1]
    k = float(gram(golden.spec, x.numpy())[0, 0])
    model = kernel_ridge(golden.spec, x, y, golden.ridge)
    assert abs(float(model.coefficients[0, 0]) - float(y[0, 0]) / (k + golden.ridge)) < 1e-14
    w = column(golden.numbers["eq12"]["v"])
    factored = DistilledRidge(golden.spec, x, y, golden.public, golden.ridge, 0.5).model(w)
    whole = distil(golden.spec, x, y, golden.public, w, golden.ridge, 0.5)
    torch.testing.assert_close(factored(golden.test), whole(golden.test), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kernel", list(PointKernel))
@pytest.mark.parametrize("sizes", [(3, 40, 7), (50, 9, 1)])
def test_factored_form_agrees_with_one_solve(kernel: PointKernel, sizes: tuple[int, int, int]) -> None:
    """For every kernel, more or fewer rows than public points, several outputs, and an intercept."""
    num_rows, num_public, num_outputs = sizes
    draw = torch.Generator().manual_seed(3)
    x, public = (torch.rand(n, 3, dtype=torch.float64, generator=draw) for n in (num_rows, num_public))
    y, w = (torch.randn(n, num_outputs, dtype=torch.float64, generator=draw) for n in (num_rows, num_public))
    spec = KernelSpec(kernel, (0.6, 1.0, 1.7), True)
    client = DistilledRidge(spec, x, y, public, 1e-3, 0.2)
    whole = distil(spec, x, y, public, w, 1e-3, 0.2)
    torch.testing.assert_close(client.model(w)(x), whole(x), rtol=0, atol=1e-9)
    torch.testing.assert_close(client.predict_public(w), whole(public), rtol=0, atol=1e-10)
    a, _ = client.affine_map
    values = torch.linalg.eigvalsh((a + a.T) / 2)
    torch.testing.assert_close(a, a.T, rtol=0, atol=1e-12)
    assert values.min() > -1e-10
    assert values.max() < 1


def test_outputs_are_independent(golden: Golden) -> None:
    """Two targets at once give what each gives alone."""
    x, y = golden.x[0], torch.cat([golden.y[0], golden.y[1]], dim=1)
    both = kernel_ridge(golden.spec, x, y, 0.1)(golden.test)
    for i in range(2):
        alone = kernel_ridge(golden.spec, x, y[:, i : i + 1], 0.1)(golden.test)
        torch.testing.assert_close(both[:, i : i + 1], alone, rtol=0, atol=1e-13)


def test_constants_are_learnt_with_an_intercept() -> None:
    """A shift of the targets shifts the predictions far from the rows, which without intercept tend to 0."""
    x = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
    y = torch.full_like(x, 100.0)
    far = torch.tensor([[50.0]], dtype=torch.float64)
    found = [float(kernel_ridge(KernelSpec(PointKernel.GAUSSIAN, (1.0,), i), x, y, 1e-4)(far)) for i in (True, False)]
    assert found[0] > 40  # half in the constant, half in the kernel around the rows
    assert found[1] == 0


@pytest.mark.parametrize(("alpha", "words"), [(0.0, "would not count"), (1.0, "method local"), (-1.0, "0")])
def test_alpha_at_its_ends_is_refused(golden: Golden, alpha: float, words: str) -> None:
    """With the reason: at 0 own rows, at 1 public points would not count."""
    with pytest.raises(ConfigError, match=words):
        check_alpha(alpha)
    with pytest.raises(ConfigError):
        DistilledRidge(golden.spec, golden.x[0], golden.y[0], golden.public, 0.1, alpha)


def test_a_ridge_that_is_too_small_is_an_error() -> None:
    """Repeated rows with (almost) no ridge give no number, but NotPositiveDefiniteError."""
    x = torch.ones(5, 1, dtype=torch.float64)
    with pytest.raises(NotPositiveDefiniteError, match="ridge"):
        kernel_ridge(KernelSpec(PointKernel.GAUSSIAN, (1.0,), False), x, x, 1e-20)


def test_nan_is_found_before_it_spreads() -> None:
    """A NaN in the points is an error of its own."""
    x = torch.tensor([[0.0], [float("nan")]], dtype=torch.float64)
    with pytest.raises(NumericalError, match="NaN"):
        kernel_ridge(KernelSpec(PointKernel.GAUSSIAN, (1.0,), False), x, torch.ones_like(x), 0.1)


def test_no_rows_or_points_are_refused(golden: Golden) -> None:
    """Distillation needs own rows and public points."""
    with pytest.raises(DataError, match="needs both"):
        DistilledRidge(golden.spec, golden.x[0], golden.y[0], golden.public[:0], 0.1, 0.5)


def test_memory_is_refused_with_advice() -> None:
    """The estimate covers the matrices, and the rows said to fit do fit."""
    needed = memory_needed(20_000, 2_000, 10, 1)
    assert 8 * (20_000**2 + 20_000 * 2_000) < needed < 4 << 30
    check_memory(needed, needed, 20_000, 2_000)
    with pytest.raises(DataError, match=r"about \d+ rows would fit") as caught:
        check_memory(needed, 1 << 30, 20_000, 2_000)
    fits = int(str(caught.value).split("about ")[2].split()[0])
    assert 0.95 * (1 << 30) < memory_needed(fits, 2_000, 0, 0) <= 1 << 30
    with pytest.raises(DataError, match="fewer public points"):
        check_memory(memory_needed(10, 20_000, 1, 1), 1 << 30, 10, 20_000)


def made(rows: int = 12, points: int = 9) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(1)
    x, public = (torch.rand(n, 2, dtype=torch.float64, generator=draw) for n in (rows, points))
    y, w = (100 + torch.randn(n, 2, dtype=torch.float64, generator=draw) for n in (rows, points))
    return x, y, public, w


SMOOTH = KernelSpec(PointKernel.GAUSSIAN, (0.7,), False)


def test_a_free_intercept_costs_nothing() -> None:
    """A constant added to all targets is added to all predictions; the factored form agrees with one solve."""
    x, y, public, w = made()
    for shift in (0.0, 1e4):
        factored = DistilledRidge(SMOOTH, x, y + shift, public, 1e-3, 0.3, free=True)
        whole = distil(SMOOTH, x, y, public, w, 1e-3, 0.3, free=True)
        torch.testing.assert_close(factored.model(w + shift)(x) - shift, whole(x), rtol=0, atol=1e-9)
        torch.testing.assert_close(factored.predict_public(w + shift) - shift, whole(public), rtol=0, atol=1e-9)
        a, offset = factored.affine_map
        torch.testing.assert_close(a @ (w + shift) + offset - shift, whole(public), rtol=0, atol=1e-9)
        own = kernel_ridge(SMOOTH, x, y + shift, 1e-3, free=True)
        torch.testing.assert_close(own(x) - shift, kernel_ridge(SMOOTH, x, y, 1e-3, free=True)(x), rtol=0, atol=1e-9)


@pytest.mark.parametrize("free", [False, True])
def test_left_out_rows_are_as_in_a_fit_without_them(free: bool) -> None:
    """Errors and spread, of own rows alone and of the distilled model; copies of a row are left out together."""
    x, y, public, w = made()
    x[[3, 7, 8]], x[9] = x[1].clone(), x[5].clone()
    unit = units(x.numpy())
    own = leave_out(SMOOTH, x, y, 1e-3, unit, free=free)
    distilled = DistilledRidge(SMOOTH, x, y, public, 1e-3, 0.3, free=free).leave_out(w, unit)
    for i in (0, 1, 5):
        rest = torch.from_numpy(unit != unit[i])
        left = int(rest.sum())
        fewer = kernel_ridge(SMOOTH, x[rest], y[rest], 1e-3 * 12 / left, free=free)  # N λ stays
        out = [j for j in range(12) if unit[j] == unit[i]]
        assert len(out) == {0: 1, 1: 4, 5: 2}[i]
        torch.testing.assert_close(own.errors[out], y[out] - fewer(x[out]), rtol=0, atol=1e-10)
        torch.testing.assert_close(own.spread[out], spread(fewer, x[out]), rtol=0, atol=1e-9)
        # With fewer rows each has the weight α/12 where α' = α left/12, and public points theirs where both are scaled.
        a, b = 0.3 * left / 12, 0.7
        again = distil(SMOOTH, x[rest], y[rest], public, w, 1e-3 / (a + b), a / (a + b), free=free)
        torch.testing.assert_close(distilled.errors[out], y[out] - again(x[out]), rtol=0, atol=1e-10)
        torch.testing.assert_close(distilled.spread[out], spread(again, x[out]), rtol=0, atol=1e-9)


@pytest.mark.parametrize("repeat", [False, True])
def test_the_coordinator_undoes_a_fit_with_a_free_intercept(repeat: bool) -> None:
    """A plain fit of W gives V back, and a constant in V is one in W."""
    _, _, public, _ = made()
    rough = KernelSpec(PointKernel.LAPLACE, (0.3,), False)
    points = torch.cat([public, public[:3]]) if repeat else public
    v = 100 + torch.sin(3 * points)
    undo = Deregulariser(gram(rough, points.numpy()), 1e-3, free=True)
    w = torch.from_numpy(undo(v.numpy()))
    torch.testing.assert_close(kernel_ridge(rough, points, w, 1e-3, free=True)(points), v, rtol=0, atol=1e-9)
    np.testing.assert_allclose(undo(v.numpy() + 1e4) - 1e4, w.numpy(), rtol=0, atol=1e-8)


def test_the_model_keeps_its_digits_where_the_ridge_is_small() -> None:
    """With a ridge of 1e-10 and targets that the fit nearly meets, both forms agree to ten digits."""
    draw = torch.Generator().manual_seed(1)
    x, public, test = (torch.rand(40, 2, dtype=torch.float64, generator=draw) for _ in range(3))
    y, w = (100 + torch.sin(3 * rows[:, :1]) for rows in (x, public))
    rough = KernelSpec(PointKernel.LAPLACE, (0.7,), False)
    factored = DistilledRidge(rough, x, y, public, 1e-10, 0.3).model(w)
    whole = distil(rough, x, y, public, w, 1e-10, 0.3)
    torch.testing.assert_close(factored.coefficients, whole.coefficients, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(factored(test), whole(test), rtol=0, atol=1e-11)


@pytest.mark.parametrize("free", [False, True])
def test_a_client_undoes_its_own_shrinkage_up_to_the_bound(free: bool) -> None:
    """A fit of W gives V back where nothing is bounded, and no direction grows more than fourfold."""
    _, _, public, w = made()
    rough = KernelSpec(PointKernel.LAPLACE, (0.3,), False)
    exact = Unshrunk(rough, public, 1e-3, free=free)
    torch.testing.assert_close(kernel_ridge(rough, public, exact(w), 1e-3, free=free)(public), w, rtol=0, atol=1e-9)
    bounded = Unshrunk(SMOOTH, public, 10.0, free=free)
    centred = w - w.mean(dim=0) if free else w
    torch.testing.assert_close(bounded(w), w + 3.0 * centred, rtol=0, atol=1e-9)
