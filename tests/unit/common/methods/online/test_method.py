"""What a job file on streams fixes of the requests that a coordinator sends for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernfed.errors import ConfigError
from kernfed.federation.messages.data import DescribeDataRequest
from kernfed.jobs.held_to import contradiction
from kernfed.jobs.job_file import data_schema, parse_job
from kernfed.methods.online.losses import Loss
from kernfed.methods.online.messages import OpenStreamRequest

TEXT = """name = "demo"
seed = 3
[method]
name = "online"
[data]
task = "regression"
target = "y"
features = ["a", "b"]
"""


def test_the_job_that_is_gone_on_from() -> None:
    """A client's state of another job than the file names, or of any where it names none, is not gone on from."""
    begins = f'start_from = "weeks"\n{TEXT}[files]\nweeks = "{"0" * 64}"\n'
    opened = OpenStreamRequest(norm=1.0, target_low=0.0, target_span=1.0, loss=Loss.SQUARED, seed=1, outlier_spans=5.0)
    other = replace(opened, former="other-aaaaaaaa")
    assert contradiction(parse_job(TEXT), opened) == ""
    assert "asks for the state of job other-aaaaaaaa" in contradiction(parse_job(TEXT), other)
    held = parse_job(f'{begins}[former]\njob_id = "weeks-aaaaaaaa"\n')
    assert contradiction(held, replace(opened, former="weeks-aaaaaaaa")) == ""
    for wrong in (opened, other):
        assert "and the job file says weeks-aaaaaaaa" in contradiction(held, wrong)
    assert contradiction(parse_job(begins), other) == ""  # submitted by an earlier release
    with pytest.raises(ConfigError, match="there is no start_from"):
        parse_job(f'{TEXT}[former]\njob_id = "weeks-aaaaaaaa"\n')


def test_what_a_method_sets_itself() -> None:
    """A method on streams holds no rows out, whatever the file says; no other split is asked for than these two."""
    fixed = parse_job(TEXT)
    schema = data_schema(fixed)
    for share, held in ((0.0, True), (schema.test_fraction, True), (0.5, False)):
        request = DescribeDataRequest(dataset="default", schema=replace(schema, test_fraction=share))
        assert (contradiction(fixed, request) == "") is held
