"""`[data.columns]`: the plan that follows, and keys that contradict each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kernfed.columns.plan import ColumnKind, MissingRule, UnknownRule
from kernfed.errors import ConfigError
from kernfed.federation.messages.data import DescribeDataRequest, FindColumnsRequest
from kernfed.jobs.held_to import contradiction
from kernfed.jobs.job_file import JobFile, data_schema, parse_job

HEAD = 'name = "t"\nmethod = { name = "newton" }\n[data]\ntask = "regression"\ntarget = "y"\n'


def job(more: str = "", features: str = '"sex", "age"') -> JobFile:
    """A job on two columns."""
    return parse_job(f"{HEAD}features = [{features}]\n{more}")


TYPED = """
missing = "mean"
[data.columns]
sex = "category"
age = { unit = "years", transform = "log1p", clip = [0, 120], missing = "indicator" }
"""


def test_columns_without_types_are_as_ever() -> None:
    """Neither the schema nor the plan of such a job knows of columns."""
    plain = job()
    assert data_schema(plain).columns == ()
    assert "columns" not in plain.plan()["data"]
    assert data_schema(plain).table_columns == data_schema(plain).features == ("sex", "age")


def test_types_become_plans() -> None:
    """A short form, the rule for gaps of all columns, and what clients are to agree on."""
    schema = data_schema(job(TYPED))
    sex, age = schema.columns
    assert (sex.kind, sex.missing, sex.unknown) == (ColumnKind.CATEGORY, MissingRule.INDICATOR, UnknownRule.OTHER)
    assert (age.unit, age.log1p, age.clip, age.missing) == ("years", True, (0.0, 120.0), MissingRule.INDICATOR)
    assert not sex.settled
    assert not age.settled
    assert schema.missing is MissingRule.REFUSE
    assert job(TYPED).plan()["data"]["columns"]["age"]["clip"] == [0.0, 120.0]


def test_a_mean_for_all_gaps_needs_no_types() -> None:
    """`data.missing` alone makes plans of numbers."""
    assert [plan.missing for plan in data_schema(job('missing = "mean"')).columns] == [MissingRule.MEAN] * 2


def test_given_levels_leave_nothing_to_agree_on() -> None:
    """And levels beyond them are refused unless the job says otherwise."""
    columns = '[data.columns]\nsex = { kind = "category", levels = ["f", "m"] }'
    sex, age = data_schema(job(columns)).columns
    assert sex.settled
    assert age.settled
    assert sex.unknown is UnknownRule.REFUSE
    assert data_schema(job(columns)).features == ("sex=f", "sex=m", "age")


def test_parts_of_dates_ranks_and_medians_become_plans() -> None:
    """Months need no day that is 0, and nothing to agree on; ranks need quantiles, and their middle fills gaps."""
    columns = '[data.columns]\nsex = { kind = "date", parts = ["month", "weekday"] }\nage = { transform = "rank" }'
    sex, age = data_schema(job('missing = "median"\n' + columns)).columns
    assert (sex.missing, sex.since, sex.settled) == (MissingRule.INDICATOR, "1970-01-01", True)
    assert (len(sex.names), sex.names[0], sex.names[12], sex.names[-1]) == (
        20,
        "sex=january",
        "sex=monday",
        "sex=missing",
    )
    assert (age.rank, age.fill, age.settled, age.agrees_on_fill, age.agrees_on_quantiles) == (
        True,
        0.5,
        False,
        False,
        True,
    )
    plain = data_schema(job('missing = "median"')).columns
    assert [(plan.settled, plan.agrees_on_quantiles) for plan in plain] == [(False, True)] * 2


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ('[data.columns]\nsexx = "category"', "'sexx' is no feature"),
        ('[data.columns]\nsex = "word"', "kind"),
        ('[data.columns]\nsex = { kind = "category", unit = "m" }', "unit.*kind"),
        ('[data.columns]\nsex = "ordinal"', "needs levels"),
        ('[data.columns]\nsex = { kind = "ordinal", levels = ["a", "b"], unknown = "other" }', "for categories"),
        ('[data.columns]\nsex = "date"', "needs since"),
        ('[data.columns]\nsex = { kind = "date", since = "2020-02-30" }', "since"),
        ('[data.columns]\nage = { transform = "root" }', "log1p"),
        ('[data.columns]\nage = { kind = "date", parts = ["days"] }', "needs since"),
        ('[data.columns]\nage = { kind = "date", parts = ["month", "month"] }', "parts names one twice"),
        ('[data.columns]\nage = { kind = "date", parts = ["year"] }', "weekday"),
        ('[data.columns]\nage = { parts = ["month"] }', "parts.*kind"),
        ('[data.columns]\nage = { kind = "date", parts = ["month"], missing = "median" }', '"indicator"'),
        ('[data.columns]\nsex = { kind = "category", missing = "median" }', '"indicator"'),
        ("[data.columns]\nage = { clip = [2, 1] }", "smaller number first"),
        ('[data.columns]\nsex = { kind = "category", missing = "mean" }', '"indicator"'),
        ('[data.columns]\nsex = { kind = "category", levels = ["a", "a"] }', "different names"),
        ('[data.columns]\nsex = { kind = "category", levels = ["a"], least_rows = 5 }', "least_rows"),
        ('[data.columns]\nsex = "boolean"\n[data.ranges]\nsex = [0, 1]', "no plain number"),
        ('missing = "mode"', "missing"),
        (TYPED + "[features]\nlengthscale = [1.0, 2.0]", "one number, or a rule"),
        ('backbone = "b"\nmissing = "mean"', "backbone makes the columns"),
    ],
)
def test_what_does_not_go_together_is_refused(more: str, says: str) -> None:
    """With the key and the remedy."""
    with pytest.raises(ConfigError, match=says):
        job(more)


def asked(**changes: Any) -> DescribeDataRequest:
    """What a coordinator asks in the typed job when levels and means are agreed on."""
    data = job(TYPED).data
    assert data is not None
    sex, age = data.plans
    plans = (replace(sex, levels=("f", "m"), settled=True), replace(age, fill=3.9, settled=True))
    agreed = job(TYPED).model_copy(update={"data": data.agreed(plans)})
    return DescribeDataRequest(dataset="default", schema=replace(data_schema(agreed), **changes))


def test_a_client_holds_the_coordinator_to_the_types_of_the_file() -> None:
    """Levels and means are the clients' to agree on; all else is the file's, and the features follow."""
    request = asked()
    assert contradiction(job(TYPED), request) == ""
    assert request.schema.features == ("sex=f", "sex=m", "sex=other", "sex=missing", "age", "age=missing")
    sex, age = request.schema.columns
    for other in ((sex, replace(age, clip=())), (replace(sex, least_rows=9), age), (sex,), ()):
        assert "a column" in contradiction(job(TYPED), asked(columns=other))
    assert "feature columns" in contradiction(job(TYPED), asked(features=("sex=f", "age")))
    assert "a column" in contradiction(job(), asked())


def test_a_client_holds_the_question_for_levels_to_the_file() -> None:
    """No other column of its file is asked about."""
    data = job(TYPED).data
    assert data is not None
    assert contradiction(job(TYPED), FindColumnsRequest(dataset="default", columns=data.plans)) == ""
    for columns in (data.plans[:1], (), (replace(data.plans[0], name="name"), data.plans[1])):
        assert "columns" in contradiction(job(TYPED), FindColumnsRequest(dataset="default", columns=columns))
    assert "data set" in contradiction(job(TYPED), FindColumnsRequest(dataset="x", columns=data.plans))
