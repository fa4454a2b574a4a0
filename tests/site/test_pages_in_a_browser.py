"""The built site works in a browser. The session ``site`` of nox builds it, and names its folder in ``STEPPE_SITE``."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.limits import CHILD

SITE = os.environ.get("STEPPE_SITE", "")
CHROMIUM = shutil.which("chromium") or ""

pytestmark = [
    pytest.mark.skipif(not SITE, reason="no site was built: `nox -s site` does"),
    pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed: apt-get install chromium"),
    pytest.mark.timeout(300),
]

#: Pages of each kind, which the slow checks open.
SAMPLES = ["index.html", "environments/gym.html", "api/steppe.specs.html", "migrating-from-torchrl.html", "errors.html"]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Print no requests."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Serve the site on this machine."""
    handler = functools.partial(Quiet, directory=SITE)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join(CHILD)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """A page that refuses addresses of other machines, so that no test depends on a network."""
    context = browser.new_context(base_url=address, viewport={"width": 1280, "height": 900})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    context.route(lambda url: not url.startswith(address), lambda route: route.abort())
    page = context.new_page()
    yield page
    context.close()


def pages() -> list[str]:
    return sorted(path.relative_to(SITE).as_posix() for path in Path(SITE).rglob("*.html") if SITE)


def test_pages_load_without_errors_and_broken_pictures(page: Any):
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    for name in pages():
        page.goto(f"/{name}", wait_until="load")
        broken = page.evaluate("[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)")
        problems += [f"{name}: {each}" for each in broken]
    assert problems == []


def test_no_page_is_wider_than_a_phone(page: Any):
    page.set_viewport_size({"width": 390, "height": 800})
    wide = {}
    for name in pages():
        page.goto(f"/{name}", wait_until="domcontentloaded")
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > 390:
            wide[name] = width
    assert wide == {}


def test_search_finds_a_class(page: Any):
    page.goto("/search.html?q=ParallelEnv")
    page.wait_for_selector("#search-results li a", timeout=20_000)
    assert any("ParallelEnv" in text for text in page.locator("#search-results li").all_inner_texts())


def test_the_dark_theme_persists(page: Any):
    page.goto("/index.html")
    for _ in range(3):  # auto, light, dark
        page.locator(".theme-toggle:visible").first.click()
        if page.evaluate("document.body.dataset.theme") == "dark":
            break
    page.goto("/install.html")
    assert page.evaluate("document.body.dataset.theme") == "dark"


def test_the_copy_button_copies_a_program(page: Any):
    page.goto("/quick-start.html")
    page.locator("div.highlight").first.hover()
    page.locator("button.copybtn").first.click()
    assert page.evaluate("navigator.clipboard.readText()").startswith("from steppe import ParallelEnv, make_env")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", SAMPLES)
def test_text_has_enough_contrast(page: Any, name: str, theme: str):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page.goto(f"/{name}")
    page.evaluate("theme => { document.body.dataset.theme = theme }", theme)
    result = axe.run(page, options={"runOnly": ["color-contrast"]})
    found = [node["html"][:120] for rule in result.response["violations"] for node in rule["nodes"]]
    assert found == []
