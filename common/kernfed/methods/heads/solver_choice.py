"""Which solver a job takes, from sizes and memory, with the reason in words."""

from __future__ import annotations

from dataclasses import dataclass

from kernfed.methods.heads.messages import HeadLoss, HeadSolver
from kernfed.methods.heads.solver_sizes import exact_bytes, exact_matrix, exact_operations, product_operations

EXPECTED_ITERATIONS = 50
"""Hessian-vector products that conjugate gradients are expected to take with the default damping and tolerance."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A solver, and why."""

    solver: HeadSolver
    reason: str


def choose_solver(
    loss: HeadLoss, num_rows: int, num_features: int, num_outputs: int, memory_bytes: int, max_bytes: int
) -> Choice:
    """Take the exact solver where its matrix fits and costs less than the products of conjugate gradients.

    Args:
        loss: Of the head.
        num_rows: Rows of the largest client.
        num_features: D.
        num_outputs: C.
        memory_bytes: What the client with the least memory may use.
        max_bytes: What the job allows.
    """
    limit = min(memory_bytes, max_bytes)
    needed = exact_bytes(loss, num_rows, num_features, num_outputs)
    rows = exact_matrix(loss, num_rows, num_features, num_outputs)
    what = f"an exact step factors a matrix of {rows} rows ({needed / 2**20:.0f} MiB)"
    if needed > limit:
        return Choice(HeadSolver.CG, f"{what}, more than the {limit / 2**20:.0f} MiB that may be used")
    exact = exact_operations(loss, num_rows, num_features, num_outputs)
    iterated = EXPECTED_ITERATIONS * product_operations(num_rows, num_features, num_outputs)
    cost = f"about {exact:.1e} operations against {iterated:.1e} of {EXPECTED_ITERATIONS} Hessian-vector products"
    if exact > iterated:
        return Choice(HeadSolver.CG, f"{what} and takes {cost}")
    return Choice(HeadSolver.EXACT, f"{what}, which fits, and takes {cost}")
