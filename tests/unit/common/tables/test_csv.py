"""CSV files: the right reading, or a refusal that names file, column and line and no content."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernfed.errors import DataError
from kernfed.federation.messages.data import LearningTask, MissingRule
from kernfed.tables import csv as csv_reader
from kernfed.tables.cells import label_text
from kernfed_testing.partitions import GOOD, SECRET, read_csv, regression, schema
from kernfed_testing.properties import examples


@pytest.mark.parametrize(
    ("text", "file"),
    [
        (GOOD, {}),
        (GOOD.replace("\n", "\r\n"), {}),
        (GOOD.replace("\n", "\r"), {}),
        (GOOD.rstrip("\n"), {}),
        ("\ufeff" + GOOD, {}),
        (GOOD + "\n\n", {}),
        ("\n" + GOOD, {}),
        ("y,other,b,a\n0,x,2,1\n1,,4,3\n", {}),
        ('a,note,b,y\n1,"one, two",2,0\n3,x,4,1\n', {}),
        ('a,note,b,y\n1,"line\nline, ""quoted""",2,0\n3,x,4,1\n', {}),
        (' a , b,y \n 1 ,2 , 0\n3, 4,1 \n', {}),
        ("a;b;y\n1;2;0\n3;4;1\n", {"delimiter": ";"}),
        ("a§b§y\n1§2§0\n3§4§1\n", {"delimiter": "§"}),
        ("a\tb\ty\n1\t2\t0\n3\t4\t1\n", {"delimiter": "\t"}),
        ("\u00e4,b,y\n1,2,0\n3,4,1\n".encode("latin-1"), {"encoding": "latin-1", "columns": {"a": "\u00e4"}}),
        (GOOD.encode("utf-16"), {"encoding": "utf-16"}),
        ("Alter,b,krank\n1,2,nein\n3,4,ja\n", {
            "columns": {"a": "Alter", "y": "krank"}, "labels": {"nein": "0", "ja": "1"}
        }),
    ],
    ids=["plain", "crlf", "cr", "no-last-newline", "bom", "blank-end", "blank-start", "order-and-extra",
         "quoted-comma", "quoted-newline", "spaces", "semicolons", "non-ascii", "tabs", "latin-1", "utf-16", "mapped"],
)  # fmt: skip
def test_csv_dialects_read_alike(tmp_path: Path, text: str | bytes, file: dict[str, Any]) -> None:
    """The same rows in any dialect of CSV give the same data."""
    data = read_csv(tmp_path, text, **file)
    assert data.x.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert data.labels == ["0", "1"]
    assert data.y is None
    assert data.num_dropped_rows == 0


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (GOOD, [2, 3]),
        ('a,b,n,y\n1,2,"x\ny\nz",0\n\n3,4,x,1\n', [2, 6]),
        ("\ufeffa,b,y\r\n1,2,0\r\n\r\n3,4,1\r\n", [2, 4]),
    ],
)
def test_row_numbers_are_lines_of_the_file(tmp_path: Path, text: str, rows: list[int]) -> None:
    """A row has the number of the line on which it begins."""
    assert read_csv(tmp_path, text).row_numbers.tolist() == rows


@pytest.mark.parametrize("line_end", ["\n", "\n\n"], ids=["fast", "careful"])
def test_codes_stay_text_where_they_are_classes(tmp_path: Path, line_end: str) -> None:
    """Labels that look like numbers keep their zeros and points."""
    text = line_end.join(["a,b,y", "1,2,007", "3,4,7", "5,6,7.0", ""])
    data = read_csv(tmp_path, text, schema(task=LearningTask.CLASSIFICATION, classes=()))
    assert data.labels == ["007", "7", "7.0"]


def test_missing_tokens_are_those_declared(tmp_path: Path) -> None:
    """A cell is missing where it holds a token that the client file declares."""
    text = "a,b,y\n-999,2,0\n 3 ,4,1\n5,.,1\n6,7,\n"
    data = read_csv(tmp_path, text, schema(missing=MissingRule.DROP_ROWS), missing=["", ".", "-999"])
    assert data.x.tolist() == [[3.0, 4.0]]
    assert (data.labels, data.num_dropped_rows, data.row_numbers.tolist()) == (["1"], 3, [3])


def test_gaps_in_unused_columns_do_not_count(tmp_path: Path) -> None:
    """A gap in a column that the job does not use drops no row."""
    assert read_csv(tmp_path, "a,b,z,y\n1,2,,0\n3,4,NA,1\n").num_rows == 2


BAD_CSV: dict[str, tuple[str | bytes, dict[str, Any], list[str]]] = {
    "header-only": ("a,b,y\n", {}, ["has no rows"]),
    "0 bytes": ("", {}, ["empty (0 bytes)"]),
    "blank": ("\n\n", {}, ["no header line"]),
    "missing column": ("a,B ,y\n1,2,0\n", {}, ["column 'b' is missing", "did you mean 'B'", "a, B, y"]),
    "other capitals": ("A,B,Y\n1,2,0\n", {}, ["did you mean 'A'", "has the columns A, B, Y", "`columns`"]),
    "mapped column missing": ("a,b,y\n1,2,0\n", {"columns": {"b": "bb"}}, ["'b' ('bb' in the file) is missing"]),
    "duplicated column": ("a,b,a,y\n1,2,3,0\n", {}, ["column 'a' stands 2 times"]),
    "one column for two": ("a,b,y\n1,2,0\n", {"columns": {"b": "a"}}, ["'a' and 'b'", "both read from 'a'"]),
    "no header": (f"11,{SECRET},0\n1,2,0\n", {}, ["3 columns", "first line must name"]),
    "semicolons": ("a;b;y\n1;2;0\n", {}, ["holds ';'", "`delimiter`"]),
    "text": (f"a,b,y\n1,2,0\n1,{SECRET},0\n2,{SECRET},1\n", {}, ["column 'b', line 3", "first of 2 lines", "text"]),
    "text below quotes": (f'a,b,n,y\n1,2,"x\ny",0\n1,{SECRET},z,0\n', {}, ["column 'b', line 4"]),
    "decimal comma": ("a;b;y\n1,5;2;0\n", {"delimiter": ";"}, ["column 'a', line 2", "a comma", "decimal point"]),
    "underscore": ("a,b,y\n1_000,2,0\n", {}, ["column 'a', line 2", "text"]),
    "infinity": ("a,b,y\n1,2,0\n1,inf,0\n", {}, ["column 'b', line 3", "infinite"]),
    "too large": ("a,b,y\n1,1e999,0\n", {}, ["column 'b', line 2", "infinite"]),
    "undeclared nan": ("a,b,y\n1,nan,0\n", {"missing": [""]}, ["column 'b', line 2", "not a number"]),
    "no value": ("a,b,y\n1,2,0\n1,,0\n,,1\n", {}, ["'b', line 3 (the first of 2 lines): no value", "'a', line 4"]),
    "no target": ("a,b,y\n1,2,0\n1,2,\n", {}, ["column 'y', line 3: no value"]),
    "unknown class": (f"a,b,y\n1,2,0\n1,2,{SECRET}\n", {}, ["column 'y', line 3", "does not know", "0, 1", "`labels`"]),
    "007": ("a,b,y\n1,2,0\n1,2,01\n", {}, ["column 'y', line 3", "does not know"]),
    "long class": (f"a,b,y\n1,2,{SECRET * 30}\n", {}, ["column 'y', line 2", "256 characters"]),
    "short row": (f"a,b,y\n1,2,0\n{SECRET},2\n", {}, ["line 3 has 2 cells but the header has 3"]),
    "long row": (f"a,b,y\n1,2,0,{SECRET}\n", {}, ["line 2 has 4 cells"]),
    "not utf-8": (b"a,b,y\n1,2,0\n\xff\xfe\xe4,2,0\n", {}, ["line 3: bytes that are not utf-8", "`encoding`"]),
    "utf-16": (GOOD.encode("utf-16"), {}, ["UTF-16", "`encoding`"]),
    "unknown encoding": (GOOD, {"encoding": "klingon"}, ["unknown encoding", "`encoding`"]),
    "not a text encoding": (GOOD, {"encoding": "base64"}, ["not an encoding of text", "`encoding`"]),
    "open quote": (f'a,b,y\n1,2,0\n1,2,"{SECRET}\n', {}, ["line 3: malformed quotes"]),
    "open quote, last column unused": (f'a,b,y,n\n1,2,0,"{SECRET}\n1,2,1,x\n', {}, ["line 2: malformed quotes"]),
    "huge cell": ("a,b,y\n1,2," + "9" * 200_000 + "\n\n", {}, ["line 2: malformed quotes"]),
    "newline as delimiter": (GOOD, {"delimiter": "\n"}, ["cannot separate columns", "`delimiter`"]),
    "quote as delimiter": (GOOD, {"delimiter": '"'}, ["cannot separate columns"]),
    "binary": (b"\x00\x01\x02" * 99, {}, ["not text but binary", "`format`"]),
    "parquet": (b"PAR1" + b"\0" * 9, {}, ["Parquet", "`format`"]),
    "npz": (b"PK\x03\x04" + b"\0" * 9, {}, ["zip or NPZ", "`format`"]),
    "gzip": (b"\x1f\x8b" + b"\0" * 9, {}, ["gzip"]),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_CSV)
def test_bad_csv_is_refused_by_place_without_content(tmp_path: Path, case: str) -> None:
    """A fault in a CSV is told by file, column and line, without the content of a cell."""
    text, file, expected = BAD_CSV[case]
    with pytest.raises(DataError) as caught:
        read_csv(tmp_path, text, **file)
    message = str(caught.value)
    for part in ["data set heart, train (site.csv)", *expected]:
        assert part in message
    assert SECRET not in message
    assert str(tmp_path) not in message, "folders of the site are not told"
    assert caught.value.__cause__ is None or SECRET not in str(caught.value.__cause__)


def test_all_faults_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    """A file with two faults is refused with both."""
    with pytest.raises(DataError) as caught:
        read_csv(tmp_path, "a,b,y\nx,2,0\n1,x,0\n1,2,0\n")
    assert [line.split(": ")[1] for line in str(caught.value).splitlines()] == [
        "column 'a', line 2",
        "column 'b', line 3",
    ]


NUMBERS = st.floats(-1e100, 1e100)
LABELS = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=5)
NOTES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
"""Any text; a file with a NUL is taken for binary, and refused."""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=examples(60))
@given(
    rows=st.lists(st.tuples(NUMBERS, NUMBERS, LABELS, NOTES), min_size=1, max_size=8),
    order=st.permutations(["a", "b", "y", "note"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    line_end=st.sampled_from(["\n", "\r\n"]),
    delimiter=st.sampled_from([",", ";", "\t"]),
    bom=st.booleans(),
)
def test_csv_round_trip(
    tmp_path: Path, rows: list[Any], order: list[str], quoting: int, line_end: str, delimiter: str, bom: bool
) -> None:
    """What the csv module writes in any style is read back to the bit."""
    if quoting == csv.QUOTE_MINIMAL and line_end == "\n":  # Python before 3.13 leaves a bare \r without quotes then
        rows = [(a, b, y, note.replace("\r", "")) for a, b, y, note in rows]
    out = io.StringIO()
    writer = csv.DictWriter(out, order, quoting=quoting, lineterminator=line_end, delimiter=delimiter)  # type: ignore[arg-type]  # an int of the csv module
    writer.writeheader()
    writer.writerows({"a": repr(a), "b": b, "y": y, "note": note} for a, b, y, note in rows)
    encoded = out.getvalue().encode("utf-8-sig" if bom else "utf-8", "surrogatepass")
    wanted = schema(task=LearningTask.CLASSIFICATION, classes=())
    data = read_csv(tmp_path, encoded, wanted, delimiter=delimiter, missing=[])
    assert data.x.tolist() == [[a, b] for a, b, _, _ in rows]
    assert data.labels == [label_text(y) for _, _, y, _ in rows]


CELLS = st.one_of(
    st.sampled_from(["1", " 2", "-3.5e2", ".5", "5.", "NA", "", " ", "nan", "inf", "1e999", "0x1", "1_0", "\u0661"]),
    st.text(st.characters(codec="ascii"), max_size=4),
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=examples(150))
@given(rows=st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=5), regress=st.booleans())
def test_fast_and_careful_reading_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[tuple[str, str, str]], regress: bool
) -> None:
    """The fast and the careful reader give the same data or the same refusal."""
    text = "a,b,y\n" + "".join(",".join(row) + "\n" for row in rows)
    wanted = regression(missing=MissingRule.DROP_ROWS) if regress else schema(classes=(), missing=MissingRule.DROP_ROWS)

    def outcome() -> Any:
        try:
            data = read_csv(tmp_path, text, wanted)
        except DataError as err:
            return str(err)
        return data.x.tolist(), data.labels, data.y is not None and data.y.tolist(), data.row_numbers.tolist()

    either = outcome()
    with monkeypatch.context() as patch:
        patch.setattr(csv_reader, "_read_fast", lambda *_: None)
        assert outcome() == either


def test_a_clean_file_is_read_fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large file without faults never meets the careful reader."""

    def never(*_: Any) -> None:
        raise AssertionError("a clean file needs no careful reading")

    monkeypatch.setattr(csv_reader, "_read_carefully", never)
    n = 50_000
    lines = [f"{i}.25,{i % 7},{i % 2}\n" for i in range(n)]
    data = read_csv(tmp_path, "a,b,y\n" + "".join(lines))
    assert (data.num_rows, data.row_numbers[-1], data.x[-1, 0]) == (n, n + 1, n - 0.75)


def test_a_column_of_words_among_the_features_has_a_remedy(tmp_path: Path) -> None:
    """The refusal names file, column, line and what to do, and no word of the column."""
    with pytest.raises(
        DataError, match=r"column 'a', line 2 .*leave it out of the features, or write a number for"
    ) as err:
        read_csv(tmp_path, f"a,b,y\n{SECRET},2,0\n{SECRET},4,1\n")
    assert SECRET not in str(err.value)
