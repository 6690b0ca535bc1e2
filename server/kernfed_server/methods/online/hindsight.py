"""Regret against the best function in hindsight, measured after the last round of a job on streams."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kernfed.federation.cohort import Cohort
from kernfed.methods.online.dictionary import Dictionary
from kernfed.methods.online.finding import HindsightOfAll, OnlineFinding
from kernfed.methods.online.hindsight import BestFunction, Rates, Sums, best_function, theorem_2
from kernfed.methods.online.hindsight_messages import HindsightRequest
from kernfed.methods.online.losses import Loss
from kernfed.methods.online.messages import StreamMetrics
from kernfed.wording import listed
from kernfed_server.jobs.run import Run

_MOST_NUMBERS = 1 << 23
"""Of one client's answer."""


@dataclass(slots=True)
class InHindsight:
    """What the regret is measured against."""

    dictionary: Dictionary
    loss: Loss
    constant: bool = False
    """Whether each kernel has a constant among its features."""
    rates: Rates | None = None
    """Of the paper, where a job has them: Theorem 2 then says how large the regret is at most."""
    regrets: Mapping[str, float] = field(default_factory=dict)
    """Of each client, once it was measured."""
    found: HindsightOfAll | None = None

    async def measure(self, cohort: Cohort, run: Run, last: Mapping[str, StreamMetrics]) -> None:
        """Ask for sums over all rows that were learned, and find the best function.

        What leaves a client: Gram matrices and moments of all its rows by kernel (`sufficient_statistic`).

        Args:
            cohort: The clients.
            run: The job's run; it is told who has no rows any more.
            last: What clients measured behind the last round.
        """
        n, f = self.dictionary.num_kernels, self.dictionary.num_features + self.constant
        if self.loss is not Loss.SQUARED:
            run.note("the regret in hindsight is measured for the squared loss alone, so not in this job")
            return
        if n * f * (f + 1) // 2 > _MOST_NUMBERS:
            run.note(f"no regret in hindsight: {n} kernels of {f} features are too many numbers; lower either")
            return
        asked = cohort.ask(
            HindsightRequest(num_kernels=n, num_features=f), clients=sorted(last), drawn=True, optional=True
        )
        replies = await run.optional(asked, "no regret in hindsight")
        parts = {
            client: Sums(reply.gram, reply.moment, reply.square)
            for client, reply in replies.items()
            if reply.num_samples and reply.num_samples == last[client].sums.num_rows
        }
        if gone := sorted(set(last) - set(parts)):
            run.note(
                f"the regret in hindsight is without {listed(gone)}: the rows learned there are not kept, as of a "
                "stream that goes on, or were passed over, or the policy forbids it"
            )
        if parts:
            best = await asyncio.to_thread(best_function, parts)
            self._tell(parts, best, {client: last[client] for client in parts}, run)

    def _tell(self, parts: Mapping[str, Sums], best: BestFunction, last: Mapping[str, StreamMetrics], run: Run) -> None:
        self.regrets = {client: last[client].total_loss - loss for client, loss in best.losses.items()}
        rows = {client: last[client].sums.num_rows for client in best.losses}
        bound = None
        if self.rates is not None:
            own = {client: None if m.regret_bound < 0 else m.regret_bound for client, m in last.items()}
            bound = theorem_2(self.rates, parts, best, rows, run.round_num, own)
        self.found = HindsightOfAll(
            lengthscale=self.dictionary.lengthscales[best.kernel],
            rows=sum(rows.values()),
            loss=best.loss,
            regret=sum(self.regrets.values()),
            bound=bound,
        )

    def put_into(self, finding: OnlineFinding) -> OnlineFinding:
        """A finding with what was measured."""
        if self.found is None:
            return finding
        clients = {
            name: replace(of, hindsight_regret=self.regrets[name]) if name in self.regrets else of
            for name, of in finding.clients.items()
        }
        return replace(finding, clients=clients, hindsight=self.found)
