"""Fixtures that drive a real Chromium through Playwright."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from django.conf import settings
from django.test import Client

from tests.logins import aged
from tests.plugin import NO_CHROMIUM
from webapp.people.teams.models import User

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-quic",
    "--no-first-run",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    # Pages of its own for the address bar, made with each window though it is not visible: 0.8 s of processor time.
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup",
]
EXPECT_MS = 30_000
"""How long a page may take to show what is expected, as long as for any other wait: browsers share two cores."""
# First the one without windows and menus, which no test looks at: its pages cost a third less processor time.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")


def chromium_path() -> str | None:
    """The Chromium of this machine; ``None`` where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A running Chromium. Where there is none: CI fails, a laptop skips.

    Of a module, not of the session: Playwright's loop runs in this thread while it lives, and asynchronous tests of
    other modules cannot start theirs at the same time.
    """
    path = chromium_path()
    if path is None or not _driver_starts():
        if os.environ.get("CI"):
            pytest.fail(NO_CHROMIUM)
        pytest.skip(NO_CHROMIUM)
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=EXPECT_MS)
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"  # Playwright's loop makes Django think that we are asynchronous
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
            yield browser
            browser.close()
    finally:
        if before is None:
            os.environ.pop("DJANGO_ALLOW_ASYNC_UNSAFE", None)


def _driver_starts() -> bool:
    """Whether Playwright's own Node.js starts: it needs libatomic, which slim images of Debian lack."""
    from playwright._impl._driver import compute_driver_executable

    return subprocess.run([compute_driver_executable()[0], "--version"], capture_output=True).returncode == 0


@pytest.fixture
def page_for(chromium: Browser, site: str, transactional_db: None) -> Iterator[Callable[..., Page]]:
    """``page_for(user, locale=…, viewport=…)``: a new tab of a browser in which that person is logged in; with
    ``old=True`` since more than fifteen minutes ago."""
    contexts = []

    def make(user: User | None = None, *, old: bool = False, **options: object) -> Page:
        context = chromium.new_context(base_url=site, **options)  # type: ignore[arg-type]
        contexts.append(context)
        if user is not None:
            client = Client()
            client.force_login(user)
            client = aged(client) if old else client
            name = settings.SESSION_COOKIE_NAME
            context.add_cookies([{"name": name, "value": client.cookies[name].value, "url": site}])
        return context.new_page()

    yield make
    for context in contexts:
        context.close()


@pytest.fixture
def page(page_for: Callable[..., Page]) -> Page:
    """A tab without a login; addresses are relative to the site."""
    return page_for()
