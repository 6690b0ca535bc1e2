"""Shared parts of both forms of FedNewton on a head: problem, settings, and the request for a local Newton step."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from kernfed.arrays import Array
from kernfed.methods.heads.lbfgs import History
from kernfed.methods.heads.messages import HeadSolver, HeadStep, HeadStepRequest
from kernfed.methods.heads.settings import NewtonSettings
from kernfed_server.jobs.run import Members
from kernfed_server.methods.heads.problem import HeadProblem

LBFGS = "lbfgs"
"""The solver that asks clients for no solves."""
SOLVERS: tuple[str, ...] = (LBFGS, *(solver.value for solver in HeadSolver))


@dataclass(frozen=True, slots=True)
class HeadTrainer:
    """A head's problem, and how clients solve with their Hessians."""

    problem: HeadProblem
    settings: NewtonSettings
    solver: str

    def step_request(self, weights: Array, direction: Array, damping: float) -> HeadStepRequest:
        """Ask for (H_j(W) + damping I)⁻¹ of a direction."""
        settings = self.settings
        return HeadStepRequest(
            ridge=self.problem.ridge,
            damping=damping,
            solver=HeadSolver(self.solver),
            tolerance=settings.solver_tolerance,
            max_iterations=settings.solver_iterations,
            rank=settings.rank,
            max_bytes=settings.max_solver_bytes,
            weights=weights,
            direction=direction,
        )

    def scale(self, history: History, damping: float, mean_curvature: float = 0.0) -> float:
        """Initial inverse curvature of L-BFGS: that of the newest pair, at first from the mean curvature."""
        return history.scale or 1.0 / (self.problem.ridge + max(damping, mean_curvature, 1e-12))

    async def newton_step(
        self, weights: Array, direction: Array, damping: float, members: Members
    ) -> tuple[Array, Members]:
        """Σ p_j (H_j(W) + damping I)⁻¹ of a direction, and over whom; says once where solves are cut short."""
        replies = await self.problem.ask(self.step_request(weights, direction, damping), members)
        return await self._mean_step(replies), tuple(replies)

    async def own_newton_steps(self, weights: Array, gradients: Mapping[str, Array], damping: float) -> Array:
        """Σ p_j (H_j(W) + damping I)⁻¹ g_j, each client's own gradient in the place of a common direction.

        Source: FedNewton paper, equation (7) as printed.
        """
        requests = {client: self.step_request(weights, g, damping) for client, g in gradients.items()}
        return await self._mean_step(await self.problem.ask_each(requests))

    async def _mean_step(self, replies: Mapping[str, HeadStep]) -> Array:
        if self.solver == HeadSolver.CG:
            self._note_cut_short(replies)
        mean = await asyncio.to_thread(self.problem.weighted, replies)
        return mean.newton_step

    def _note_cut_short(self, replies: Mapping[str, HeadStep]) -> None:
        settings, run = self.settings, self.problem.run
        short = {c: r for c, r in replies.items() if r.residual > settings.solver_tolerance}
        if not short or self.problem.noted_cut:
            return
        self.problem.noted_cut = True
        worst = max(short, key=lambda client: short[client].residual)
        reply = short[worst]
        why = (
            "solver_iterations is reached"
            if reply.iterations >= settings.solver_iterations
            else "rounding lets it fall no further"
        )
        run.note(
            f"cg stops short of the residual {settings.solver_tolerance:g} at {len(short)} of {len(replies)} clients, "
            f"worst at {worst}: {reply.residual:.3g} after {reply.iterations} iterations, as {why}. Such a step is a "
            "regularised one; more rounds may be needed"
        )

    @property
    def solver_number(self) -> Array:
        """The solver as a number, for checkpoints."""
        return np.array([SOLVERS.index(self.solver)])

    @property
    def validates(self) -> bool:
        """Whether any client keeps rows apart."""
        return sum(self.problem.validation_rows.values()) > 0

    def record(self, *, damping: float) -> None:
        """Put the damping into the job's record."""
        problem = self.problem
        problem.finding = replace(problem.finding, damping=damping)
        if self.settings.damping == "auto":
            problem.run.note(f"damping {damping:.4g}: the mean of the diagonal of the clients' Hessians")
        problem.run.publish(problem.finding)
