"""Debian's Chromium, driven by Playwright; what it asks of the network is kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


@dataclass
class Activity:
    """What a page did."""

    requests: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Errors on the console, breaches of the policy among them."""


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def open_page(browser: Any, address: str, theme: str = "light") -> Iterator[tuple[Any, Activity]]:
    """A page of 1280 by 860 pixels at an address."""
    page, did = (
        browser.new_page(viewport={"width": 1280, "height": 860}, color_scheme=theme),
        Activity(),
    )
    page.set_default_timeout(60_000)
    page.on("request", lambda one: did.requests.append(one.url))
    page.on("pageerror", lambda one: did.problems.append(str(one)))
    page.on("console", lambda one: did.problems.extend([one.text] if one.type == "error" else []))
    page.goto(address)
    yield page, did
    page.close()
