"""What each client stated and sent so far, and what its later replies may therefore hold.

Three rules for every reply of every method. What a client stated at preparation binds it: counts of rows are those, and
sums fit them. And numbers that one client alone sends, far beyond those of all others, come from a fault or a foe: that
client is left out of the step, and named. Numbers that point another way than those of all others, which agree, may be
honest: they count, and their client is named.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernfed.arrays import GREATEST
from kernfed.errors import DivergedError, InvalidReplyError, InvalidTensorError, KernfedError
from kernfed.federation.apart import CHECK_UNITS, Loud, Odd, Opposed
from kernfed.federation.messages.base import FieldInfo, R, Reply, Request, Stated, fields_of
from kernfed.maths.aggregate import norm
from kernfed.maths.directions import FEWEST, compared, opposed
from kernfed.wording import listed

SPREAD = 1e6
"""How many times the largest number of all other clients one client's may be, where a method states no other rule."""

_TOLD = 0.5
"""The power of what clients' numbers may differ by from which on they are told of, though they count."""
_LEAST_TOLD = 30.0
"""Less is not told of: honest models differ by as much where clients have few rows and many."""
_LARGER = 3.0
"""The same of models, where what the job made of them is of no use."""
_TOLD_WITHOUT_LIMIT = 1e4
"""The same where a method judges numbers by rules of its own, and `spread` is infinite."""


@dataclass(frozen=True, slots=True)
class _Top:
    """The client of the largest numbers in a field of a step."""

    client: str
    size: float
    """Their norm."""
    known: float
    """The largest of any other client, now and before."""
    spread: float
    """How many times that it may be..."""
    told: float
    """...and from how many times on it is told of..."""
    larger: float
    """...and of a model that is of no use."""
    other: str
    """See `Loud.other`."""


class Ledger:
    """The books on the clients of one job.

    Attributes:
        spread: See `SPREAD`; squared where one other client alone is at hand to compare with.
    """

    def __init__(self) -> None:
        self.spread = SPREAD
        self._stated: dict[str, Stated] = {}
        self._largest: dict[tuple[str, str], dict[str, float]] = {}
        """Largest norm by step and field, and by client."""
        self._ever: dict[str, float] = {}
        """Largest norm of any step that is no preparation, by client."""
        self._loud: dict[str, Loud] = {}
        """Clients whose numbers were far beyond all others', and counted; for each where it was most so."""
        self.largest: Loud | None = None
        """The client whose models or directions were the most times as large as those of all others."""
        self._odd: dict[tuple[str, str], dict[str, Odd]] = {}
        """By step and field, and by client, of all that were compared."""
        self._opposed: dict[tuple[str, str], Opposed] = {}
        """By step and field, where there are two clients."""

    @property
    def num_rows(self) -> Mapping[str, int]:
        """Training rows of each client that stated them."""
        return {client: stated.num_rows for client, stated in self._stated.items()}

    @property
    def stated(self) -> Mapping[str, Stated]:
        """What each client stated."""
        return self._stated

    def register(self, stated: Mapping[str, Stated]) -> None:
        """Keep what clients stated; replies that contradict it are refused from now on."""
        for client, new in stated.items():
            known = self._stated.get(client)
            if new.num_test_rows is None and known is not None:
                new = replace(new, num_test_rows=known.num_test_rows)
            self._stated[client] = new

    def accept(self, client: str, reply: Reply, float_bits: int) -> None:
        """Check a reply by itself, and against what its client stated.

        Raises:
            InvalidReplyError: It contradicts that, or itself, or holds numbers beyond `GREATEST`.
            InvalidTensorError: Its numbers are less precise than the job asks for.
        """
        name = type(reply).__name__
        stated = self._stated.get(client, Stated())
        for field, known, what in (
            ("num_rows", stated.num_rows if client in self._stated else None, "training"),
            ("num_test_rows", stated.num_test_rows, "test"),
        ):
            rows = getattr(reply, field, None)
            if rows is not None and known is not None and rows != known:
                raise InvalidReplyError(f"{name}.{field} is {rows}, but {client} stated {known} {what} rows before")
        for problem in reply.contradictions(stated):
            raise InvalidReplyError(f"{name}: {problem}")
        for f, value in _numbers(reply):
            bits = 64 if f.exact else float_bits
            if isinstance(value, np.ndarray) and value.dtype.itemsize * 8 < bits:
                raise InvalidTensorError(
                    f"{name}.{f.name} is {value.dtype}, but the job asks for float{bits}; "
                    "install the same release of kernfed at client and coordinator"
                )

    def refused(
        self,
        asked: Callable[[str], Request[R]],
        replies: Mapping[str, R],
        refusing: Callable[[str, R], Iterable[str]] = lambda *_: (),
        *,
        moves: bool = True,
    ) -> dict[str, KernfedError]:
        """Clients whose replies cannot be answers to what they were asked, or are far beyond those of the others.

        Args:
            asked: Client to its request.
            replies: By client, to requests of one type.
            refusing: (client, reply) -> why it cannot be, by what the caller knows of the client.
            moves: As of `outliers`.
        """
        found: dict[str, KernfedError] = {}
        for client, reply in replies.items():
            for problem in (*asked(client).refusals(reply), *refusing(client, reply)):
                found[client] = InvalidReplyError(f"{type(reply).__name__}: {client} {problem}")
        left = {client: reply for client, reply in replies.items() if client not in found}
        return found | (self.outliers(asked(next(iter(left))), left, moves=moves) if left else {})

    def outliers(self, request: Request[R], replies: Mapping[str, R], *, moves: bool = True) -> dict[str, KernfedError]:
        """Clients whose numbers are beyond use, or far beyond those of all others in this step, now and before.

        Numbers of one kind are compared by their norm: one field of one reply. A field may tend to 0 over the rounds,
        so what others sent in earlier rounds counts as well; and nobody is left out for numbers that are no larger than
        the largest that another client sent in any step after the preparation, unless they are models. Where most
        clients are far beyond the others, none of them is at fault: the iteration diverges.

        Args:
            request: What was asked.
            replies: By client.
            moves: Whether a model is made of them; else they are of one that is done, and near an optimum the
                directions of honest clients are against each other.

        Returns:
            For each the error that says so. What it sent is not remembered.
        """
        every = {client: _sizes(reply) for client, reply in replies.items()}
        found: dict[str, KernfedError] = {}
        name = request.reply.__name__
        beyond = {client: field for client, own in every.items() for field, size in own.items() if size > GREATEST}
        error = DivergedError if len(beyond) == len(every) > 1 else InvalidReplyError
        for client, field in beyond.items():
            remedy = CHECK_UNITS if error is InvalidReplyError else "those of every client"
            found[client] = error(f"{name}.{field} holds numbers beyond {GREATEST:g}; {remedy}")
        told = request.reply.diagnostics
        sizes = {client: {f: s for f, s in own.items() if f not in told} for client, own in every.items()}
        for field in next(iter(sizes.values()), {}):
            while far := self._too_far(request, field, {c: own for c, own in sizes.items() if c not in found}):
                found[far.client] = InvalidReplyError(
                    f"{name}.{field} has norm {far.size:.3g}, {far.size / far.known:.2g} times the largest of any "
                    f"other client; {far.spread:.3g} times is the most that may be; {CHECK_UNITS}"
                )
            self._listen(request, field, {c: own for c, own in sizes.items() if c not in found})
        if len(found) < len(sizes) < 2 * len(far_off := sorted(found)):
            rest = listed(sorted(sizes.keys() - found.keys()))
            words = (
                f"{name}: the numbers of most clients ({listed(far_off)}) lie far beyond those of {rest}: the "
                f"iteration diverges, of itself or by what {rest} sent before"
            )
            found |= {client: DivergedError(words) for client in far_off}
        for client in sizes.keys() - found.keys():
            for field, size in sizes[client].items():
                largest = self._largest.setdefault((request.step, field), {})
                largest[client] = max(largest.get(client, 0.0), size)
                if not request.setup:
                    self._ever[client] = max(self._ever.get(client, 0.0), size)
        if moves:
            self._compare(request, {client: reply for client, reply in replies.items() if client not in found})
        return found

    def discount(self, client: str, step: str) -> None:
        """Take note that what a client sent in a step does not count after all."""
        if client in self._loud and self._loud[client].step == step:
            del self._loud[client]
        if self.largest is not None and (self.largest.client, self.largest.step) == (client, step):
            self.largest = None

    @property
    def loudest(self) -> Loud | None:
        """The client whose numbers were the farthest beyond all others', and counted."""
        return max(self._loud.values(), key=lambda loud: loud.times, default=None)

    @property
    def odd(self) -> list[Odd]:
        """Clients whose numbers counted, and stood out at least every other time; of each what did so most often."""
        found: dict[str, Odd] = {}
        for clients in self._odd.values():
            for client, odd in clients.items():
                if odd.stands_out and (client not in found or odd.times > found[client].times):
                    found[client] = odd
        return [found[client] for client in sorted(found)]

    @property
    def opposed(self) -> Opposed | None:
        """The two clients of a job, if what first moved its model pointed against each other each time."""
        first = next(iter(self._opposed.values()), None)
        return first if first is not None and first.times == first.looks else None

    def _compare(self, request: Request[R], replies: Mapping[str, R]) -> None:
        """Remember the client whose directions point another way than those of all others, or are much longer."""
        two = len(replies) == len(self._stated) == 2  # with more, the others tell who is odd
        begun = any(odd.looks for clients in self._odd.values() for odd in clients.values())
        for field in request.reply.directions if two or len(replies) >= FEWEST else ():
            arrays = {client: getattr(reply, field) for client, reply in replies.items()}
            begins = getattr(request, field, None)
            before = begins if isinstance(begins, np.ndarray) else None
            if len({array.shape for array in arrays.values()}) > 1:
                continue
            place, what = (request.step, field), f"{request.reply.__name__}.{field}"
            if two:
                pair = self._opposed.setdefault(place, Opposed(tuple(arrays), request.step, what))
                pair.looks += 1
                one, other = arrays.values()
                pair.times += opposed(one, other, before)
                continue
            rows = [self._rows(client) for client in arrays]
            reach = [request.reach(num) for num in rows]
            found = compared(list(arrays.values()), before, reach=reach, weights=rows, begun=begun)
            of_field = self._odd.setdefault(place, {})
            for client in arrays:
                odd = of_field.setdefault(client, Odd(client, request.step, what))
                odd.looks += 1
                odd.of += found.tells
            if found.odd is None:
                continue
            odd = of_field[list(arrays)[found.odd.index]]
            odd.times += 1
            odd.against += found.odd.against
            odd.longer = max(odd.longer, found.odd.longer)

    def _top(self, request: Request[R], field: str, sizes: Mapping[str, Mapping[str, float]]) -> _Top | None:
        """The client of the largest numbers, now, beside the others, now and before.

        None: they sent nothing but 0, or nobody is left whose numbers are of use.
        """
        if not sizes:
            return None
        others = dict(self._largest.get((request.step, field), {}))
        for client, own in sizes.items():
            others[client] = max(others.get(client, 0.0), own[field])
        top = max(sizes, key=lambda client: sizes[client][field])
        others.pop(top, None)
        beside = max(others, key=lambda client: others[client], default="")
        if not others.get(beside, 0.0) > 0:
            return None
        spread = self.spread
        if field in request.reply.models:
            spread = min(spread, request.models_differ(self._rows(top) / self._rows(beside)))
        further = max(1.0, request.reach(self._rows(top)) / request.reach(self._rows(beside)))
        told = max(_LEAST_TOLD, spread**_TOLD) * further if math.isfinite(spread) else _TOLD_WITHOUT_LIMIT
        alone = len(others) == 1  # nobody knows which of the two is far off
        power = 2 if alone else 1
        larger = _LARGER * further
        return _Top(top, sizes[top][field], others[beside], spread**power, told**power, larger, beside if alone else "")

    def _rows(self, client: str) -> int:
        stated = self._stated.get(client)
        return 1 if stated is None else max(1, stated.num_rows)

    def _too_far(self, request: Request[R], field: str, sizes: Mapping[str, Mapping[str, float]]) -> _Top | None:
        """The client whose numbers are the largest, if they are so by more than may be."""
        top = self._top(request, field, sizes)
        if top is None:
            return None
        of_models = field in request.reply.models
        ever = [size for client, size in self._ever.items() if client != top.client and not of_models]
        return top if top.size > max([top.known * top.spread, *ever]) else None

    def _listen(self, request: Request[R], field: str, sizes: Mapping[str, Mapping[str, float]]) -> None:
        """Remember a client whose numbers count, and are far beyond the others' all the same."""
        top = self._top(request, field, sizes)
        if top is None or top.size <= top.known * top.larger:
            return
        what, of_model = f"{request.reply.__name__}.{field}", field in request.reply.models
        loud = Loud(top.client, request.step, what, top.size / top.known, top.other, of_model)
        moves = of_model or field in request.reply.directions
        if moves and (self.largest is None or loud.times > self.largest.times):
            self.largest = loud
        if loud.times <= top.told:
            return
        if loud.client not in self._loud or loud.times > self._loud[loud.client].times:
            self._loud[loud.client] = loud


def _sizes(reply: Reply) -> dict[str, float]:
    return {f.name: abs(value) if isinstance(value, float) else norm(value) for f, value in _numbers(reply)}


def _numbers(reply: Reply) -> list[tuple[FieldInfo, Any]]:
    """The fields of a reply that hold floats, each with its value."""
    found = []
    for f in fields_of(type(reply)):
        value = getattr(reply, f.name)
        if isinstance(value, tuple) and f.item is float:
            value = np.array(value, dtype=np.float64)
        if isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype.kind == "f"):
            found.append((f, value))
    return found
