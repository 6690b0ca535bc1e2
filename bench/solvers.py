"""Time of a local Newton step by each solver, against the orders of the FedNewton paper's Table 2; the feature cache.

The number of parameters d C is doubled from column to column at fixed rows and outputs. A solver of order d^k takes
2^k times as long: exact up to 3 (2 while rows outnumber parameters), the others 1. A GPU's rows are added where there
is one.
"""

from __future__ import annotations

import logging
import math
import tempfile
from pathlib import Path

import numpy as np
import structlog
import torch
from timing import best

from kernfed.methods.heads.lbfgs import History
from kernfed.methods.heads.messages import HeadLoss, HeadSolver
from kernfed.methods.heads.solver_sizes import exact_bytes
from kernfed.methods.heads.tensors.losses import Head
from kernfed.methods.heads.tensors.solvers.interface import Limits
from kernfed.methods.heads.tensors.solvers.solve import solve
from kernfed_client.data.reading.feature_cache import FeatureCache

ROWS, OUTPUTS = 2000, 10
SIZES = (32, 64, 128, 256)
LIMITS = Limits(tolerance=0.0, max_iterations=10, rank=10)
ORDERS = {"exact": "d³", "cg": "K d", "lanczos": "k d", "diagonal": "d", "fisher": "d", "lbfgs": "m d"}


def step_seconds(solver: str, num_features: int, device: str) -> float:
    """Seconds of one step on softmax with `num_features` features; NaN where the matrix is refused."""
    random = np.random.default_rng(0)
    z = torch.as_tensor(random.standard_normal((ROWS, num_features)), device=device)
    y = torch.as_tensor(np.eye(OUTPUTS)[random.integers(OUTPUTS, size=ROWS)], device=device)
    head = Head(HeadLoss.SOFTMAX, z, y, 1e-4)
    w = torch.zeros(num_features, OUTPUTS, dtype=torch.float64, device=device)
    g = head.gradient(w)
    if solver == "lbfgs":
        history = History(5)
        for _ in range(5):
            s = random.standard_normal((num_features, OUTPUTS))
            history = history.add(s, 0.5 * s)
        gradient = g.cpu().numpy()

        def recursion() -> object:
            q, coefficients = history.first_half(gradient)
            return history.second_half(q, coefficients)

        return best(recursion)
    if solver == "exact" and exact_bytes(HeadLoss.SOFTMAX, ROWS, num_features, OUTPUTS) > LIMITS.max_bytes:
        return math.nan

    def step() -> object:
        found = solve(HeadSolver(solver), head.hessian(w).with_damping(0.1), g, LIMITS)
        return found.value.cpu()

    return best(step, 1 if solver == "exact" else 3)


def solvers(device: str) -> None:
    """Print a table of milliseconds, and the measured order from the smallest to the largest size."""
    print(f"\n{device}: one step, {ROWS} rows, {OUTPUTS} outputs, ms; 10 products for cg, 10 eigenvectors for lanczos")
    print(f"{'solver':<10}{'Table 2':>9}" + "".join(f"{f'd {OUTPUTS * size}':>10}" for size in SIZES) + f"{'order':>8}")
    for solver, order in ORDERS.items():
        times = [step_seconds(solver, size, device) for size in SIZES]
        slope = math.log2(times[-1] / times[0]) / (len(times) - 1)
        print(f"{solver:<10}{order:>9}" + "".join(f"{1e3 * t:>10.2f}" for t in times) + f"{slope:>8.1f}")


def cache() -> None:
    """Print what a hit of the feature cache costs, checks included, beside a small network's pass."""
    features = np.random.default_rng(0).standard_normal((10_000, 512)).astype(np.float32)
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3, stride=2), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4))
    images = torch.zeros(500, 3, 64, 64)
    with tempfile.TemporaryDirectory(prefix="kernfed-bench-") as folder, torch.inference_mode():
        kept = FeatureCache(Path(folder), 1 << 30)
        kept.put("key", features)
        hit = best(lambda: kept.get("key"))
        computed = best(lambda: network(images), 1) * 20
    size = features.nbytes / 2**20
    print(f"\nfeature cache: 10,000 x 512 ({size:.0f} MiB) checked and read in {1e3 * hit:.0f} ms; one convolution of")
    print(
        f"10,000 small images takes {1e3 * computed:.0f} ms ({computed / hit:.0f} times as long), a whole network more"
    )


def main() -> None:
    """Print the tables."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    solvers("cpu")
    if torch.cuda.is_available():
        solvers("cuda")
    else:
        print("no CUDA device: its rows are left out")
    cache()


if __name__ == "__main__":
    main()
