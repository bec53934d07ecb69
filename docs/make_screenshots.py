"""Make the pictures of the viewer in docs/ from a run's folder.

python docs/make_screenshots.py runs/demo
"""

from __future__ import annotations

import sys
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.viewer.chromium import chromium, open_page  # noqa: E402

LARGEST = 300_000
"""Bytes of a picture."""


def shoot(folder: str) -> None:
    """Write docs/viewer.png, a rollout with its tokens coloured, and docs/viewer_curves.png."""
    words = [sys.executable, "-m", "assay", "view", folder, "--port", "0", "--no-browser"]
    with Popen(words, stdout=PIPE, text=True) as server, chromium() as browser:
        assert server.stdout
        address = server.stdout.readline().split(" on ")[1].split(";")[0]
        name = Path(folder).name
        with open_page(browser, f"{address}/#rollouts?run={name}&stage=grpo") as (page, _):
            page.click(".list .mark.fail >> nth=2")
            page.wait_for_selector("article h3 >> text=prompt")
            page.click("button >> text=log-probability")
            picture(page, "viewer.png")
        with open_page(browser, f"{address}/#run?run={name}", "dark") as (page, _):
            page.wait_for_selector("canvas")
            picture(page, "viewer_curves.png")
        server.terminate()


def picture(page: Any, name: str) -> None:
    """Write what the page shows."""
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(500)
    size = len(page.screenshot(path=str(ROOT / "docs" / name)))
    assert size < LARGEST, f"{name} has {size} bytes"


if __name__ == "__main__":
    shoot(sys.argv[1])
