"""Which stream a data set has: as the client file says, or else its training rows in their order."""

from __future__ import annotations

from dataclasses import replace

from kernfed.columns.plan import MissingRule
from kernfed.errors import ConfigError, DataError, PolicyError
from kernfed.federation.messages.data import DataSchema
from kernfed.jobs.client_file import ClientFile, PartitionFile, PolicySection, StreamFile
from kernfed.wording import listed
from kernfed_client.data.guards.row_marks import marks_of_file
from kernfed_client.data.reading.partition_data import PartitionData
from kernfed_client.data.reading.partitions import read_partition
from kernfed_client.streams.feeds import spool_folder
from kernfed_client.streams.folder import FolderStream
from kernfed_client.streams.streams import Stream, TableStream


def stream_of(file: ClientFile, dataset: str, schema: DataSchema, classes: tuple[str, ...]) -> Stream | None:
    """Open the stream that a client file names for a data set; None: it names none.

    Raises:
        DataError: It cannot be read, or does not fit the job.
        ConfigError: The daemon is not the one that rows come to.
        PolicyError: The job bends numbers of few rows to the same one.
    """
    section = file.datasets.get(dataset)
    stream = section.stream if section is not None else None
    if stream is None:
        return None
    _refuse_bent(file.policy, schema)
    if stream.source == "file":
        whole = replace(schema, ranges=())  # rows outside are left out, and counted, as those of every stream are
        return table_stream(stream, read_partition(stream, whole, dataset, "stream"), classes)
    if stream.source == "follow":
        _check_encoding(stream, dataset)
        return FolderStream(stream.path, stream, schema, dataset, classes)
    folder = spool_folder(file.state, dataset)
    if not folder.is_dir():
        raise ConfigError(
            f"data set {dataset!r} takes its stream from {stream.source}, which only a running daemon reads; start "
            "`kernfed-client run`, or use a file"
        )
    return FolderStream(folder, stream, schema, dataset, classes)


def table_stream(file: PartitionFile | None, table: PartitionData, classes: tuple[str, ...]) -> TableStream:
    """A table as a stream; its rows have marks if they are of a file.

    Raises:
        DataError: The file cannot be read any more.
    """
    try:
        marks = [] if file is None else marks_of_file(file, table.row_numbers)
    except OSError as err:
        raise DataError(f"the rows of {file and file.path.name} cannot be read again; start the job anew") from err
    return TableStream(table, classes, marks)


def _refuse_bent(policy: PolicySection, schema: DataSchema) -> None:
    """Refuse limits and fills that single rows of a round may meet, as nobody can tell by the round's numbers.

    Of a table all rows are known, and a limit is met by whole multiples of the policy's least number of them. Rows of a
    stream come one by one: sums with two limits would differ by the rows between, those with two fills by the targets
    of rows with gaps. An indicator of gaps is a column of its own, which is judged as others are.

    Raises:
        PolicyError: Names the columns and the remedies.
    """
    if policy.min_rows == 1 or policy.sparse_columns == "allow":
        return
    clipped = [plan.name for plan in schema.columns if plan.clip]
    ranked = [plan.name for plan in schema.columns if plan.rank]
    filled = {
        rule: [plan.name for plan in schema.columns if plan.fills and plan.missing is rule]
        for rule in (MissingRule.MEAN, MissingRule.MEDIAN)
    }
    said = (
        (clipped, "clip", "`data.ranges`, which leaves rows out"),
        (ranked, 'transform = "rank"', '`transform = "log1p"`'),
        *((of, f'missing = "{rule}"', '`missing = "indicator"` or `"drop-rows"`') for rule, of in filled.items()),
    )
    for columns, key, instead in said:
        if columns:
            raise PolicyError(
                f"{key} of {listed(columns)}: in a round of a stream fewer rows than policy.min_rows may be meant, and "
                f"sums would tell of them; use {instead}, or let this client's administrator set "
                'policy.sparse_columns = "allow"'
            )


def _check_encoding(file: StreamFile, dataset: str) -> None:
    """Refuse an encoding whose lines cannot be told by their last byte: a file that grows is read line by line.

    Raises:
        ConfigError: Names the key and what to write there.
    """
    try:
        told = "\n,1".encode(file.encoding) == b"\n,1"
    except (LookupError, UnicodeError):
        told = False
    if not told and "sig" not in file.encoding:
        raise ConfigError(
            f"data set {dataset!r}: a stream that is followed cannot be read as {file.encoding!r}; write it as utf-8, "
            f"and correct `encoding` of [datasets.{dataset}.stream] in the client file"
        )
