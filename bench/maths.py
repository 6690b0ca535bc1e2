"""Throughput of the feature map and of the factorisation, beside the plain way to do the same, in one run."""

from __future__ import annotations

import numpy as np
import scipy.linalg
import torch
from timing import best

from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, draw_frequencies, make_spec
from kernfed.tensors.feature_maps import FeatureMap
from kernfed.tensors.ridge import LocalRidge


def main() -> None:
    """Print the table."""
    rows, columns, features, outputs = 20_000, 20, 1000, 3
    generator = np.random.default_rng(0)
    x = generator.standard_normal((rows, columns))
    y = generator.standard_normal((rows, outputs))
    spec = make_spec(Kernel.GAUSSIAN, FeatureForm.COSINE, columns, (1.0,), features, 1)
    drawn = draw_frequencies(spec)
    phi = FeatureMap(spec)
    x_torch = torch.from_numpy(x)
    out = torch.empty(rows, features, dtype=torch.float64)
    z = phi(x_torch)
    z_numpy, y_torch = z.numpy(), torch.from_numpy(y)

    def plain_map() -> object:
        return np.sqrt(2 / features) * np.cos(x @ drawn.omega.T + drawn.phase)

    def plain_solve() -> object:
        gram = z_numpy.T @ z_numpy / rows + 1e-3 * np.eye(features)
        return scipy.linalg.solve(gram, z_numpy.T @ y / rows, assume_a="pos")

    ridge = LocalRidge(z, y_torch, 1e-3)
    ridge.solve()
    gradient = ridge.gradient(torch.zeros(features, outputs, dtype=torch.float64))
    work = [
        ("feature map", best(lambda: phi(x_torch, out)), best(plain_map), f"{rows * features / 1e6:.0f} M features"),
        ("factor and solve", best(lambda: LocalRidge(z, y_torch, 1e-3).solve()), best(plain_solve), f"M {features}"),
        ("a further Newton step", best(lambda: ridge.newton_step(gradient)), best(plain_solve), "factor kept"),
    ]
    print(f"\n{'maths':<22} {'kernfed ms':>11} {'plain ms':>9} {'ratio':>7}")
    for name, ours, plain, note in work:
        print(f"{name:<22} {ours * 1e3:>11.1f} {plain * 1e3:>9.1f} {plain / ours:>7.1f}  {note}")
    per_second = rows * features / work[0][1] / 1e6
    print(f"feature map: {per_second:.0f} million features per second on {torch.get_num_threads()} threads")


if __name__ == "__main__":
    main()
