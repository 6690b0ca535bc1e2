"""Tests of `kernfed.tensors.rows`: features by blocks, by some rows, and all at once."""

from __future__ import annotations

import pytest
import torch

from kernfed.errors import DataError
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, make_spec
from kernfed.tensors import rows as rows_module
from kernfed.tensors.feature_maps import FeatureMap
from kernfed.tensors.ridge import LocalRidge
from kernfed.tensors.rows import KeptRows, MappedRows, mean_of, product


def points(n: int, d: int = 3) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(n), dtype=torch.float64)


def feature_map(
    kernel: Kernel = Kernel.GAUSSIAN, form: FeatureForm = FeatureForm.COSINE, num: int = 3000
) -> FeatureMap:
    return FeatureMap(make_spec(kernel, form, 3, 1.0, num, 4))


@pytest.mark.parametrize("form", list(FeatureForm))
def test_blocks_have_the_bits_of_all_rows_at_once(form: FeatureForm) -> None:
    """Whether features are kept or mapped again, and in which blocks, changes no bit."""
    num, num_rows = (900, 3401) if form is FeatureForm.NYSTROEM else (3000, 1001)  # points cost their number cubed
    phi, x = feature_map(form=form, num=num), points(num_rows)
    mean = phi(x).mean(0)
    mapped = MappedRows(x, phi).minus(mean)
    blocks = list(mapped.blocks())
    assert len(blocks) > 1
    assert torch.equal(torch.cat(blocks), phi(x) - mean)
    assert torch.equal(mapped.whole(), torch.cat(blocks))
    index = torch.tensor([7, 0, 999])
    rounding = 1e-11 if form is FeatureForm.NYSTROEM else 1e-14  # its root raises that of the kernel
    torch.testing.assert_close(mapped.take(index), mapped.whole()[index], rtol=0, atol=rounding)


@pytest.mark.parametrize("kernel", [Kernel.LINEAR, Kernel.POLYNOMIAL2, Kernel.GAUSSIAN])
def test_few_features_are_kept(kernel: Kernel) -> None:
    """What is small is computed once, and read as it is."""
    mapped = MappedRows(points(40), feature_map(kernel, num=20))
    first, second = next(mapped.blocks()), next(mapped.blocks())
    assert first.data_ptr() == second.data_ptr()
    assert mapped.whole().data_ptr() == first.data_ptr()


def test_sums_follow_their_definitions() -> None:
    """Means, weighted means, products and scaled rows, of kept and of mapped rows."""
    phi, x = feature_map(num=700), points(900)
    z = phi(x)
    w = torch.randn(700, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    weights = torch.rand(900, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    for rows in (KeptRows(z), MappedRows(x, phi)):
        torch.testing.assert_close(mean_of(rows), z.mean(0), rtol=0, atol=1e-14)
        torch.testing.assert_close(mean_of(rows, weights), weights @ z / weights.sum(), rtol=0, atol=1e-14)
        torch.testing.assert_close(product(rows, w), z @ w, rtol=0, atol=1e-12)
        torch.testing.assert_close(rows.times(weights).whole(), z * weights[:, None], rtol=0, atol=1e-15)
        torch.testing.assert_close(rows.minus(z[0]).minus(z[1]).whole(), z - z[0] - z[1], rtol=0, atol=1e-15)


def test_no_rows_are_rows() -> None:
    """An empty test partition has products of no rows."""
    empty = MappedRows(points(0), feature_map())
    assert product(empty, torch.ones(3000, 2, dtype=torch.float64)).shape == (0, 2)


def test_the_limit_bounds_what_is_held_at_once() -> None:
    """All rows at once are refused with the sizes; sums by blocks, and some rows, need no more than a block."""
    mapped = MappedRows(points(1001), feature_map(), limit=lambda: 1 << 20)
    with pytest.raises(DataError, match=r"3000 features of each of 1001 rows need 0\.02 GiB.*max_memory_bytes"):
        mapped.whole()
    assert mean_of(mapped).shape == (3000,)
    assert mapped.take(torch.tensor([3])).shape == (1, 3000)


def test_a_problem_is_the_same_to_the_bit_under_any_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums, solves and batches of a ridge problem do not hang on what fits into memory."""
    phi, x = feature_map(num=300), points(2500)
    y = x[:, :2].sin()
    monkeypatch.setattr(rows_module, "SMALL", 1000)

    def weights(limit: int) -> list[torch.Tensor]:
        client = LocalRidge(MappedRows(x, phi, limit=lambda: limit), y, 1e-3)
        start = torch.zeros(300, 2, dtype=torch.float64)
        batches = client.gradient_descent(start, learning_rate=0.1, num_steps=5, batch_size=50, seed=1)
        return [client.solve(), client.gradient(batches), client.moment(), batches]

    for narrow, wide in zip(weights(1 << 12), weights(1 << 40), strict=True):
        assert torch.equal(narrow, wide)


def test_some_rows_are_read_like_all() -> None:
    """Rows by their places have the features, mean and scales that they have among all."""
    phi, x = feature_map(num=40), points(90)
    scale = torch.linspace(1.0, 2.0, 90, dtype=torch.float64)
    mapped = MappedRows(x, phi).minus(phi(x).mean(0)).times(scale)
    index = torch.tensor([80, 3, 3, 41])
    for rows in (mapped, KeptRows(mapped.whole())):
        some = rows.some(index)
        assert some.shape == (4, 40)
        torch.testing.assert_close(some.whole(), mapped.whole()[index], rtol=0, atol=1e-14)
        torch.testing.assert_close(torch.cat(list(some.blocks())), mapped.whole()[index], rtol=0, atol=1e-14)
