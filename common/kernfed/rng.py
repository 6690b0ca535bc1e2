"""Random numbers whose bits are the same on every platform and with every library version.

All draws come from the raw 64-bit words of Philox (Salmon et al., 2011), a counter-based generator whose
output numpy guarantees, keyed by SHA-256 of a seed and a path of names. Words become numbers through
operations that IEEE 754 rounds exactly (+ - * / sqrt, and frexp): no library logarithm or cosine, whose last
bits differ between machines, and no matrix product or reduction, whose order of summation does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from kernfed.arrays import Floats, Integers

Words = npt.NDArray[np.uint64]
_Convert = Callable[[Words], Floats]

_CHUNK = 1 << 15
"""Words turned into numbers at a time, so that temporaries stay in the cache."""

_LN2 = 0.6931471805599453
_SQRT_HALF = 0.7071067811865476
_ATANH = tuple(2.0 / (2 * k + 1) for k in range(11, -1, -1))
"""2 atanh(s) = s Σ_k 2 s^2k/(2k+1); with |s| ≤ 0.1716 the terms left out are below 2e-19 of the sum."""

# Wichura (1988), Algorithm AS241, PPND16: coefficients of rational functions, highest power first.
_CENTRE = (
    (
        2.5090809287301226727e3,
        3.3430575583588128105e4,
        6.7265770927008700853e4,
        4.5921953931549871457e4,
        1.3731693765509461125e4,
        1.9715909503065514427e3,
        1.3314166789178437745e2,
        3.3871328727963666080e0,
    ),
    (
        5.2264952788528545610e3,
        2.8729085735721942674e4,
        3.9307895800092710610e4,
        2.1213794301586595867e4,
        5.3941960214247511077e3,
        6.8718700749205790830e2,
        4.2313330701600911252e1,
        1.0,
    ),
)
_TAIL = (
    (
        7.74545014278341407640e-4,
        2.27238449892691845833e-2,
        2.41780725177450611770e-1,
        1.27045825245236838258e0,
        3.64784832476320460504e0,
        5.76949722146069140550e0,
        4.63033784615654529590e0,
        1.42343711074968357734e0,
    ),
    (
        1.05075007164441684324e-9,
        5.47593808499534494600e-4,
        1.51986665636164571966e-2,
        1.48103976427480074590e-1,
        6.89767334985100004550e-1,
        1.67638483018380384940e0,
        2.05319162663775882187e0,
        1.0,
    ),
)
_FAR_TAIL = (
    (
        2.01033439929228813265e-7,
        2.71155556874348757815e-5,
        1.24266094738807843860e-3,
        2.65321895265761230930e-2,
        2.96560571828504891230e-1,
        1.78482653991729133580e0,
        5.46378491116411436990e0,
        6.65790464350110377720e0,
    ),
    (
        2.04426310338993978564e-15,
        1.42151175831644588870e-7,
        1.84631831751005468180e-5,
        7.86869131145613259100e-4,
        1.48753612908506148525e-2,
        1.36929880922735805310e-1,
        5.99832206555887937690e-1,
        1.0,
    ),
)


class Stream:
    """A sequence of random numbers; each method takes the next words of it.

    Not safe for use by two threads at once; give each its own named stream.
    """

    def __init__(self, key: int) -> None:
        self._bits = np.random.Philox(key=key)

    def words(self, size: int) -> Words:
        """Draw `size` independent 64-bit words, shape (size,)."""
        raw: Words = self._bits.random_raw(size)
        return raw

    def uniform(self, *shape: int) -> Floats:
        """Draw uniforms in (0, 1): odd multiples of 2^-53, so never 0, never 1, symmetric about 1/2."""
        return self._numbers(shape, _uniform_from_words)

    def normal(self, *shape: int) -> Floats:
        """Draw standard normals by inversion, one word each."""
        return self._numbers(shape, _normal_from_words)

    def inverse_chi(self, size: int, degrees: int) -> Floats:
        """Draw 1/sqrt(mean of squares of `degrees` normals), shape (size,).

        A normal vector times one such number is multivariate Student-t with `degrees` degrees of freedom.
        """
        squares = np.zeros(size)
        normals = self.normal(size, degrees)
        for k in range(degrees):
            squares += normals[:, k] * normals[:, k]
        root: Floats = np.sqrt(degrees / squares)
        return root

    def permutation(self, size: int) -> Integers:
        """Draw a uniformly random order of 0 … size-1, shape (size,): the stable order of `size` words."""
        return np.argsort(self.words(size), kind="stable").astype(np.int64, copy=False)

    def integers(self, bound: int, size: int) -> Integers:
        """Draw integers uniform on 0 … bound-1, shape (size,), without modulo bias.

        Args:
            bound: From 1 to 2^63.
            size: How many.
        """
        if not 1 <= bound <= 2**63:
            raise ValueError(f"bound is {bound}, want 1 to 2^63")
        words = self.words(size)
        largest = np.uint64(2**64 - 2**64 % bound - 1)
        while (rejected := words > largest).any():
            words[rejected] = self.words(int(rejected.sum()))
        return (words % np.uint64(bound)).astype(np.int64)

    def _numbers(self, shape: tuple[int, ...], convert: _Convert) -> Floats:
        out = np.empty(shape)
        flat = out.reshape(-1)
        for start in range(0, flat.size, _CHUNK):
            part = flat[start : start + _CHUNK]
            part[...] = convert(self.words(part.size))
        return out


def stream(seed: int, *names: str) -> Stream:
    """Open the stream of a seed and a path of names; different paths are independent.

    Args:
        seed: Any integer.
        names: What the numbers are for, e.g. `"features", "omega"`. `("ab", "c")` and `("a", "bc")` differ.
    """
    digest = hashlib.sha256(f"{seed}".encode())
    for name in names:
        encoded = name.encode()
        digest.update(f"/{len(encoded)}:".encode() + encoded)
    return Stream(int.from_bytes(digest.digest()[:16], "little"))


def seed(root: int, *names: str, bound: int = 2**63) -> int:
    """Draw the seed that belongs to a path of names: the first integer of its stream.

    Args:
        root: The seed that it comes from, any integer.
        names: What the new seed is for, as in `stream`.
        bound: Seeds are uniform on 0 … bound-1.
    """
    return int(stream(root, *names).integers(bound, 1)[0])


def normal_quantile(p: Floats) -> Floats:
    """Compute the inverse of the standard normal distribution function, relative error about 1e-15.

    Args:
        p: Probabilities strictly between 0 and 1, any shape.

    Source: Wichura (1988), Algorithm AS241, routine PPND16.
    """
    q = p - 0.5
    central = np.abs(q) <= 0.425
    out = np.empty_like(p)
    qc = q[central]
    out[central] = qc * _ratio(_CENTRE, 0.180625 - qc * qc)
    qt = q[~central]
    pt = p[~central]
    r = np.sqrt(-natural_logarithm(np.where(qt < 0, pt, 1.0 - pt)))
    tail = np.where(r <= 5.0, _ratio(_TAIL, r - 1.6), _ratio(_FAR_TAIL, r - 5.0))
    out[~central] = np.where(qt < 0, -tail, tail)
    return out


def natural_logarithm(x: Floats) -> Floats:
    """Compute ln x for x > 0, within a few units in the last place (for x near 1, of 1 - x).

    x = m 2^e with m in [sqrt(1/2), sqrt 2): ln x = e ln 2 + 2 atanh((m - 1)/(m + 1)),
    the latter by its series.
    """
    m, e = np.frexp(x)
    small = m < _SQRT_HALF
    m = np.where(small, m + m, m)
    exponent = (e - small).astype(np.float64)
    s = (m - 1.0) / (m + 1.0)
    return exponent * _LN2 + s * _horner(_ATANH, s * s)


def _uniform_from_words(words: Words) -> Floats:
    odd = (words >> np.uint64(11)) | np.uint64(1)
    return odd.astype(np.float64) * 2.0**-53


def _normal_from_words(words: Words) -> Floats:
    return normal_quantile(_uniform_from_words(words))


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], r: Floats) -> Floats:
    return _horner(coefficients[0], r) / _horner(coefficients[1], r)


def _horner(coefficients: tuple[float, ...], x: Floats) -> Floats:
    # Separate ufuncs: a compiler cannot fuse the product and the sum into one rounding.
    value = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        value *= x
        value += c
    return value
