"""Jobs on columns with types, over sites that write them differently: what is agreed on, kept and predicted."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kernfed.columns.plan import NUM_QUANTILES
from kernfed.errors import DataError
from kernfed.federation.messages.base import Reply
from kernfed.federation.messages.data import FindColumnsRequest, FoundColumns
from kernfed.jobs.client_file import PartitionFile
from kernfed.jobs.job_file import JobFile
from kernfed.models.global_model import GlobalModel, load_model, sha256
from kernfed.models.predictions import write_predictions
from kernfed_client.data.local_job import LocalJob
from kernfed_client.steps import registry
from kernfed_simulation.federation import from_client_files, from_data_file
from kernfed_simulation.partition import parse_partitioning
from kernfed_simulation.run import Simulated, simulate

WARDS = {"ant": "rgb", "bee": "rgb", "cat": "gb"}
NAMES = ["ward", "seen", "size", "ok"]
CLEAN = {"ward": "category", "seen": {"kind": "date", "since": "2021-01-01"}, "ok": "boolean"}
GERMAN = """
delimiter = ";"
decimal = ","
[datasets.default.train.columns]
ward = "Station"
[datasets.default.train.cells.ward]
values = { "grün" = "g", "blau" = "b", "rot" = "r" }
[datasets.default.train.cells.seen]
date_format = "%d.%m.%Y"
[datasets.default.train.cells.ok]
values = { "ja" = "yes", "nein" = "no" }
[datasets.default.train.cells.size]
unit = "mm"
convert = { "cm" = 0.1 }
"""


def table(site: str, num: int = 60) -> list[dict[str, Any]]:
    """Rows of a site as the job means them; every ninth size is not there."""
    random = np.random.default_rng(list(WARDS).index(site))
    rows = []
    for i in range(num):
        ward, size, day, ok = WARDS[site][i % len(WARDS[site])], random.normal(), int(random.integers(300)), i % 2
        y = "rgb".index(ward) + np.sin(size) + day / 300 + ok + 0.1 * random.normal()
        seen = np.datetime64("2021-01-01") + day
        size_text = "" if i % 9 == 0 else f"{size:.4f}"
        rows.append({"ward": ward, "seen": str(seen), "size": size_text, "ok": ["no", "yes"][ok], "y": f"{y:.5f}"})
    return rows


def german(row: dict[str, Any]) -> dict[str, Any]:
    """The same row as one of the sites writes it: commas, words, millimetres, its own dates."""
    year, month, day = row["seen"].split("-")
    return {
        "Station": {"g": "grün", "b": "blau", "r": "rot"}[row["ward"]],
        "seen": f"{day}.{month}.{year}",
        "size": row["size"] and f"{10 * float(row['size']):.3f}".replace(".", ","),
        "ok": {"no": "nein", "yes": "ja"}[row["ok"]],
        "y": row["y"].replace(".", ","),
    }


def sites(folder: Path, policy: str = "min_rows = 1", *, foreign: bool = True) -> dict[str, LocalJob]:
    """Three clients with files of their own, of which one is written otherwise than the job means."""
    paths = []
    for site in WARDS:
        rows = table(site)
        own = foreign and site == "bee"
        rows = [german(row) for row in rows] if own else rows
        with (folder / f"{site}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter=";" if own else ",")
            writer.writeheader()
            writer.writerows(rows)
        path = folder / f"{site}.toml"
        path.write_text(f'[datasets.default.train]\npath = "{site}.csv"\n{GERMAN if own else ""}[policy]\n{policy}\n')
        paths.append(path)
    return from_client_files(paths, folder / "state")


def job(method: dict[str, Any] | None = None, **data: Any) -> JobFile:
    """A job on the typed columns."""
    facts = {"task": "regression", "target": "y", "features": NAMES, "missing": "indicator"}
    columns = {**CLEAN, "size": {"unit": "cm"}}
    whole = {"name": "typed", "method": method or {"name": "dkrr", "ridge": 0.01}}
    whole |= {"data": {**facts, "columns": columns, **data}, "features": {"num_frequencies": 20}}
    return JobFile.model_validate(whole)


def ran(done: Simulated) -> GlobalModel:
    """The model of a job that succeeded."""
    assert done.error is None, done.error
    assert done.model is not None
    return done.model


def test_sites_that_write_otherwise_mean_the_same(tmp_path: Path) -> None:
    """The model is to the last digit of commas and millimetres that of sites that write as the job does."""
    models = []
    for foreign in (True, False):
        folder = tmp_path / str(foreign)
        folder.mkdir()
        models.append(ran(simulate(job(test_fraction=0.0), sites(folder, foreign=foreign))))
    one, other = models
    levels = ("b", "g", "r", "other", "missing")
    assert one.feature_names == (*(f"ward={name}" for name in levels), "seen", "seen=missing", "size", "size=missing",
                                 "ok", "ok=missing")  # fmt: skip
    assert one.columns[0].levels == ("b", "g", "r")
    pooled = [float(row["size"]) for site in WARDS for row in table(site) if row["size"]]
    assert one.columns[2].fill == pytest.approx(np.mean(pooled), abs=1e-9)
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-12)
    np.testing.assert_allclose(one.deviation, other.deviation, atol=1e-12)


def test_a_model_takes_raw_rows_from_a_file_and_from_a_data_frame(tmp_path: Path) -> None:
    """Gaps and levels that it has not seen are treated as in training; what it cannot take is told by its place."""
    done = simulate(job(), sites(tmp_path), out=tmp_path / "out")
    ran(done)
    model = load_model(tmp_path / "out")
    assert len(json.loads((tmp_path / "out/model.json").read_text())["columns"]) == 4
    rows = [*table("ant", 5), {**table("ant", 1)[0], "ward": "violet"}]
    pd.DataFrame(rows).to_csv(tmp_path / "rows.csv", index=False)
    written = write_predictions(model, tmp_path / "rows.csv", tmp_path / "p.csv")
    assert written.num_without == 0
    predicted = pd.read_csv(tmp_path / "p.csv")["prediction"].to_numpy()
    typed = pd.DataFrame(rows).assign(seen=lambda f: pd.to_datetime(f["seen"]), ok=lambda f: f["ok"] == "yes")
    np.testing.assert_allclose(model.predict(typed), predicted, rtol=1e-9)
    np.testing.assert_allclose(model.predict(pd.DataFrame(rows)), predicted, rtol=1e-9)
    with pytest.raises(DataError, match=r"column 'seen', row 2 .*no date"):
        model.predict(pd.DataFrame(rows).assign(seen=["2021-01-01", "soon", *["2021-01-01"] * 4]))


def test_medians_ranks_and_parts_of_dates_are_part_of_a_model(tmp_path: Path) -> None:
    """They are agreed on over three sites under a policy, and a data frame is predicted from as the sites' rows."""
    seen = {"kind": "date", "parts": ["month", "weekday"]}
    columns = {**CLEAN, "seen": seen, "size": {"transform": "rank"}, "ok": {"kind": "boolean"}}
    done = simulate(job(columns=columns, missing="median"), sites(tmp_path, "min_rows = 5", foreign=False))
    model = ran(done)
    plans = {plan.name: plan for plan in model.columns}
    assert len(plans["size"].knots) == NUM_QUANTILES
    assert (plans["size"].fill, plans["ok"].fill in (0.0, 1.0), plans["seen"].fill) == (0.5, True, 0.0)
    assert {"seen=january", "seen=sunday", "seen=missing"} <= set(model.feature_names)
    rows = pd.DataFrame(table("ant", 12))
    assert np.isfinite(np.asarray(model.predict(rows), dtype=float)).all()
    assert any("that take the place of gaps: ok" in of.event.message for of in done.events)


def test_the_plan_is_part_of_what_a_model_is(tmp_path: Path) -> None:
    """Another number for gaps is another model."""
    model = ran(simulate(job(), sites(tmp_path)))
    model.save(tmp_path / "one")
    facts = json.loads((tmp_path / "one/model.json").read_text())
    before = sha256(tmp_path / "one")
    facts["columns"][2]["fill"] += 1.0
    (tmp_path / "one/model.json").write_text(json.dumps(facts))
    assert sha256(tmp_path / "one") != before


def test_one_file_dealt_out_is_as_files_of_their_own(tmp_path: Path) -> None:
    """Clients that share a file agree on the same levels and means as clients with its parts."""
    rows = [{**row, "site": site} for site in WARDS for row in table(site)]
    pd.DataFrame(rows).to_csv(tmp_path / "all.csv", index=False)
    file = PartitionFile(path=tmp_path / "all.csv")
    shared = from_data_file(file, parse_partitioning("column:site"), None, job(), tmp_path / "shared")
    one, other = ran(simulate(job(), shared)), ran(simulate(job(), sites(tmp_path, foreign=False)))
    assert [plan.levels for plan in one.columns] == [plan.levels for plan in other.columns]
    assert one.columns[2].fill == pytest.approx(other.columns[2].fill, abs=1e-12)
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-12)
    dealt = from_data_file(file, parse_partitioning("iid"), 2, job(), tmp_path / "dealt")
    assert ran(simulate(job(), dealt)).columns[0].levels == ("b", "g", "r")


def test_policies_hold_for_levels_and_gaps(tmp_path: Path) -> None:
    """With 25 rows as the least, no level of 20 rows is told, and no column tells of fewer rows than that."""
    jobs = sites(tmp_path, 'min_rows = 25\nfew_values = "allow"')
    model = ran(simulate(job(), jobs))
    assert model.columns[0].levels == ("b", "g")
    x = jobs["ant"].data.train.x
    for values in x[:, [i for i, name in enumerate(model.feature_names) if "=" in name]].T:
        assert (values == 0).all() or min((values == 0).sum(), (values == 1).sum()) >= 25


def test_a_client_that_answers_wrongly_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other numbers of columns than were asked for are no answer, and the job goes on without it."""

    def wrong(local: LocalJob, request: FindColumnsRequest) -> Reply:
        found = right(local, request)
        assert isinstance(found, FoundColumns)
        return FoundColumns(columns=found.columns[:1]) if local.client == "cat" else found

    right = registry.STEPS[FindColumnsRequest]
    monkeypatch.setitem(registry.STEPS, FindColumnsRequest, wrong)
    asked = job().model_copy(update={"cohort": job().cohort.model_copy(update={"preflight": "quorum"})})
    done = simulate(asked, sites(tmp_path))
    assert ran(done).job["clients"] == ["ant", "bee"]


def test_a_mean_that_stands_apart_has_no_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that lies about it moves what takes the place of gaps at nobody else."""

    def lie(local: LocalJob, request: FindColumnsRequest) -> Reply:
        found = right(local, request)
        assert isinstance(found, FoundColumns)
        if local.client != "cat":
            return found
        return FoundColumns(columns=tuple(type(c)(levels=c.levels, num_rows=c.num_rows, mean=1e6, deviation=c.deviation)
                                          for c in found.columns))  # fmt: skip

    honest = ran(simulate(job(), sites(tmp_path))).columns[2].fill
    right = registry.STEPS[FindColumnsRequest]
    monkeypatch.setitem(registry.STEPS, FindColumnsRequest, lie)
    done = simulate(job(), sites(tmp_path))
    assert abs(ran(done).columns[2].fill - honest) < 0.2
    assert any("no say in the mean" in event.event.message for event in done.events)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"ward": "boolean"}, r"column 'ward', line 2 .*neither true nor false"),
        ({"ward": {"kind": "category", "levels": ["g", "b"]}}, r"column 'ward', line 2 .*level that the job does not"),
        ({"size": {"unit": "inch"}}, r"'size' is in 'mm', and the job wants 'inch'"),
    ],
)
def test_what_does_not_fit_is_told_before_round_1(tmp_path: Path, columns: dict[str, Any], says: str) -> None:
    """With file, column, line and remedy, by the client where it is."""
    done = simulate(job(columns={**CLEAN, **columns}), sites(tmp_path))
    assert done.error is not None
    assert pd.Series([str(done.error)]).str.contains(says).all(), done.error
