"""Debian's Chromium, driven by Playwright; what it asks of the network is kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest

from tests.end_to_end.recipes import command

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


BROWSER = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not (CHROMIUM.exists() and find_spec("playwright")),
        reason="needs Chromium and Playwright; `make test-browser` installs them",
    ),
]


@dataclass
class Activity:
    """What a page did."""

    requests: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Errors on the console, breaches of the policy among them."""

    def note(self, message: Any) -> None:
        """Keep an error on the console, and which address it is about."""
        if message.type == "error":
            self.problems.append(f"{message.text} {message.location['url']}")


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def open_page(
    browser: Any, address: str, theme: str = "light", width: int = 1280
) -> Iterator[tuple[Any, Activity]]:
    """A page of `width` by 860 pixels at an address."""
    size = {"width": width, "height": 860}
    page, did = browser.new_page(viewport=size, color_scheme=theme), Activity()
    page.set_default_timeout(60_000)
    page.on("request", lambda one: did.requests.append(one.url))
    page.on("pageerror", lambda one: did.problems.append(str(one)))
    page.on("console", did.note)
    page.goto(address)
    yield page, did
    page.close()


@contextmanager
def served(runs: Path) -> Iterator[str]:
    """The address of a viewer over some runs."""
    words = command("view", runs, "--port", "0", "--no-browser")
    with Popen(words, stdout=PIPE, text=True) as server:
        assert server.stdout
        yield server.stdout.readline().split(" on ")[1].split(";")[0]
        server.terminate()


def is_quiet(did: Activity, address: str) -> bool:
    """Whether all requests went to the address, and nothing went wrong."""
    assert did.problems == []
    assert [one for one in did.requests if not one.startswith((address, "data:,"))] == []
    return True


def unnamed(page: Any) -> list[str]:
    """Controls without a name for a screen reader."""
    names: list[str] = page.evaluate(
        """[...document.querySelectorAll("a, button, input, select")].filter((one) => !(
            one.getAttribute("aria-label") || one.innerText.trim() || one.closest("label")
        )).map((one) => one.outerHTML)"""
    )
    return names


CONTRASTS = """() => {
    const colour = (text) => {
        const numbers = text.match(/[\\d.]+/g).map(Number);
        return numbers.length === 3 ? [...numbers, 1] : numbers;
    };
    const over = (top, below) => [0, 1, 2].map((n) => top[n] * top[3] + below[n] * (1 - top[3]));
    const behind = (one) => {
        const own = colour(getComputedStyle(one).backgroundColor);
        if (own[3] === 1 || !one.parentElement) return own.slice(0, 3);
        return over(own, behind(one.parentElement));
    };
    const light = (rgb) => rgb.map((one) => one / 255).map((one) => one <= 0.04045 ? one / 12.92
        : ((one + 0.055) / 1.055) ** 2.4).reduce((sum, one, n) => sum
        + one * [0.2126, 0.7152, 0.0722][n], 0);
    const found = new Map();
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
        const text = walk.currentNode.textContent.trim();
        const one = walk.currentNode.parentElement;
        const style = getComputedStyle(one);
        if (!text || !one.getClientRects().length || style.fontSize === "0px") continue;
        const below = behind(one);
        const [a, b] = [light(over(colour(style.color), below)), light(below)];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) found.set(`${one.className} ${text.slice(0, 40)}`, ratio);
    }
    return Object.fromEntries(found);
}"""


def faint(page: Any) -> dict[str, float]:
    """Texts with less contrast to what is behind them than 4.5:1 (WCAG 2.2, AA)."""
    found: dict[str, float] = page.evaluate(CONTRASTS)
    return found
