"""The trips of a secure sum between a coordinator and clients with identities, in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import QuorumNotMetError, SecureSumError
from kernfed.federation.cohort import Cohort
from kernfed.federation.exchange import Call, Exchange, Fault
from kernfed.federation.in_process import InProcessExchange
from kernfed.federation.messages.base import R, Reply
from kernfed.federation.messages.sums import SumDealRequest, SumKeys, SumMember, SumTerms
from kernfed.federation.quorum import Quorum
from kernfed.jobs.secure_sum_section import SecureSumSection
from kernfed.methods.ridge.masked_messages import (
    MaskedSolveRequest,
)
from kernfed.methods.ridge.messages import (
    LocalModel,
    LocalSolveRequest,
)
from kernfed.pki.folder import key_sha256, read_pair
from kernfed.pki.identity import Identity, Role
from kernfed_client.data.step_memory import StepMemory
from kernfed_client.steps import sums
from kernfed_client.sums.once import Once
from kernfed_client.sums.site import OpenSums, SumSeats, SumSite
from kernfed_server.federation.secure_sum import SecureMean, secure_mean
from kernfed_server.jobs.journal import Checkpoint, MemoryJournal
from kernfed_server.jobs.run import Run
from kernfed_testing.identities import Identities, make_identities

pytestmark = pytest.mark.redteam

JOB = "job-1"
NAMES = ("ann", "bob", "cat", "dan")
WEIGHTS = {"ann": 30.0, "bob": 50.0, "cat": 20.0, "dan": 40.0}
MODELS = {name: np.random.default_rng(i).normal(size=(3, 2)) for i, name in enumerate(NAMES)}
STEP = MaskedSolveRequest.step
BITE: Callable[[Any], Any] = lambda message: message  # noqa: E731  # a tamper that does nothing


@pytest.fixture(scope="module")
def ids(tmp_path_factory: pytest.TempPathFactory) -> Identities:
    return make_identities(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def folders(ids: Identities) -> dict[str, Path]:
    return {name: ids.make(Role.CLIENT, name) for name in NAMES}


class Site(StepMemory):
    """A client's job, as far as secure sums need one."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.client = name


@dataclass
class Wire(Exchange):
    """An exchange that loses answers and changes what passes."""

    inner: Exchange
    lost: Mapping[str, set[str]] = field(default_factory=dict)
    """Clients by the step whose question does not reach them."""
    late: Mapping[str, set[str]] = field(default_factory=dict)
    """Clients by the step whose answer is lost."""
    change: Callable[[Any], Any] = BITE
    """Of each request."""
    masks: bool = True

    async def ask(self, call: Call[R]) -> Mapping[str, R | Fault]:
        """See `Exchange.ask`."""
        step = call.request.step
        there = tuple(c for c in call.clients if c not in self.lost.get(step, ()))
        own = None if call.own is None else {c: call.own[c] for c in there}
        asked = replace(call, clients=there, own=own, request=self.change(call.request))
        outcomes = await self.inner.ask(asked)
        return {c: o for c, o in outcomes.items() if c not in self.late.get(step, ())}


def solve(job: Site, request: LocalSolveRequest) -> Reply:
    """A client's model."""
    del request
    return LocalModel(num_rows=1, weights=MODELS[job.client])


@dataclass
class World:
    """Clients with state folders, and what a coordinator remembers."""

    root: Path
    folders: Mapping[str, Path]
    policy: Mapping[str, SecureSumSection] = field(default_factory=dict)
    peers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    sites: dict[str, Site] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.folders:
            self.start(name)

    def start(self, name: str) -> None:
        """Begin a life of a client: what is in memory is lost, and its state folder is not."""
        site = self.sites[name] = Site(name)
        policy, peers = self.policy.get(name, SecureSumSection()), self.peers.get(name, {})
        once = Once(self.root / name)
        site.memory(SumSeats).sums = SumSite(lambda: Identity.load(self.folders[name]), policy, peers, once).of_job(JOB)

    def mean(
        self,
        resumed: Checkpoint | None = None,
        *,
        weights: Mapping[str, float] = WEIGHTS,
        bound: float = 16.0,
        float_bits: int = 64,
        journal: MemoryJournal | None = None,
        **wire: Any,
    ) -> SecureMean:
        """The weighted mean of the clients' models."""
        steps: dict[Any, Any] = {**sums.STEPS, MaskedSolveRequest: sums.masked(solve)}
        exchange = Wire(InProcessExchange(steps, self.sites), **wire)
        cohort = Cohort(exchange, self.sites, job_id=JOB, quorum=Quorum(1, 0.5), float_bits=float_bits)
        cohort.enter_round(1)
        run = Run(cohort, journal or MemoryJournal(), resumed)
        inner = LocalSolveRequest(ridge=0.1, num_features=3, num_outputs=2)

        def ask(terms: SumTerms) -> MaskedSolveRequest:
            return MaskedSolveRequest(terms=terms, inner=inner)

        return asyncio.run(secure_mean(cohort, run, 1, ask, weights, bound))

    def opened(self, names: tuple[str, ...] = NAMES, **settings: Any) -> SecureMean:
        """The same without masks, as a simulation forms it."""
        other = World(self.root / "open", {name: self.folders[name] for name in names})
        for site in other.sites.values():
            site.memory(SumSeats).sums = OpenSums()
        return other.mean(masks=False, **settings)


@pytest.fixture
def world(tmp_path: Path, folders: dict[str, Path]) -> World:
    return World(tmp_path, folders)


def plain(names: tuple[str, ...]) -> np.ndarray[Any, Any]:
    """The mean by definition."""
    whole = sum(WEIGHTS[n] for n in names)
    total: np.ndarray[Any, Any] = np.sum([WEIGHTS[n] / whole * MODELS[n] for n in names], axis=0)
    return total


@pytest.mark.parametrize("float_bits", [64, 32])
def test_masked_and_open_sums_have_the_same_bits(world: World, float_bits: int) -> None:
    """Under masks and without them the mean is the same to the bit, and that of the models."""
    found = world.mean(float_bits=float_bits).arrays["weights"]
    assert np.array_equal(found, world.opened(float_bits=float_bits).arrays["weights"])
    assert np.abs(found - plain(NAMES)).max() < 1e-15


@pytest.mark.parametrize("step", ["sums.keys", "sums.deal", STEP])
@pytest.mark.parametrize("how", ["lost", "late"])
def test_a_client_that_is_lost_is_left_out(world: World, step: str, how: str) -> None:
    """Whether the question or the answer is lost, in any trip before the last, the mean is that of the others."""
    where = {step: {"bob"}}
    found = world.mean(lost=where) if how == "lost" else world.mean(late=where)
    others = ("ann", "cat", "dan")
    assert found.included == others
    assert np.abs(found.arrays["weights"] - plain(others)).max() < 1e-15


def test_a_client_that_is_lost_in_the_last_trip_counts(world: World) -> None:
    """The others take its masks away."""
    found = world.mean(lost={"sums.unmask": {"bob"}})
    assert np.array_equal(found.arrays["weights"], world.opened().arrays["weights"])


def test_too_few_for_the_threshold_end_the_sum(world: World) -> None:
    """Of four clients three are needed, whatever the quorum says; nothing is told of two."""
    with pytest.raises(QuorumNotMetError, match=f"{STEP}: 2 of 3"):
        world.mean(lost={STEP: {"bob", "dan"}})
    with pytest.raises(QuorumNotMetError, match=r"sums\.unmask: 2 of 3"):
        world.mean(lost={"sums.unmask": {"bob", "dan"}})


def test_a_coordinator_that_starts_again_sums_over_the_same(world: World) -> None:
    """Killed before the last trip, it asks those of then alone; the bits are those of then, and all must be there."""
    journal = MemoryJournal()
    first = world.mean(journal=journal, late={STEP: {"bob"}})
    again = world.mean(journal.last)
    assert again.included == first.included == ("ann", "cat", "dan")
    assert np.array_equal(again.arrays["weights"], first.arrays["weights"])
    with pytest.raises((QuorumNotMetError, SecureSumError)):
        world.mean(journal.last, lost={STEP: {"cat"}})


def test_a_client_helps_with_one_set_over_its_lives(world: World) -> None:
    """A coordinator that forgot, or lies, gets no sum of another set or with other weights, after restarts too."""
    world.mean(lost={STEP: {"bob"}})
    for name in NAMES:
        world.start(name)
    with pytest.raises(QuorumNotMetError, match="REFUSED_BY_POLICY: this client helped to unmask the same sum over"):
        world.mean()
    with pytest.raises(QuorumNotMetError, match="with other weights"):
        world.mean(weights={**WEIGHTS, "ann": 31.0}, lost={STEP: {"bob"}})
    world.mean(lost={STEP: {"bob"}})


def test_a_client_that_started_again_is_lost(world: World) -> None:
    """Its secrets were in memory: between keys and its term it drops out, and the others go on."""

    def restart(request: Any) -> Any:
        if request.step == STEP:
            world.start("bob")
            site = world.sites["bob"]
            exchange_sites["bob"] = site
        return request

    exchange_sites = world.sites
    assert world.mean(change=restart).included == ("ann", "cat", "dan")


def test_numbers_beyond_the_bound_leave_their_client_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses with the reason, and sends nothing."""
    monkeypatch.setitem(MODELS, "cat", MODELS["cat"] * 1e6)
    assert world.mean().included == ("ann", "bob", "dan")


def test_a_size_cannot_be_asked_by_halves(world: World) -> None:
    """A bound between the steps of exponents is refused by who is asked, whatever its numbers are."""

    def near(request: Any) -> Any:
        terms = getattr(request, "terms", None)
        return request if terms is None else replace(request, terms=replace(terms, exponent=9))

    with pytest.raises(QuorumNotMetError, match=r"cat: SECURE_SUM_FAILED: the bound of this secure sum is 2\^9, w"):
        world.mean(change=near)


def test_a_sum_that_is_nearly_one_term_is_refused(world: World) -> None:
    """A client whose weight is more than nine tenths sends nothing."""
    with pytest.raises(QuorumNotMetError, match=r"cat: REFUSED_BY_POLICY: \d+% of the weight"):
        world.mean(weights={**WEIGHTS, "cat": 4000.0}, lost={STEP: {"ann"}})


def _with_keys(member: SumMember, **changed: Any) -> SumMember:
    return replace(member, keys=replace(member.keys, **changed))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: _with_keys(m, mask_key="11" * 32), "the keys of cat for this secure sum are not signed by cat"),
        (lambda m: _with_keys(m, mask_key="zz"), "the keys of cat in this secure sum are not in hexadecimal digits"),
        (lambda m: _with_keys(m, certificate="x"), "the certificate of cat in this secure sum is none"),
        (lambda m: replace(m, client="eve"), "eve is to take part in this secure sum by the certificate of client/cat"),
    ],
)
def test_clients_name_a_member_that_the_coordinator_changed(
    world: World, change: Callable[[SumMember], SumMember], words: str
) -> None:
    """Keys, certificates and names that were changed on the way to the others are refused, by name."""

    def bent(request: Any) -> Any:
        if not isinstance(request, SumDealRequest):
            return request
        return replace(request, members=tuple(change(m) if m.client == "cat" else m for m in request.members))

    with pytest.raises(QuorumNotMetError, match=words):
        world.mean(change=bent)


def test_a_certificate_of_another_ca_is_refused(world: World, tmp_path: Path) -> None:
    """A client with a certificate that the federation's CA did not sign is named by the others."""
    (tmp_path / "other").mkdir()
    strange = make_identities(tmp_path / "other").make(Role.CLIENT, "cat")
    world.folders = {**world.folders, "cat": strange}
    world.start("cat")
    with pytest.raises(QuorumNotMetError, match="certificate of cat in this secure sum is not of this federation's CA"):
        world.mean()


def test_peers_that_were_accepted(tmp_path: Path, folders: dict[str, Path]) -> None:
    """Accepted sites count towards min_peers, in every trip; another key than the accepted one is refused."""
    key = {n: key_sha256(read_pair(folders[n]).certificate.public_key()) for n in NAMES}  # type: ignore[arg-type]
    two = {"ann": SecureSumSection(min_peers=2)}
    good = World(tmp_path / "1", folders, two, {"ann": {"bob": key["bob"], "cat": key["cat"]}})
    assert good.mean().included == NAMES
    with pytest.raises(QuorumNotMetError, match="ann: REFUSED_BY_POLICY: 1 of the other sites"):
        World(tmp_path / "2", folders, two, {"ann": {"bob": key["bob"], "cat": key["cat"]}}).mean(late={STEP: {"cat"}})
    found = World(tmp_path / "3", folders, two, {"ann": {"bob": key["bob"]}}).mean()
    assert found.included == ("bob", "cat", "dan")
    found = World(tmp_path / "4", folders, {}, {"ann": {"bob": key["cat"]}}).mean()
    assert found.included == ("bob", "cat", "dan")


def test_a_client_that_lies_in_its_keys_is_left_out(world: World) -> None:
    """Keys that are none, or whose signature is another's, leave their client out before the others are told."""
    seats = world.sites["bob"].memory(SumSeats)
    honest = seats.site

    class Lying:
        def keys(self, sum_id: str) -> SumKeys:
            return replace(honest.keys(sum_id), signature="00")

    original = SumSeats.site
    try:
        SumSeats.site = property(lambda self: Lying() if self is seats else original.fget(self))  # type: ignore
        assert world.mean().included == ("ann", "cat", "dan")
    finally:
        SumSeats.site = original  # type: ignore[method-assign]
