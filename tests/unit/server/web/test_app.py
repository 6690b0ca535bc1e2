"""`kernfed_server.web.app`: who may see and do what, and each refusal in words."""

from __future__ import annotations

import html
from pathlib import Path
from unittest import mock

import pytest

from kernfed.pki.identity import Role
from kernfed_server.web import looks
from kernfed_testing.worlds.job_world import probe_toml
from kernfed_testing.worlds.page_world import ORIGIN, page_world, token_in

OPERATORS_PAGES = (
    "/clients",
    "/clients/live",
    "/submit",
    "/jobs/x",
    "/jobs/x/live",
    "/jobs/x/timeline",
    "/jobs/x/files/y",
)


async def test_a_code_signs_in_once(tmp_path: Path) -> None:
    """The cookie is for this host over TLS, out of scripts' and other sites' reach; a used code is refused."""
    async with page_world(tmp_path, "a") as page:
        browser, code = page.browser(), page.code()
        answer = await browser.post("/sign-in", data={"code": f"https://page.test/sign-in#{code}"})
        cookie = answer.headers["set-cookie"]
        assert answer.headers["location"] == "/"
        assert cookie.startswith("__Host-kernfed=")
        assert {"httponly", "secure", "samesite=strict", "path=/"} <= {
            part.strip().lower() for part in cookie.split(";")
        }
        assert "operator/ann" in (await browser.get("/")).text
        again = await page.browser().post("/sign-in", data={"code": code})
        assert again.status_code == 401
        assert "used already" in again.text


async def test_an_old_code_and_an_old_cookie_open_nothing(tmp_path: Path) -> None:
    """A code ends after two minutes, a cookie after eight hours."""
    async with page_world(tmp_path) as page:
        code = page.code()
        page.clock[0] = 121.0
        assert (await page.browser().post("/sign-in", data={"code": code})).status_code == 401
        browser = page.browser()
        await browser.post("/sign-in", data={"code": page.code()})
        page.clock[0] += 8 * 3600.0
        assert (await browser.get("/")).status_code == 401


async def test_nobody_without_certificate_or_code(tmp_path: Path) -> None:
    """Every page asks who is there, and says how to come in."""
    async with page_world(tmp_path) as page:
        for path in ("/", "/live", *OPERATORS_PAGES):
            answer = await page.browser().get(path)
            assert answer.status_code == 401, path
            assert "kernfed web" in answer.text


async def test_a_client_sees_its_own_jobs_alone(tmp_path: Path) -> None:
    """A job that waits for a client says so to it; jobs of others, and all that acts, are not for clients."""
    async with page_world(tmp_path, "a", "b") as page:
        mine = await page.jobs.submit("mine", ["a"])
        others = await page.jobs.submit("others", ["b"])
        await page.jobs.script.wait_started(2)
        browser = page.browser(Role.CLIENT, "a")
        listed = (await browser.get("/")).text
        assert mine.job_id in listed
        assert others.job_id not in listed
        for path in OPERATORS_PAGES:
            assert (await browser.get(path)).status_code == 403, path
        refused = await browser.post(f"/jobs/{mine.job_id}/cancel", data={})
        assert refused.status_code == 403
        page.jobs.script.free = True
        page.jobs.script.go("mine")
        page.jobs.script.go("others")


async def test_a_revoked_operator_is_out_at_once(tmp_path: Path) -> None:
    """By certificate and by cookie alike, and a code that was made before signs nobody in."""
    async with page_world(tmp_path) as page:
        by_cookie = page.browser()
        await by_cookie.post("/sign-in", data={"code": page.code()})
        by_certificate, code = page.browser(Role.OPERATOR), page.code()
        assert (await by_certificate.get("/")).status_code == 200
        page.revoked.update(c.serial for c in page.identities.pki.registry.certificates() if c.role is Role.OPERATOR)
        for browser in (by_cookie, by_certificate):
            answer = await browser.get("/")
            assert answer.status_code == 401
            assert "was revoked" in answer.text
        assert "was revoked" in (await page.browser().post("/sign-in", data={"code": code})).text


async def test_a_form_of_another_site_changes_nothing(tmp_path: Path) -> None:
    """Without the form's token, from another origin, or as no form, a post is refused, and the job stays."""
    async with page_world(tmp_path, "a") as page:
        job = await page.jobs.submit("mine", ["b"])
        browser = page.browser(Role.OPERATOR)
        cancel = f"/jobs/{job.job_id}/cancel"
        token = token_in((await browser.get(f"/jobs/{job.job_id}")).text)
        elsewhere = {"origin": "https://evil.test"}
        assert (await browser.post(cancel, data={"form_token": token}, headers=elsewhere)).status_code == 403
        inside = {"sec-fetch-site": "cross-site"}
        assert (await browser.post(cancel, data={"form_token": token}, headers=inside)).status_code == 403
        assert (await browser.post(cancel, data={"form_token": "0" * 64})).status_code == 403
        assert (await browser.post(cancel, json={"form_token": token})).status_code == 400
        assert (await browser.post("/sign-in", data={"code": page.code()}, headers=elsewhere)).status_code == 403
        assert not (await page.jobs.runs.get(job.job_id)).state.finished
        answer = await browser.post(cancel, data={"form_token": token})
        assert answer.status_code == 303
        assert (await page.jobs.runs.get(job.job_id)).state == "cancelled"


async def test_looking_changes_nothing(tmp_path: Path) -> None:
    """What acts is not asked by GET."""
    async with page_world(tmp_path, "a") as page:
        job = await page.jobs.submit("mine", ["b"])
        browser = page.browser(Role.OPERATOR)
        for path in (f"/jobs/{job.job_id}/cancel", "/sign-out"):
            assert (await browser.get(path)).status_code == 405
        assert (await browser.get(f"/sign-in?code={page.code()}")).headers.get("set-cookie") is None
        assert not (await page.jobs.runs.get(job.job_id)).state.finished


async def test_too_much_is_refused(tmp_path: Path) -> None:
    """Ten thousand characters where a code, a name or a job's id belongs, and a form without end, get a sentence."""
    async with page_world(tmp_path) as page:
        browser, long = page.browser(Role.OPERATOR), "x" * 10_000
        token = token_in((await browser.get("/submit")).text)
        assert (await page.browser().post("/sign-in", data={"code": long})).status_code == 401
        for path, status in ((f"/jobs/{long}", 404), (f"/clients?find={long}", 400), (f"/?before={long}", 400)):
            answer = await browser.get(path)
            assert answer.status_code == status, path[:40]
            assert long not in answer.text
        answer = await browser.post("/submit", data={"form_token": token, "job_toml": long})
        assert answer.status_code == 400
        answer = await browser.post(
            "/submit", content=b"x" * (5 << 20), headers={"content-type": "application/x-www-form-urlencoded"}
        )
        assert answer.status_code == 413


async def test_every_answer_keeps_scripts_out(tmp_path: Path) -> None:
    """Pages, refusals and files of the page come with a policy that runs no script inside them."""
    async with page_world(tmp_path) as page:
        for browser, path in (
            (page.browser(Role.OPERATOR), "/"),
            (page.browser(), "/"),
            (page.browser(), "/static/page.js"),
        ):
            headers = (await browser.get(path)).headers
            assert "script-src 'self';" in headers["content-security-policy"]
            assert "'unsafe" not in headers["content-security-policy"]
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"


async def test_an_unexpected_error_is_told_in_fixed_words(tmp_path: Path) -> None:
    """The trace goes to the log, and nowhere else."""
    async with page_world(tmp_path) as page:
        with mock.patch.object(looks, "view_job", side_effect=ZeroDivisionError("secret of a site")):
            answer = await page.browser(Role.OPERATOR).get("/jobs/x")
        assert answer.status_code == 500
        assert "secret" not in answer.text
        assert "internal error" in answer.text


async def test_submit_checks_as_the_command_does(tmp_path: Path) -> None:
    """A wrong file comes back with what is wrong, its text escaped; a form that is sent twice is one job."""
    async with page_world(tmp_path, "a") as page:
        browser = page.browser(Role.OPERATOR)
        form = (await browser.get("/submit")).text
        fields = {"form_token": token_in(form), "request_id": "r1"}
        wrong = await browser.post("/submit", data={**fields, "job_toml": 'name = "</textarea><script>alert(1)"\n'})
        assert wrong.status_code == 400
        assert "INVALID_CONFIG" in wrong.text
        assert "<script>alert" not in wrong.text
        assert html.escape("</textarea><script>alert(1)") in wrong.text
        good = {**fields, "job_toml": probe_toml("mine", ["a"]).replace("\n", "\r\n")}
        first, second = await browser.post("/submit", data=good), await browser.post("/submit", data=good)
        assert first.status_code == second.status_code == 303
        assert first.headers["location"] == second.headers["location"]
        job = await page.jobs.runs.get(first.headers["location"].rpartition("/")[2])
        assert (job.name, job.submitted_by) == ("mine", "ann")
        page.jobs.script.free = True
        page.jobs.script.go("mine")


async def test_signing_out_forgets_the_cookie(tmp_path: Path) -> None:
    """The cookie of a visitor who left opens nothing, also where it was copied."""
    async with page_world(tmp_path) as page:
        browser = page.browser()
        await browser.post("/sign-in", data={"code": page.code()})
        copied = dict(browser.cookies)
        token = token_in((await browser.get("/")).text)
        assert (await browser.post("/sign-out", data={"form_token": token})).headers["location"] == "/sign-in"
        assert (await page.browser(cookies=copied).get("/")).status_code == 401


@pytest.mark.parametrize("path", ["/nothing", "/static/door.py", "/static/..%2fdoor.py"])
async def test_nothing_else_is_served(tmp_path: Path, path: str) -> None:
    """A page that is not there, and files that are not the page's, are told as such."""
    async with page_world(tmp_path) as page:
        answer = await page.browser().get(path)
        assert answer.status_code == 404
        assert "Traceback" not in answer.text
        assert ORIGIN not in answer.text
