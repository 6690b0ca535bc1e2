"""The classes of all clients together, and refusals of names that are likely two spellings of one class.

Names of classes come from files that were written by different people. `Benign` here and `benign` there, or `0` and `1`
where others write words, would become classes of their own without a word, and the model one of spellings.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernfed.errors import DataError
from kernfed.federation.messages.data import DataDescription, DataSchema, LearningTask
from kernfed.maths.tasks import TASKS
from kernfed.tables.spellings import SPELT, alike, in_order, told_alike
from kernfed.wording import listed

MAX_CLASSES = 1000
"""Most classes of all clients together, where the job names none."""


def unite_classes(schema: DataSchema, found: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Agree on the classes: those that the job names, else all that any client has, in order.

    The order is that of numbers where every class is one ("2" before "10"), else that of texts.

    Args:
        schema: Of the job.
        found: The classes of each client.

    Raises:
        DataError: There are too few or too many, the task is binary and there are not two, or names look like
            spellings of one class.
    """
    if not TASKS[schema.task].has_classes:
        return ()
    if not schema.classes:
        _refuse_spellings(schema, found)
        _refuse_strangers(schema, found)
    classes = schema.classes or tuple(in_order({c for classes in found.values() for c in classes}))
    names = listed(classes, more=", ...")
    if schema.task is LearningTask.BINARY and len(classes) != 2:
        raise DataError(
            f"task is binary, but the clients' data have {len(classes)} classes in {schema.target!r} ({names}); "
            'name both in data.classes, or use task = "classification"'
        )
    if len(classes) < 2:
        raise DataError(
            f"all clients' rows are of one class in {schema.target!r} ({names}); name the others in data.classes, or "
            "ask for another target"
        )
    if len(classes) > MAX_CLASSES and not schema.classes:
        raise DataError(
            f"the clients' data have {len(classes):,} classes in {schema.target!r}, more than {MAX_CLASSES:,}; name "
            "them in data.classes, or ask for another target"
        )
    return classes


def by_rows(classes: tuple[str, ...], found: Mapping[str, DataDescription]) -> tuple[int, ...]:
    """Places of the classes, that with the most training rows first; one-hot draws follow this order.

    It does not depend on their names or their order in the job: where two have as many rows, those of the clients
    decide, in the order of the clients' names. Classes that have as many rows at every client stay in their order.
    """
    counts = [dict(zip(d.classes, d.class_counts, strict=True)) for _, d in sorted(found.items())]

    def fewest(place: int) -> tuple[int, ...]:
        rows = [count.get(classes[place], 0) for count in counts]
        return (-sum(rows), *(-n for n in rows))

    return tuple(sorted(range(len(classes)), key=fewest))


def unseen_classes(classes: tuple[str, ...], counts: Mapping[str, Mapping[str, int]]) -> tuple[str, ...]:
    """Classes of which no client has a training row.

    Args:
        classes: All.
        counts: Client to class to its number of training rows.
    """
    return tuple(name for name in classes if not any(of.get(name, 0) for of in counts.values()))


def refuse_unseen(schema: DataSchema, unseen: tuple[str, ...]) -> None:
    """Refuse classes that the job names and no client has a training row of: they are likely misspelt.

    Raises:
        DataError: There is one.
    """
    if unseen:
        names = listed([repr(name) for name in unseen], more=", ...")
        raise DataError(
            f"no client has a training row of {names} in {schema.target!r}, which data.classes names; correct or "
            'remove it there, or set data.unseen_classes = "allow" to train all the same'
        )


def _refuse_spellings(schema: DataSchema, found: Mapping[str, tuple[str, ...]]) -> None:
    if spelt := alike(found):
        told, mapped = told_alike(spelt)
        raise DataError(
            f"classes in {schema.target!r} differ only by {SPELT}: {told}.\n{_sets(found)}\n"
            f"  write labels = {{ {mapped} }} into the client file of those who have them, or, if these are different "
            "classes, name all in data.classes"
        )


def _refuse_strangers(schema: DataSchema, found: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse clients of two or more classes of which no other client has any, beside others that have two or more.

    A client whose rows are all of one class is no stranger: it may be the only one to have seen it.
    """
    for client in sorted(found):
        others = [set(names) for other, names in found.items() if other != client]
        known = set().union(*others)
        own = found[client]
        if len(own) > 1 and any(len(names) > 1 for names in others) and not known & set(own):
            mapped = f'"{own[0]}" = "{sorted(known)[0]}"'
            raise DataError(
                f"{client} and the other clients have no class in {schema.target!r} in common.\n{_sets(found)}\n"
                f"  if they mean the same, write labels = {{ {mapped}, ... }} into the client file of {client}; if "
                "these are different classes, name all in data.classes"
            )


def _sets(found: Mapping[str, tuple[str, ...]]) -> str:
    return "\n".join(
        f"  {client}: {listed([repr(name) for name in found[client]], more=', ...')}" for client in sorted(found)
    )
