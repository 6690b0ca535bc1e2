"""A job's rows as the client file lets it have them: by the policy, beside earlier jobs, and the same ones later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import structlog

from kernfed import files
from kernfed.federation.messages.data import DataSchema
from kernfed.jobs.client_file import ClientFile
from kernfed_client.data import content
from kernfed_client.data.guards.dealt_blocks import Dealing
from kernfed_client.data.guards.row_sets import refuse_near_sets
from kernfed_client.data.guards.split import LIFE_RULES, refuse_draws, refuse_few_groups
from kernfed_client.data.reading.partitions import LocalData, load_local_data
from kernfed_client.data.site_notes import site_notes

log = structlog.get_logger(__name__)

_RELEASED = "blocks-released"
"""A file in a job's folder: its blocks were forgotten."""

Loader = Callable[[str, DataSchema, str], LocalData]
"""Gives rows in memory: (name of the data set, schema, client) -> rows to train and test on."""


def load_rows(
    file: ClientFile, setup: Path, dataset: str, schema: DataSchema, client: str, load: Loader | None, *, durable: bool
) -> tuple[LocalData, Dealing | None]:
    """Read a data set for a job; also what dealt its rows into blocks, where those are remembered.

    Args:
        file: The client file.
        setup: Where the job keeps what it was prepared on.
        dataset: Name of the data set.
        schema: What the job expects.
        client: This client's name.
        load: Gives the rows; None: from the files that `file` names.
        durable: Whether the job is one of a daemon, which remembers its rows.

    Raises:
        DataError: They do not fit the schema, or are others than those that the job was prepared on.
        PolicyError: The job draws the rows that are held out, and may not; or they differ by a few from those of an
            earlier job, or are of too few groups.
    """
    begun = content.is_begun(setup)  # such a job goes on
    if not begun:
        refuse_draws(file, dataset, schema)
    if load is not None:
        data = load(dataset, schema, client)
        refuse_few_groups(file, dataset, data.train)
        return data, None
    rules, dealing = content.rules(setup), None
    if durable and file.policy.near_jobs != "allow":
        dealing = Dealing(file.state, file.policy.min_rows, begun=begun and not (setup / _RELEASED).exists())
        dealing.as_before = rules < LIFE_RULES
    data = load_local_data(file, dataset, schema, client, rules=rules, dealing=dealing)
    refuse_few_groups(file, dataset, data.train)
    if durable:
        section = file.datasets.get(dataset)
        streams = schema.on_stream and section is not None and section.stream is not None
        refused = dealing is not None and dealing.refusal is not None
        if streams or not begun:
            data = replace(data, dealt_anew=refuse_near_sets(file, dataset, schema, data, refused=refused))
        if dealing is not None:
            dealing.keep()
            (setup / _RELEASED).unlink(missing_ok=True)
        content.check(setup, data, dataset, may_differ=streams)  # a stream's training rows give ranges alone
        for note in site_notes(data, schema):  # of few rows the coordinator is told nothing
            log.warning("worth a look in the data of a job; told here alone", dataset=dataset, note=note)
    return data, dealing


def release(dealing: Dealing, setup: Path) -> bool:
    """Let later jobs deal a job's rows anew where nothing was told of its blocks before it ended; whether it is so.

    If this job goes on all the same, its rows are dealt anew beside those of the jobs that came in between.
    """
    if not dealing.unspent:
        return False
    setup.mkdir(parents=True, exist_ok=True)
    files.replace(setup / _RELEASED, b"", durable=True)  # before they are forgotten, or the job would go on with them
    dealing.release()
    return True
