"""A Chromium of the tests' own, without a window; from Debian's package."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, async_playwright


@contextlib.asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser; the test is skipped where none is installed, but on CI."""
    found = shutil.which("chromium")
    if found is None:
        assert not os.environ.get("CI"), "CI must test the page: apt-get install chromium"
        pytest.skip("Chromium is not installed (apt-get install chromium)")
    async with async_playwright() as playwright:
        # Its sandbox needs rights that a container has not; it opens our own pages alone.
        browser = await playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()
