"""The report page: complete, self-contained, escaped, and the same for the same input."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from kernfed.errors import DataError
from kernfed.federation.events import RoundMetrics
from kernfed.federation.messages.base import Kind
from kernfed.jobs.metrics_file import write_metrics
from kernfed.methods.ending import Comparison, EndFinding, Loser
from kernfed.methods.heads.finding import HeadFinding
from kernfed.report.charts import bar_chart, heat_map
from kernfed.report.page import KIND_WORDS, render, write_report
from kernfed_testing.forked import run_module
from kernfed_testing.methods.installed import STREAMING

HOSTILE = "<script>alert(1)</script>$\\frac{1}$ & \"x\" 'y' </title>"


def record(**changes: Any) -> dict[str, Any]:
    facts = {
        "job_id": "demo-abc234",
        "name": "demo",
        "method": "newton",
        "state": "succeeded",
        "error_reason": "",
        "error_message": "",
        "submitted_by": "ann",
        "submitted_at": "2026-01-02T03:04:05.000+00:00",
        "started_at": "2026-01-02T03:04:06.000+00:00",
        "finished_at": "2026-01-02T03:05:16.500+00:00",
        "num_rounds": 30,
        "rounds_closed": 3,
        "clients": ["a", "b"],
        "settings": {"name": "demo", "method": {"name": "newton", "ridge": 0.01}, "cohort": {"clients": None}},
        "notes": [{"round": 2, "message": "a note"}],
        "failures": [
            {
                "client": "b",
                "step": "newton.gradient",
                "reason": "INVALID_TENSOR",
                "message": "holds NaN",
                "first_round": 1,
                "last_round": 2,
                "count": 2,
            }
        ],
        "answers": {
            "a": [{"step": "newton.gradient", "count": 3, "kinds": ["gradient"]}],
            "b": [{"step": "newton.gradient", "count": 1, "kinds": ["gradient"]}],
        },
    }
    return {**facts, **changes}


def folder_with(tmp_path: Path, job: dict[str, Any], clients: tuple[str, ...] = ("a", "b"), rounds: int = 3) -> Path:
    (tmp_path / "job.json").write_text(json.dumps(job))
    write_metrics(
        tmp_path,
        [
            (
                r,
                RoundMetrics(
                    {"global": {"auc": 0.8 + r / 100}, "local": {"auc": 0.75}},
                    {c: {"global": {"auc": 0.8}, "local": {"auc": 0.7}} for c in clients[:-1]}
                    | {clients[-1]: {"global": {"accuracy": 0.9}}},
                    {"relative_distance_bound": 10.0 ** (-3 * r)},
                ),
            )
            for r in range(1, rounds + 1)
        ],
    )
    return tmp_path


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [v for k, v in attrs if k in ("src", "href", "xlink:href", "action") and v]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def parse(html: str) -> Tags:
    parser = Tags()
    parser.feed(html)
    return parser


@pytest.mark.slow
def test_the_page_has_what_a_reader_looks_for(tmp_path: Path) -> None:
    """Headline numbers, curves, bars, the table, failures, notes, settings, and what left each site."""
    html = write_report(folder_with(tmp_path, record())).read_text()
    text = " ".join(" ".join(parse(html).text).split())
    for wanted in (
        "AUC, global 0.83",
        "3 of 30",
        "1 min 10 s",
        "≤ 1.0e-09",
        "AUC by round",
        "AUC at each client",
        "certified distance",
        "INVALID_TENSOR holds NaN",
        "a note",
        "gradients × 3",
        "gradients × 1",
        "method.ridge 0.01",
        "cohort.clients not set",
        "not defined here",
    ):
        assert wanted in text, wanted
    assert html.count("<svg ") == 3


@pytest.mark.parametrize("method", STREAMING[:1])
def test_a_job_on_streams_shows_drift(tmp_path: Path, method: str) -> None:
    """It has no test rows; errors of recent rows and kernels in use are drawn over rounds."""
    (tmp_path / "job.json").write_text(json.dumps(record(method=method)))
    measured = [
        (
            r,
            RoundMetrics(
                {"personal": {"r2": 0.5, "mse": 2.0}, "recent": {"mse": float(r)}},
                {"a": {"personal": {"r2": 0.5, "mse": 2.0}, "recent": {"mse": float(r)}}},
                {"bytes_up": 1.0 * r, "effective_kernels": 9.0 - r},
            ),
        )
        for r in (1, 2, 3)
    ]
    write_metrics(tmp_path, measured)
    text = " ".join(" ".join(parse(write_report(tmp_path).read_text()).text).split())
    assert "Mean squared error of the rows since the measurement before" in text
    assert "Kernels in use, mean over clients" in text
    assert "on its own rows so far" in text
    assert "test rows" not in text


@pytest.mark.slow
def test_the_page_asks_nothing_of_the_network(tmp_path: Path) -> None:
    """No script, no image, no style sheet, no font from elsewhere."""
    html = write_report(folder_with(tmp_path, record())).read_text()
    page = parse(html)
    assert not {"script", "img", "link", "iframe", "object"} & set(page.tags)
    assert all(address.startswith("#") for address in page.addresses)
    assert not re.search(r"url\((?!#)", html)
    assert "@import" not in html


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    """Whatever a client, job or message is called, it is shown and not run."""
    failure = {**record()["failures"][0], "client": HOSTILE, "message": HOSTILE, "step": HOSTILE, "reason": HOSTILE}
    job = record(
        name=HOSTILE,
        error_reason=HOSTILE,
        error_message=HOSTILE,
        submitted_by=HOSTILE,
        notes=[{"round": 0, "message": HOSTILE}],
        failures=[failure],
        answers={HOSTILE: [{"step": HOSTILE, "count": 1, "kinds": [HOSTILE]}]},
        settings={HOSTILE: HOSTILE},
        clients=[HOSTILE],
    )
    html = write_report(folder_with(tmp_path, job, clients=(HOSTILE, "z"))).read_text()
    assert "script" not in parse(html).tags
    assert "<script" not in html
    assert "".join(parse(html).text).count("<script>alert(1)</script>") >= 10


@pytest.mark.slow
def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    """In this process and in another."""
    folder = folder_with(tmp_path, record())
    first = write_report(folder).read_bytes()
    assert run_module("kernfed.report.page", folder).returncode == 0
    assert (folder / "report.html").read_bytes() == first


@pytest.mark.parametrize("values", [[None, None], [0.25, None], [-3.5, 2.0], [0.0, 0.0]])
def test_bars_are_well_formed_whatever_is_missing(values: list[float | None]) -> None:
    """No value, negative values, zeros."""
    svg = bar_chart("t & <t>", "R²", ["x", "y"], {"global": values})
    root = ElementTree.fromstring(svg)
    assert root.get("aria-label") == "t & <t>"
    assert "#0102" not in svg


def test_numbers_on_dark_cells_can_be_read() -> None:
    """They have the colour of the card, on light and dark pages; those on light cells have that of all text."""
    svg = heat_map("t", ["x", "y"], np.array([[1.0, 0.2], [0.2, 0.9]]), "weight")
    colours = re.findall(r'style="([^"]*)"[^>]*>(?:0|1)\.\d\d</text>', svg)
    assert ["var(--card)" in c for c in colours] == [True, False, False, True]


def test_a_failed_job_without_metrics_has_a_page(tmp_path: Path) -> None:
    """It says why, and draws nothing."""
    job = record(state="failed", error_reason="QUORUM_NOT_MET", error_message="1 of 3", started_at=None, answers={})
    (tmp_path / "job.json").write_text(json.dumps(job))
    write_metrics(tmp_path, [])
    html = write_report(tmp_path).read_text()
    assert "QUORUM_NOT_MET" in html
    assert "<svg" not in html


def test_what_is_no_job_is_refused_by_name(tmp_path: Path) -> None:
    """Missing and malformed files: one line that names the file."""
    with pytest.raises(DataError, match=r"job\.json: cannot be read"):
        write_report(tmp_path)
    (tmp_path / "job.json").write_text("{")
    with pytest.raises(DataError, match="not JSON"):
        write_report(tmp_path)
    with pytest.raises(DataError, match="not the record of a job"):
        render({"name": "x"}, [])
    done = run_module("kernfed.report.page", tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)


def test_the_end_of_the_job_is_told_first() -> None:
    """In one line and a table: arrived or not, how far, and the clients at which the model loses."""
    worse = (Loser("<b>", 0.5, 0.25),)
    pair = Comparison("global", "local", "the client's model alone", "mse", 3, 1, worse, 0.4, 0.3)
    end = EndFinding("not arrived: far", False, 0.25, "relative distance, at most", (pair,))
    head = HeadFinding(method="newton")
    page = render(record(), [], {HeadFinding.name: head.to_json(), EndFinding.name: end.to_json()})
    assert page.index("How the job ended") < page.index("Head on frozen features")
    assert "Not arrived: far." in page
    assert "better at 1, level at 1, worse at 1: &lt;b&gt; (0.5 against 0.25)" in page
    assert '<td class="word">0.4 against 0.3</td>' in page  # a short cell is not broken in the middle of a word
    assert "global against the client&#39;s model alone, mean squared error, over all measured rows" in page
    ended = page[page.index("How the job ended") : page.index("Head on frozen features")]
    assert "<thead>" not in ended  # its columns have no names


def test_each_kind_of_information_has_words() -> None:
    """The page says what left a site in words, whatever its kind."""
    assert set(KIND_WORDS) == set(Kind)
