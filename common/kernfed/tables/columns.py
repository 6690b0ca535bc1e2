"""The places of a job's columns in a file, whatever its format: the one home of headers, for files and streams.

A job says which columns it wants; a client file may say what they are called in the file, and names columns of its own.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from kernfed.tables.raw_table import MAX_LISTED, Source


def locate_columns(source: Source, present: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Find the job's columns among those of a file; order does not matter and other columns are ignored.

    Args:
        source: The file; its `columns` mapping gives the names used in it.
        present: Names in the file, in order.
        wanted: Names in the job.

    Returns:
        For each wanted column its place in `present`.

    Raises:
        DataError: A column is missing, stands twice in the file, or two of the job's columns read the same one.
    """
    places: dict[str, list[int]] = {}
    for i, name in enumerate(present):
        places.setdefault(name, []).append(i)
    found: list[int] = []
    problems: list[str] = []
    public: list[str] = []
    takers: dict[str, str] = {}
    for column in wanted:
        name = source.in_file(column)
        at = places.get(name, [])
        if name in takers:
            problems.append(
                f"columns {takers[name]!r} and {column!r} of the job are both read from {name!r}; "
                f"correct {source.key('columns')}"
            )
            public.append(f"columns {takers[name]!r} and {column!r} are both read from one")
        elif not at:
            close = difflib.get_close_matches(name.casefold(), [p.casefold() for p in places], n=1, cutoff=0.7)
            near = [p for p in places if close and p.casefold() == close[0]]
            hint = f"; did you mean {near[0]!r}?" if near else ""
            if near and not (near[0] + name).isascii():  # they may look the same
                hint += f" It is written {near[0]!a} there, and {name!a} in the job."
            problems.append(f"{source.shown(column)} is missing{hint}")
            public.append(f"column {column!r} is missing")
        elif len(at) > 1:
            problems.append(f"{source.shown(column)} stands {len(at)} times; rename or remove all but one")
            public.append(f"column {column!r} stands more than once")
        takers.setdefault(name, column)
        found.extend(at[:1])
    if problems:
        if any("is missing" in p for p in problems):
            problems.append(_listing(source, present, bool(found) or any("did you mean" in p for p in problems)))
        source.refuse(f"\n{source.where}: ".join(problems), public="; ".join(public[:MAX_LISTED]))
    return found


def locate_header(source: Source, header: Sequence[str]) -> list[int]:
    """Find the job's columns in the header of a file of text; blanks around a name are no part of it.

    Raises:
        DataError: As of `locate_columns`; a header that is split at the wrong character is told as that.
    """
    if len(header) == 1 and len(source.columns) > 1:
        other = next((d for d in ";\t,|" if d != source.file.delimiter and d in header[0]), None)
        if other is not None:
            name = {"\t": "a tab"}.get(other, repr(other))
            remedy = source.remedy(f"write {source.file.delimiter!r} instead", ", or set {}", "delimiter")
            source.refuse(
                f"line 1 is one column, but holds {name}; if that separates columns, {remedy}",
                public="its columns are separated otherwise than was said",
            )
    return locate_columns(source, [name.strip() for name in header], source.columns)


def locate_own(source: Source, present: Sequence[str], name: str, what: str, setting: str) -> int:
    """Find one column by its name in the file, e.g. the key's, which the client file names by itself.

    Args:
        source: The file.
        present: Names in the file, in order.
        name: In the file.
        what: It is, for messages.
        setting: Of the client file, which names it.

    Raises:
        DataError: The column is missing, or stands twice.
    """
    count = present.count(name)
    if count != 1:
        remedy = "rename or remove all but one" if count else f"correct {source.key(setting)}"
        source.refuse(
            f"column {name!r}, the {what}, {f'stands {count} times' if count else 'is missing'}; {remedy}",
            public=f"the column of the {what} {'stands more than once' if count else 'is missing'}",
        )
    return present.index(name)


def _listing(source: Source, present: Sequence[str], some_found: bool) -> str:
    # Without a header the "names" are the cells of the first row, which must not leave the site.
    nameless = any(_is_number(name) for name in present)
    if nameless or not some_found:
        what = "what stands in place of their names does not look like names" if nameless else "none of that name"
        return (
            f"the file has {len(present)} columns, but {what}; the first line must name the columns"
            if source.file.format != "npz"
            else f"x has {len(present)} columns; "
            + source.remedy("name them in an array `columns`", ", or in {}", "x_columns")
        )
    listed = ", ".join(present[:MAX_LISTED])
    more = f" and {len(present) - MAX_LISTED} more" if len(present) > MAX_LISTED else ""
    remedy = source.remedy("rename there", ", or say which is which in {}", "columns")
    return f"the file has the columns {listed}{more}; {remedy}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
