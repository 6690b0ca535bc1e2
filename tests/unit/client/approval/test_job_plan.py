"""What a job would send, told before it runs."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from kernfed.federation.messages.base import Kind
from kernfed.jobs.client_file import PolicySection
from kernfed.jobs.held_to import contradiction
from kernfed.jobs.job_file import parse_job
from kernfed.methods.heads.messages import HeadGradientRequest, HeadLossesRequest
from kernfed.methods.registry import METHODS, method_of
from kernfed.methods.ridge.messages import HeldOutLossRequest
from kernfed_client.approval.job_plan import TELLS, as_json, as_table, plan_of

JOB = """name = "demo"
[method]
name = "newton"
[cohort]
clients = ["a", "b"]
[data]
task = "binary"
target = "y"
features = ["age", "do\\u001bse"]
[features]
num_frequencies = 50
"""


def test_a_plan_names_steps_shapes_bytes_and_what_the_policy_refuses() -> None:
    """Known sizes become numbers and bytes, and kinds that are not allowed are named where the job may ask them."""
    allowed = [kind for kind in PolicySection().allow if kind is not Kind.NEWTON_STEP]
    plan = plan_of(parse_job(JOB), PolicySection(allow=allowed), "ann")
    steps = {step.step: step for step in plan.steps}
    assert (plan.cohort, plan.sizes["C"], plan.operator, len(plan.plan)) == (["a", "b"], 1, "ann", 64)
    start = steps["newton.start"]
    num = plan.sizes["M"]
    assert (start.surely, start.holds) == (True, [f"weights ({num} x 1)", f"moment ({num} x 1)"])
    assert start.bytes is not None
    assert 16 * num <= start.bytes <= 16 * num + 64
    assert [name for name, step in steps.items() if step.refused] != []
    assert steps["newton.step"].refused == ["newton_step"]
    assert "newton_step" in plan.coordinator_learns
    assert "data.find_columns" not in steps  # the job has no columns with types


def test_the_plan_of_a_secure_job_has_masked_terms_in_place_of_models() -> None:
    """What is summed under masks is never told as sent in the clear, and the other way round."""
    text = JOB.replace('"newton"', '"dkrr"\nridge = 0.1').replace('"a", "b"', '"a", "b", "c"')
    secure = plan_of(parse_job(f'{text}\n[privacy]\nsums = "secure"\n'), PolicySection())
    clear = plan_of(parse_job(text), PolicySection())
    told = [{step.step: step.surely for step in plan.steps} for plan in (secure, clear)]
    assert told[0]["ridge.masked_solve"]
    assert "ridge.local_solve" not in told[0]
    assert secure.coordinator_learns["model_update"].startswith("of all clients together, and of none alone: ")
    assert "secure sums over 3 clients" in secure.secure_sums
    assert not clear.secure_sums
    assert {"sums.keys", "sums.deal", "sums.unmask"} <= told[0].keys()
    assert told[1]["ridge.local_solve"]
    assert not {"ridge.masked_solve", "sums.keys", "sums.deal", "sums.unmask"} & told[1].keys()


def test_the_plan_counts_what_leaves_in_secure_sums_alone() -> None:
    """Steps that would send in the clear what `secure_sum.require` holds back are refused, and masked ones are not."""
    text = JOB.replace('"newton"', '"dkrr"\nridge = 0.1').replace('"a", "b"', '"a", "b", "c"')
    policy = PolicySection.model_validate({"secure_sum": {"require": True}})
    clear, secure = (
        plan_of(parse_job(f"{text}\n[privacy]\nsums = {way}\n"), policy) for way in ('"clear"', '"secure"')
    )
    told = [{step.step: step.clear for step in plan.steps if step.surely} for plan in (clear, secure)]
    assert told[0]["ridge.local_solve"] == ["model_update"]
    assert told[1]["ridge.masked_solve"] == []
    console = Console(file=io.StringIO(), width=200)
    console.print(as_table(clear))
    assert "refuses model_update in the clear" in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", ["dkrr", "fedavg", "fedprox", "newton"])
def test_no_step_of_a_secure_job_tells_of_one_client_alone(method: str) -> None:
    """Of all that a method may ask, nothing that sums can be made of is in such a plan, or answered, in the clear."""
    text = JOB.replace('"newton"', f'"{method}"\nridge = 0.1').replace('"a", "b"', '"a", "b", "c"')
    job = parse_job(f'{text}\n[privacy]\nsums = "secure"\n')
    for step in plan_of(job, PolicySection()).steps:
        assert "masked" in step.step or set(step.kinds) <= {"summary", "mean_embedding", "metric"}, step.step
    zeros = np.zeros((3, 1))
    for request in (
        HeadGradientRequest(ridge=0.1, leave_out=False, weights=zeros),
        HeadLossesRequest(ridge=0.1, weights=zeros, direction=zeros, step_sizes=np.zeros(1)),
        HeldOutLossRequest(fold=1, weights=zeros),
    ):
        assert f"{request.step} is asked in the clear" in contradiction(job, request)


def test_every_kind_and_method_has_its_words() -> None:
    """Each kind of information is explained, and the steps that a method surely asks are among those of its plan."""
    assert set(TELLS) == set(Kind)
    for name, method in METHODS.items():
        text = f'name = "x"\n[method]\nname = "{name}"\n'
        if name == "probe":
            plan = plan_of(parse_job(text), PolicySection())
            assert (plan.columns, plan.coordinator_learns, plan.plan) == ([], {}, "")
            assert {step.step for step in plan.steps} == {request.step for request in method.steps or ()}


def test_the_table_steers_no_terminal() -> None:
    """Names that come from a job file have no control characters in the table for people."""
    job = parse_job(JOB)
    out = io.StringIO()
    Console(file=out, width=200).print(as_table(plan_of(job, PolicySection(), "ann")))
    assert "\x1b" not in out.getvalue()
    assert "age, do\ufffdse" in out.getvalue()
    assert as_json(plan_of(job, PolicySection()))["method"] == method_of(job.method).name


@pytest.mark.parametrize("approve", ["manual", "known"])
def test_approval_needs_signed_jobs(approve: str) -> None:
    """A policy that lets people decide goes by what operators signed, and cannot take jobs without a signature."""
    assert PolicySection.model_validate({"approve": approve}).goes_by_names
    assert not PolicySection().goes_by_names
    with pytest.raises(ValueError, match='remove unsigned = "allow"'):
        PolicySection.model_validate({"approve": approve, "unsigned": "allow"})
