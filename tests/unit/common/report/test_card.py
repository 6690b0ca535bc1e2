"""The model's card: made from the files of a job, and what hostile names in it become."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kernfed.cli.main import app
from kernfed.columns.plan import ColumnKind, ColumnPlan, DatePart, MissingRule, UnknownRule
from kernfed.errors import ConfigError, DataError
from kernfed.federation.messages.data import LearningTask
from kernfed.methods.scores import ClientScores, ScoreOf, ScoresFinding
from kernfed.methods.shares import ClientShare, SharesFinding
from kernfed.models.global_model import GlobalModel
from kernfed.report.card import plain, write_card
from kernfed_testing.models import linear_model, make_model

RECORD: dict[str, Any] = {
    "job_id": "heart-abc234",
    "name": "heart",
    "method": "newton",
    "state": "succeeded",
    "error_message": "",
    "submitted_by": "ann",
    "finished_at": "2026-01-02T03:05:16.500+00:00",
    "rounds_closed": 8,
    "clients": ["va", "basel"],
    "notes": [{"round": 0, "message": "lengthscale 4.4"}, {"round": 8, "message": "end: arrived"}],
}
SCORES = ScoresFinding(
    clients=(
        ClientScores(client="va", rows=30, groups=30, scores=(ScoreOf("global", "auc", 0.8, 0.05, 0.7, 0.9, 14),)),
    ),
    pooled=(),
    num_clients=1,
    of_clients=2,
    num_rows=30,
    of_rows=45,
)
COLUMNS = (
    ColumnPlan(
        name="dose", kind=ColumnKind.NUMBER, missing=MissingRule.MEAN, fill=7.5, unit="mg", log1p=True, settled=True
    ),
    ColumnPlan(
        name="site",
        kind=ColumnKind.CATEGORY,
        missing=MissingRule.INDICATOR,
        levels=("head", "arm"),
        unknown=UnknownRule.OTHER,
        settled=True,
    ),
    ColumnPlan(
        name="seen",
        kind=ColumnKind.DATE,
        missing=MissingRule.REFUSE,
        since="2020-01-01",
        parts=(DatePart.MONTH,),
        settled=True,
    ),
)


def left(folder: Path, model: GlobalModel, findings: dict[str, Any] | None = None, **changes: Any) -> str:
    """The card of a job's files, as Markdown."""
    model.save(folder)
    (folder / "job.json").write_text(json.dumps(RECORD | changes))
    if findings is not None:
        (folder / "findings.json").write_text(json.dumps(findings))
    markdown, page = write_card(folder)
    assert page.read_text().count("<h2>") == markdown.read_text().count("\n## ")
    return markdown.read_text()


def test_it_tells_what_a_reader_looks_for(tmp_path: Path) -> None:
    """Target, columns and their scales, rows behind the model, scores with intervals, and limits, on both pages."""
    shares = SharesFinding(by="training rows", clients=(ClientShare("va", 130, 0.65), ClientShare("basel", 70, 0.35)))
    told = left(tmp_path, make_model(LearningTask.BINARY), {"scores": SCORES.to_json(), "shares": shares.to_json()})
    assert "Predicts num from 3 columns (no, yes), by the method newton, trained by 2 clients" in told
    assert "| höhe | number | refuse | 1.7 ± 0.1 |" in told
    assert "| va | 130 | 65 % |" in told
    assert "| va | AUC | 14 | 0.8 [0.7, 0.9] |" in told
    assert "Its scores are of 30 rows. Their intervals are wide." in told
    assert "are no calibrated probabilities" in told
    assert "- lengthscale 4.4" in told
    assert "end: arrived" not in told
    page = (tmp_path / "model-card.html").read_text()
    assert "<td" in page
    assert "höhe" in page


def test_columns_with_types_are_told_by_their_rules(tmp_path: Path) -> None:
    """Unit, transformation, levels, parts of dates, and what takes the place of a gap."""
    told = left(tmp_path, linear_model(COLUMNS))
    assert "| dose | number in mg; log(1 + x) | mean: 7.5 |" in told
    assert "| site | category; levels head, arm; others: other | indicator |  |" in told
    assert "| seen | date; month | refuse |  |" in told
    assert "how good it is was not measured" in told


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    """Signs of Markdown and HTML in a name are text in both."""
    name = "<b>|`x`[a](http://x)"
    told = left(tmp_path, make_model(LearningTask.BINARY, target=name))
    assert "| target | \\<b\\>\\|\\`x\\`[a\\](http://x) |" in told
    page = (tmp_path / "model-card.html").read_text()
    assert "<b>" not in page
    assert plain("a\n# b") == "a \\# b"


def test_the_command_writes_both(tmp_path: Path) -> None:
    """It prints their paths; a folder without a model or a record is named with the remedy."""
    left(tmp_path, make_model())
    done = CliRunner().invoke(app, ["model", "card", str(tmp_path)])
    assert done.exit_code == 0
    assert done.output.split() == [str(tmp_path / "model-card.md"), str(tmp_path / "model-card.html")]
    with pytest.raises(ConfigError):
        write_card(tmp_path / "nowhere")
    (tmp_path / "job.json").write_text("{}")
    with pytest.raises(DataError, match="not the files of a job"):
        write_card(tmp_path)
    (tmp_path / "job.json").unlink()
    with pytest.raises(DataError, match=r"job\.json: cannot be read"):
        write_card(tmp_path)
