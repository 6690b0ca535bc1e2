"""What the policy forbids is refused with the key that allows it."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from kernfed.errors import PolicyError, SubmissionError
from kernfed.federation.messages.base import Kind
from kernfed.federation.messages.data import DescribeDataRequest, MeanEmbeddingRequest
from kernfed.federation.messages.sums import SumTerms
from kernfed.jobs.client_file import PolicySection
from kernfed.jobs.job_file import parse_job
from kernfed.jobs.secure_sum_section import SecureSumSection
from kernfed.methods.personalise.messages import StatisticsRequest
from kernfed.methods.probe.messages import EchoRequest
from kernfed.methods.ridge.masked_messages import MaskedSolveRequest
from kernfed.methods.ridge.messages import GradientDescentRequest, LocalSolveRequest
from kernfed.pki.submission import Signed
from kernfed_client.daemon.policy import Policy

SIGNED = Signed("ann", "5e41a1", "ab" * 32, datetime(2026, 1, 2, tzinfo=UTC), bytes(32))


def test_defaults_let_all_kinds_but_unlabelled_samples_pass() -> None:
    """Without a policy section all kinds of information may leave but unlabelled samples."""
    assert set(PolicySection().allow) == set(Kind) - {Kind.UNLABELLED_SAMPLE, Kind.STORED_STATISTIC}
    Policy(PolicySection()).check(MeanEmbeddingRequest(num_features=5, num_outputs=1), "ann", "newton", 10)


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"allow": [Kind.SUMMARY]}, "data.mean_embedding sends mean_embedding, .*policy.allow"),
        ({"allow": []}, "policy.allow"),
        ({"min_rows": 51}, "fewer than 51 training rows; .*policy.min_rows"),
        ({"operators": ["bob"]}, "operator 'ann'; .*policy.operators"),
        ({"operators": []}, "operator 'ann'; .*policy.operators"),
        ({"methods": ["local", "newton-x"]}, "method 'newton'; .*policy.methods"),
    ],
)
def test_a_refusal_names_what_and_the_key(section: dict[str, object], expected: str) -> None:
    """A refusal tells what was asked for and the key that forbids it, and not the number of rows."""
    policy = Policy(PolicySection.model_validate(section))
    with pytest.raises(PolicyError) as caught:
        policy.check(MeanEmbeddingRequest, "ann", "newton", 50)
    assert re.search(expected, str(caught.value))
    assert " 50" not in str(caught.value), "the number of rows is not told"


def test_rows_are_counted_once_they_are_known() -> None:
    """The least number of rows is asked for as soon as rows are known."""
    policy = Policy(PolicySection(min_rows=10))
    policy.check(DescribeDataRequest, "ann", "newton", None)
    policy.check(DescribeDataRequest, "ann", "newton", 10)
    with pytest.raises(PolicyError):
        policy.check(DescribeDataRequest, "ann", "newton", 9)


def test_a_reply_without_data_needs_no_rows() -> None:
    """A reply that tells nothing of the data passes the strictest policy."""
    strictest = Policy(PolicySection(allow=[]))
    strictest.check(EchoRequest, "ann", "probe", 0)
    with pytest.raises(PolicyError):
        strictest.check(DescribeDataRequest, "ann", "probe", 99)


def test_named_operators_and_methods_pass() -> None:
    """Operators and methods that the policy names are let through, and no others."""
    policy = Policy(PolicySection(operators=["ann"], methods=["newton"]))
    policy.check(MeanEmbeddingRequest, "ann", "newton", 99)
    for operator, method in (("bob", "newton"), ("ann", "fedavg")):
        with pytest.raises(PolicyError):
            policy.check(MeanEmbeddingRequest, operator, method, 99)


def test_an_operator_signs_by_the_keys_that_the_policy_names() -> None:
    """A key that the policy does not name is refused even where the federation's CA says whose it is."""
    pinned = Policy(PolicySection(operator_keys={"ann": ["cd" * 32]}, unsigned="allow"))
    with pytest.raises(SubmissionError, match=rf"operator ann with the key {'ab' * 32}, .*policy\.operator_keys"):
        pinned.check_signed(SIGNED)
    pinned.check_signed(replace(SIGNED, key_sha256="cd" * 32))
    pinned.check_signed(replace(SIGNED, operator="bob"))  # of whom policy.operators decides
    pinned.check_signed(None)


def test_signed_jobs_without_a_fresh_list() -> None:
    """They are run, unless the policy says otherwise; of unsigned ones the list says nothing."""
    Policy(PolicySection()).check_signed(SIGNED, stale="no list has come")
    strict = Policy(PolicySection(stale_revocations="refuse"))
    strict.check_signed(SIGNED)
    strict.check_signed(None)
    with pytest.raises(SubmissionError, match=r"^no list has come.*policy\.stale_revocations"):
        strict.check_signed(SIGNED, stale="no list has come")


@pytest.mark.parametrize(
    ("section", "refused"),
    [
        (PolicySection(), False),
        (PolicySection(operators=["ann"]), True),
        (PolicySection(methods=["dkrr"]), True),
        (PolicySection(methods=["dkrr"], unsigned="allow"), False),
        (PolicySection(unsigned="refuse"), True),
        (PolicySection(operator_keys={"ann": ["ab" * 32]}), True),
    ],
)
def test_a_policy_that_goes_by_names_wants_signed_jobs(section: PolicySection, refused: bool) -> None:
    """Where operators or methods are named, a job that is not signed, or cannot be read, is refused with the key."""
    policy = Policy(section)
    policy.check_signed(SIGNED)
    for signed, unread, why in ((None, "", "is not signed"), (SIGNED, "key x", "cannot read")):
        if refused:
            with pytest.raises(SubmissionError, match=f"{why}.*policy.unsigned"):
                policy.check_signed(signed, unread)
        else:
            policy.check_signed(signed, unread)


@pytest.mark.parametrize("methods", [None, ["dkrr"]])
@pytest.mark.parametrize("request_class", [GradientDescentRequest, StatisticsRequest, EchoRequest])
def test_a_job_asks_the_steps_of_its_method_alone(
    methods: list[str] | None, request_class: type[GradientDescentRequest | StatisticsRequest | EchoRequest]
) -> None:
    """A job that is stated to be dkrr gets no other method's step, whether or not the policy names methods."""
    policy = Policy(PolicySection(methods=methods))
    policy.check(LocalSolveRequest, "ann", "dkrr", 99)
    with pytest.raises(PolicyError, match=f"method 'dkrr' may not ask the step {request_class.step}"):
        policy.check(request_class, "ann", "dkrr", 99)


def test_a_method_whose_steps_are_not_known_runs_where_no_methods_are_named() -> None:
    """A method of a package that only the coordinator has runs, unless the policy names methods to hold jobs to."""
    Policy(PolicySection()).check(GradientDescentRequest, "ann", "median", 99)
    with pytest.raises(PolicyError, match=r"'median' is in policy\.methods, but .*install the package"):
        Policy(PolicySection(methods=["median"])).check(GradientDescentRequest, "ann", "median", 99)


@pytest.mark.parametrize("batch_size", [1, 9])
def test_a_batch_stands_for_enough_rows(batch_size: int) -> None:
    """A step on a batch of fewer rows than the policy asks for is refused with both keys; 0 is all rows."""
    policy = Policy(PolicySection(min_rows=10))

    def ask(size: int) -> None:
        update = GradientDescentRequest(
            ridge=0.0, weights=np.zeros((2, 1)), learning_rate=1.0, num_steps=1, batch_size=size, seed=0
        )
        policy.check(update, "ann", "fedavg", 60)

    ask(0)
    ask(10)
    with pytest.raises(PolicyError, match=r"batches of \d rows.*method.batch_size.*policy.min_rows"):
        ask(batch_size)


def test_a_job_of_few_clients_is_refused() -> None:
    """A cohort below the policy's least, or one of which nothing was said, is refused; by default any will do."""
    policy = Policy(PolicySection(min_cohort=3))
    policy.check(DescribeDataRequest, "ann", "newton", 99, 3)
    policy.check(DescribeDataRequest, "ann", "newton", 99)
    for size in (0, 2):
        Policy(PolicySection()).check(DescribeDataRequest, "ann", "newton", 99, size)
        with pytest.raises(PolicyError, match=r"fewer than 3 clients.*policy\.min_cohort"):
            policy.check(DescribeDataRequest, "ann", "newton", 99, size)


@pytest.mark.parametrize(
    ("policy", "method", "cohort", "why"),
    [
        ({"operators": ["bob"]}, "", "", r"no jobs of operator 'ann'.*policy\.operators"),
        ({"methods": ["dkrr"]}, "", "", r"does not run method 'fedavg'.*policy\.methods"),
        ({"allow": ["summary"]}, "", "", r"fedavg\.local_update sends model_update.*policy\.allow"),
        ({"min_rows": 40}, "batch_size = 20", "", r"batches of 20 rows.*policy\.min_rows"),
        ({"min_cohort": 3}, "", 'clients = ["a", "b"]', r"fewer than 3 clients.*policy\.min_cohort"),
        ({}, "", 'clients = ["b", "c"]', r"is for b, c, and not for this client.*cohort\.clients"),
    ],
)
def test_a_job_is_judged_whole_by_its_file(policy: dict[str, Any], method: str, cohort: str, why: str) -> None:
    """What a job will surely ask is judged by its signed file, before the first answer leaves."""
    text = f"""name = "demo"
[method]
name = "fedavg"
{method}
[cohort]
{cohort}
[data]
task = "regression"
target = "y"
features = ["x"]
"""
    Policy(PolicySection()).check_job(parse_job(text.replace('["b", "c"]', '["a"]')), "ann", "a")
    with pytest.raises(PolicyError, match=why):
        Policy(PolicySection(**policy)).check_job(parse_job(text), "ann", "a")


def test_a_site_that_requires_secure_sums_sends_no_models_in_the_clear() -> None:
    """What sums can be made of is refused in the clear and passes masked; what no sum is made of passes."""
    policy = Policy(PolicySection(secure_sum=SecureSumSection(require=True)))
    inner = LocalSolveRequest(ridge=0.1, num_features=5, num_outputs=1)
    with pytest.raises(PolicyError, match=r"model_update in the clear, .*policy\.secure_sum\.require"):
        policy.check(inner, "ann", "dkrr", 50)
    terms = SumTerms(sum="1", clients=("a", "b", "c"), weights=(0.3, 0.3, 0.4), exponent=3)
    policy.check(MaskedSolveRequest(terms=terms, inner=inner), "ann", "dkrr", 50)
    policy.check(MeanEmbeddingRequest(num_features=5, num_outputs=1), "ann", "dkrr", 50)
    with pytest.raises(PolicyError, match=r"policy\.min_rows"):
        policy.check(MaskedSolveRequest(terms=terms, inner=inner), "ann", "dkrr", 5)


def test_a_whole_job_is_judged_by_what_it_masks() -> None:
    """A job with secure sums passes where they are required; the same job in the clear does not."""
    policy = Policy(PolicySection(secure_sum=SecureSumSection(require=True)))
    text = """
        name = "j"
        [method]
        name = "dkrr"
        [data]
        task = "regression"
        target = "y"
        features = ["x"]
    """
    policy.check_job(parse_job(text + '[privacy]\nsums = "secure"\n'), "ann", "site")
    with pytest.raises(PolicyError, match="in secure sums alone"):
        policy.check_job(parse_job(text), "ann", "site")
