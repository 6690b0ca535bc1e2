"""Rounds of distillation beside refitting every client in every round; and the memory of a client with many rows.

The setting of the distillation paper: 50 clients of 10 rows, 490 public points, 200 rounds. Refitting solves the system
of own and public points anew, by one Cholesky factorisation per client and round. The large client takes some minutes.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import torch
from torch import Tensor

from kernfed.features.kernels import KernelSpec, PointKernel
from kernfed.maths.points.kernels import gram
from kernfed.methods.distill.consensus import Deregulariser, mean_predictions
from kernfed.methods.distill.tensors.distillation import DistilledRidge, kernel_ridge, memory_needed
from kernfed.tensors import kernels

SPEC = KernelSpec(PointKernel.WENDLAND, (1.0,), False)
RIDGE = 1e-2
CLIENTS, ROWS, PUBLIC, ROUNDS = 50, 10, 490, 200


def rounds() -> None:
    """Compare; both ways give the same consensus."""
    generator = torch.Generator().manual_seed(0)
    xs = [torch.rand(ROWS, 3, dtype=torch.float64, generator=generator) for _ in range(CLIENTS)]
    ys = [torch.randn(ROWS, 1, dtype=torch.float64, generator=generator) for _ in range(CLIENTS)]
    public = torch.rand(PUBLIC, 3, dtype=torch.float64, generator=generator)
    undo = Deregulariser(gram(SPEC, public.numpy()), RIDGE)
    own = mean_predictions([kernel_ridge(SPEC, x, y, RIDGE)(public).numpy() for x, y in zip(xs, ys, strict=True)])
    DistilledRidge(SPEC, xs[0], ys[0], public, RIDGE, 1 / CLIENTS)  # warm

    began = time.perf_counter()
    clients = [DistilledRidge(SPEC, x, y, public, RIDGE, 1 / CLIENTS) for x, y in zip(xs, ys, strict=True)]
    factored = time.perf_counter() - began
    v, few = own, 5
    kept = own
    began = time.perf_counter()
    for t in range(ROUNDS):
        w = torch.from_numpy(undo(v))
        v = mean_predictions([client.predict_public(w).numpy() for client in clients])
        if t == few - 1:
            kept = v
    ours = time.perf_counter() - began

    def refit(k: Tensor, y: Tensor, w: Tensor) -> Tensor:
        system = root * k * root.T
        system.diagonal().add_(RIDGE)
        solved = torch.cholesky_solve(root * torch.cat([y, w]), torch.linalg.cholesky(system))
        return k[ROWS:] @ (root * solved)

    shares = [1 / CLIENTS / ROWS] * ROWS + [(1 - 1 / CLIENTS) / PUBLIC] * PUBLIC
    root = torch.tensor(shares, dtype=torch.float64).sqrt()[:, None]
    points = [torch.cat([x, public]) for x in xs]
    grams = [kernels.gram(SPEC, p) for p in points]

    def refitted(keep_grams: bool) -> float:
        u = own
        began = time.perf_counter()
        for _ in range(few):
            w = torch.from_numpy(undo(u))
            ks = grams if keep_grams else (kernels.gram(SPEC, p) for p in points)
            u = mean_predictions([refit(k, y, w).numpy() for k, y in zip(ks, ys, strict=True)])
        assert abs(u - kept).max() < 1e-9, abs(u - kept).max()
        return (time.perf_counter() - began) / few

    began = time.perf_counter()
    for _ in range(ROUNDS):
        clients[0].predict_public(w)
    alone = (time.perf_counter() - began) / ROUNDS
    began = time.perf_counter()
    for _ in range(few):
        refit(kernels.gram(SPEC, points[0]), ys[0], w)
    refit_alone = (time.perf_counter() - began) / few

    again, kept_grams = refitted(False), refitted(True)
    print(f"\n{CLIENTS} clients of {ROWS} rows, {PUBLIC} public points; refitting: {few} rounds measured")
    print(f"  {'seconds':<38}{'kernfed':>10}{'refitting':>11}{'times':>8}")

    def show(what: str, mine: float, theirs: float) -> None:
        print(f"  {what:<38}{mine:>10.5f}{theirs:>11.4f}{theirs / mine:>8.0f}")

    show("a round of one client", alone, refit_alone)
    show("a round of all, one after the other", ours / ROUNDS, again)
    show("the same, Gram matrices kept", ours / ROUNDS, kept_grams)
    show(f"{ROUNDS} rounds, factoring included", factored + ours, again * ROUNDS)


def large(num_rows: int, num_public: int) -> None:
    """In a process of its own: own rows alone, then factor, one round, and the model."""
    generator = torch.Generator().manual_seed(0)
    x, public = (torch.rand(n, 3, dtype=torch.float64, generator=generator) for n in (num_rows, num_public))
    y = torch.randn(num_rows, 1, dtype=torch.float64, generator=generator)
    began = time.perf_counter()
    own = kernel_ridge(SPEC, x, y, RIDGE)(public)
    pretrained = time.perf_counter() - began
    client = DistilledRidge(SPEC, x, y, public, RIDGE, 0.5)
    factored = time.perf_counter() - began - pretrained
    began = time.perf_counter()
    found = client.predict_public(own)
    one_round = time.perf_counter() - began
    model = client.model(own)(public)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        json.dumps(
            {
                "pretrained_s": pretrained,
                "factored_s": factored,
                "round_s": one_round,
                "difference": float((model - found).abs().max()),
                "peak_bytes": peak,
            }
        )
    )


def show_large(num_rows: int, num_public: int) -> None:
    """Run `large`, and print what it needed."""
    command = [sys.executable, __file__, "--large-rows", str(num_rows), "--large-public", str(num_public)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600, check=True)
    found = json.loads(done.stdout)
    estimate = memory_needed(num_rows, num_public, 3, 1)
    print(f"\none client of {num_rows} rows, {num_public} public points")
    print(f"  own rows alone {found['pretrained_s']:.0f} s, factoring {found['factored_s']:.0f} s")
    print(f"  a round {found['round_s']:.4f} s; round and model differ by {found['difference']:.1e}")
    print(f"  peak memory of the process {found['peak_bytes'] / 2**30:.2f} GiB; estimate {estimate / 2**30:.2f} GiB")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a client of 4000 rows in place of 20000")
    parser.add_argument("--large-rows", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--large-public", type=int, default=2000, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.large_rows is not None:
        large(options.large_rows, options.large_public)
        return
    rounds()
    show_large(4000 if options.quick else 20_000, 2000)


if __name__ == "__main__":
    main()
