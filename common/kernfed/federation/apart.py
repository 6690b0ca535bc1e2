"""Clients whose numbers count, though they stand apart from all others': what the operator is told of them."""

from __future__ import annotations

from dataclasses import dataclass

CHECK_UNITS = "check this client's data and their units"


@dataclass(frozen=True, slots=True)
class Loud:
    """Numbers of a client that count, though they are far beyond those of all others."""

    client: str
    step: str
    what: str
    """Reply and field."""
    times: float
    """The largest of any other client."""
    other: str = ""
    """The one other client there was to compare with; empty: there were more."""
    of_model: bool = False
    """Whether they are of a model, of which means are formed."""

    @property
    def words(self) -> str:
        """For people."""
        if self.other:
            return (
                f"{self.client} sent numbers {self.times:.2g} times as large as {self.other} ({self.what} of "
                f"{self.step}), and they counted: with two clients nobody can tell whose are wrong; check the data of "
                "both and their units"
            )
        return (
            f"{self.client} sent numbers {self.times:.2g} times as large as any other client ({self.what} of "
            f"{self.step}), and they counted; {CHECK_UNITS}"
        )


@dataclass(slots=True)
class Odd:
    """Numbers of a client that count, though they point another way than those of all others, or are much larger."""

    client: str
    step: str
    what: str
    """Reply and field."""
    looks: int = 0
    """How often they were compared."""
    of: int = 0
    """How often the clients' numbers told of a direction at all."""
    times: int = 0
    """How often they did or were."""
    against: int = 0
    """How often they pointed another way than all others', which agreed."""
    longer: float = 0.0
    """Their norm over that of any other client's, where it was greatest."""

    @property
    def stands_out(self) -> bool:
        """Whether they did or were so at least every other time that the clients' numbers told of a direction."""
        return 2 * self.times >= self.of > 0

    @property
    def words(self) -> str:
        """For people."""
        did = "point another way than those of all other clients, which agree"
        if 2 * self.against < self.times:
            did = f"are up to {self.longer:.2g} times as large as those of any other client"
        return (
            f"{self.client} sent numbers that {did} ({self.what} of {self.step}, {self.times} of {self.of} times), and "
            "they counted: its rows differ from all others', or it is at fault; check the sign and the units of its "
            "target and columns"
        )


@dataclass(slots=True)
class Opposed:
    """Numbers of two clients, of which there are no others, that count, though they point against each other."""

    clients: tuple[str, ...]
    step: str
    what: str
    """Reply and field."""
    looks: int = 0
    """How often they were compared."""
    times: int = 0
    """How often they pointed against each other: at an optimum those of honest clients do, but not before."""

    @property
    def words(self) -> str:
        """For people."""
        return (
            f"{' and '.join(self.clients)} sent numbers that point against each other each time ({self.what} of "
            f"{self.step}), and they counted: their rows follow other laws, or one is at fault; with two clients "
            "nobody can tell which: check the sign and the units of the targets and columns of both"
        )
