"""The operator's page as people see it, in Chromium."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import ConsoleMessage

from kernfed.federation.events import EventKind, JobEvent
from kernfed_server.federation.standing import Standing
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.machine.chromium import chromium
from kernfed_testing.worlds.page_world import page_world

WIDTHS = (360, 768, 1280)

FAINT = """
() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const part = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const found = parse(getComputedStyle(e).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const ink = parse(element.closest("svg") ? style.fill : style.color);
    const [a, b] = [light(ink), light(behind(element))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) faint.push(`${element.tagName}.${element.getAttribute("class")}: ${ratio.toFixed(2)}`);
  }
  return faint;
}
"""
"""Elements whose text stands out less from what is behind it than WCAG AA asks of small text (4.5 to 1)."""


@pytest.mark.slow
async def test_the_page_in_a_browser(tmp_path: Path) -> None:
    """A link signs in, pages fit each width and can be read in both modes, and a job is followed and cancelled."""
    async with page_world(tmp_path, "a", "b") as page, page.served() as served, chromium() as browser:
        over = await page.jobs.submit("over", ["a", "b"], rounds=2)
        page.jobs.script.go("over", 2)
        await page.jobs.finished(over.job_id)
        live = await page.jobs.submit("live", ["a", "b"], rounds=9)
        page.jobs.script.go("live")
        await page.jobs.until(live.job_id, lambda u: bool(u.event and u.event.event.kind is EventKind.ROUND_CLOSED))
        history = page.jobs.runs.queue.active[live.job_id].history
        history.note(JobEvent(EventKind.CLIENT_FAILED, 1, "probe.echo", "b", "x" * 300, "STEP_FAILED"))
        page.steps.of[live.job_id] = Standing("probe.echo", 2, ("a", "b"), ("b",), frozenset(), "12:00:00 UTC", True)

        context = await browser.new_context(ignore_https_errors=True)
        context.set_default_timeout(1000 * LIMIT_S)
        tab = await context.new_page()
        faults: list[str] = []
        tab.on("pageerror", lambda error: faults.append(str(error)))
        tab.on("console", lambda said: faults.append(said.text) if _is_fault(said) else None)
        origin = f"https://{served.address}"
        await tab.goto(f"{origin}/sign-in#{page.code()}")
        await tab.wait_for_url(f"{origin}/")
        assert await tab.evaluate("document.cookie") == ""
        for path in ("/", "/clients", f"/jobs/{over.job_id}", f"/jobs/{live.job_id}", "/submit"):
            await tab.goto(origin + path)
            for mode in ("light", "dark"):
                await tab.emulate_media(color_scheme=mode)
                for width in WIDTHS:
                    await tab.set_viewport_size({"width": width, "height": 900})
                    wide = await tab.evaluate("document.documentElement.scrollWidth")
                    assert wide <= width, (path, width, wide)
                assert await tab.evaluate(FAINT) == [], (path, mode)
        await tab.goto(f"{origin}/jobs/{live.job_id}")
        page.jobs.script.go("live")
        facts = tab.locator("#facts")
        await facts.get_by_text("2/9").wait_for()
        await tab.get_by_text("Cancel this job").click()
        await tab.get_by_role("button", name=f"Cancel {live.job_id}").click()
        await facts.get_by_text("cancelled", exact=True).first.wait_for()
        assert (await page.jobs.runs.get(live.job_id)).state == "cancelled"
        assert faults == []


def _is_fault(said: ConsoleMessage) -> bool:
    """Chromium ends all loading where a network comes or goes here, as those of containers do."""
    return said.type == "error" and "ERR_NETWORK_CHANGED" not in said.text
