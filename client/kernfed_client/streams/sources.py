"""Which stream a data set has: as the client file says, or else its training rows in their order."""

from __future__ import annotations

from dataclasses import replace

from kernfed.errors import ConfigError, DataError
from kernfed.federation.messages.data import DataSchema
from kernfed.jobs.client_file import ClientFile, PartitionFile, StreamFile
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
    """
    section = file.datasets.get(dataset)
    stream = section.stream if section is not None else None
    if stream is None:
        return None
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
