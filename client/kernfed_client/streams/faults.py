"""Why a row of a stream is left out, and what else its reading met: counted in the job, placed in the client's log."""

from __future__ import annotations

import enum


class RowFault(enum.StrEnum):
    """Why a line or record is no row."""

    TEXT = "text"
    """Text or a number without end where a number is needed, an unknown class, or a line that cannot be read at all."""
    GAP = "gap"
    """A value is missing."""
    WIDTH = "width"
    """A line of CSV has another number of cells than its header."""
    NO_KEY = "no_key"
    """A target whose row is not known, by its key."""
    TWICE = "twice"
    """A target whose row had one already."""
    UNANSWERED = "unanswered"
    """A row whose target did not come before too many others waited."""


MEANING = {
    RowFault.TEXT: "text or no finite number where a number is needed",
    RowFault.GAP: "a value is missing",
    RowFault.WIDTH: "another number of cells than the header has",
    RowFault.NO_KEY: "a target, but no row with its key waits",
    RowFault.TWICE: "a target that came twice",
    RowFault.UNANSWERED: "no target came before too many rows waited",
}
"""For people."""


class FileChange(enum.StrEnum):
    """What happened to a file that is followed."""

    ROTATED = "rotated"
    """It was renamed or copied, and is read to its end; the file that has its name now comes after it."""
    REPLACED = "replaced"
    """It shrank or is another one, and the former one is not in the folder: rows at its end may be missing."""
    HEADER = "header"
    """A line names the columns again, and holds for the lines below it."""
