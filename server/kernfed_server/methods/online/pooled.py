"""Online learning on pooled statistics: ridges on the rows of all clients, made anew from their sums in each round."""

from __future__ import annotations

from collections.abc import Mapping

from kernfed.arrays import Array
from kernfed.errors import InvalidTensorError
from kernfed.federation.cohort import Cohort
from kernfed.methods.online.dictionary import Dictionary
from kernfed.methods.online.finding import OnlineFinding
from kernfed.methods.online.learner import Mixing
from kernfed.methods.online.own_model import LENGTHSCALES
from kernfed.methods.online.pooled_messages import PooledStep, PooledStepRequest
from kernfed.methods.online.pooled_ridge import KEEPS, PooledRidges, contradiction, unpack
from kernfed.methods.online.settings import OnlineSettings
from kernfed_server.jobs.run import Model, Run
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.jobs.state import Arrays, json_array
from kernfed_server.methods.online.agreed import Opened, parameters
from kernfed_server.methods.online.hindsight import InHindsight
from kernfed_server.methods.online.opening import draw_dictionary
from kernfed_server.methods.online.rounds import StreamLoop

_EVIDENCE = "evidence"


async def run_pooled(setup: Setup, settings: OnlineSettings, opened: Opened, cohort: Cohort, run: Run) -> Model | None:
    """Each round a client predicts its next rows, learns from them, and sends their statistics; it gets the ridges.

    What leaves a client, beside ranges at the start (`summary`) and sums of its errors (`metric`): the statistics of a
    round's rows (`sufficient_statistic`). Those of few rows tell much about them: `policy.min_rows` says how many they
    must stand for.
    """
    frequencies = opened.pooled_frequencies
    dictionary = await draw_dictionary(
        setup,
        settings,
        cohort,
        run,
        LENGTHSCALES,
        frequencies,
        mixing=Mixing.ADAPTIVE,
        bin_size=len(LENGTHSCALES),
        own_frequencies=frequencies,
        pooled=True,
        gradual=settings.experts in ("own", "evidence"),
        bounded=settings.experts == "own",
    )
    ridges = RidgeParameters(setup, settings, opened, dictionary, run)
    facts = OnlineFinding(
        method="online",
        rates=settings.rates,
        num_kernels=len(LENGTHSCALES),
        num_frequencies=frequencies,
        share="statistics",
        budget=None if settings.budget == "auto" else settings.budget,
        budget_unit=None if settings.budget == "auto" else settings.budget_unit,
    )
    return await StreamLoop(setup, settings, cohort, run, opened.rows).go(
        ridges, facts, InHindsight(dictionary, opened.loss, constant=True)
    )


class RidgeParameters:
    """The pooled ridges at the coordinator."""

    def __init__(
        self, setup: Setup, settings: OnlineSettings, opened: Opened, dictionary: Dictionary, run: Run
    ) -> None:
        """Begin without rows, or where a resumed run was."""
        self._setup, self._settings, self._opened = setup, settings, opened
        self._dictionary = dictionary
        self._run = run
        n, f = dictionary.num_kernels, dictionary.num_features + 1
        resumed = run.resumed
        self._ridges = PooledRidges.start(n, f) if resumed is None else PooledRidges.from_arrays(resumed)
        self._evidence: dict[str, float] = {} if resumed is None else resumed.json(_EVIDENCE)
        """What each client told last, see `PooledStep`."""
        self._theta = self._solved()

    def _solved(self) -> Array:
        return self._ridges.solve(self._settings.regularisation)

    def request(self, round_num: int, held: int, wait_s: float) -> PooledStepRequest:
        """See `online_rounds.Method.request`."""
        del held  # all parameters move in each round
        _, n, f = self._theta.shape
        return PooledStepRequest(
            round_num=round_num,
            num_kernels=n,
            num_features=f,
            theta=self._theta,
            rows=self._ridges.rows,
            evidence=sum(self._evidence[client] for client in sorted(self._evidence)),
            num_evident=len(self._evidence),
            batch_rows=self._settings.batch_rows,
            wait_s=wait_s,
        )

    def absorb(self, round_num: int, replies: Mapping[str, PooledStep]) -> None:
        """See `online_rounds.Method.absorb`."""
        del round_num
        f = self._theta.shape[2]
        factors: dict[str, Array] = {}
        for client, reply in replies.items():
            try:
                found = unpack(reply.factor, reply.num_samples, f)
                wrong = contradiction(found, reply.num_samples, self._opened.loss, self._opened.outlier_spans)
            except InvalidTensorError as err:
                wrong = str(err)
            if wrong:
                words = f"{client} sent statistics that its rows cannot have, which do not count: {wrong}"
                self._run.note_first(f"statistics of {client}", words)
            else:
                factors[client] = found
                self._evidence[client] = reply.evidence
        if factors:
            self._ridges = self._ridges.add(factors, {client: replies[client].num_samples for client in factors})
            self._theta = self._solved()

    def to_arrays(self) -> Mapping[str, Array]:
        """See `online_rounds.Method.to_arrays`."""
        return {**self._ridges.to_arrays(), _EVIDENCE: json_array(self._evidence)}

    def model(self, arrays: Arrays, round_num: int) -> Model:
        """See `online_rounds.Method.model`."""
        whole = PooledRidges.from_arrays(arrays).solve(self._settings.regularisation)[KEEPS.index(1.0)]
        theta, offset = whole[:, :-1].copy(), whole[:, -1].copy()
        return parameters(self._setup, self._opened, self._dictionary, theta, round_num, offset)
