"""The images: no root, and the judge's command works in a container-like place: another user, no
capabilities, no new privileges, a root that is read-only.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Dockerfile").read_text()
STAGES = dict(re.findall(r"^FROM \S+ AS (\w+)\n(.*?)(?=^FROM|\Z)", TEXT, re.DOTALL | re.MULTILINE))
CONTAINER = [
    "bwrap", "--unshare-user", "--uid", "10001", "--gid", "10001", "--unshare-pid", "--cap-drop",
    "ALL", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp",
    "--tmpfs", "/dev/shm", "--chdir", "/tmp",
    *(word for place in (sys.prefix, ROOT) for word in ("--ro-bind", str(place), str(place))),
]  # fmt: skip
"""The environment and the checkout may lie below /tmp, which is empty there."""


@pytest.mark.parametrize("image", ["judge", "train"])
def test_an_image_does_not_run_as_root_and_copies_what_is_there(image: str) -> None:
    assert re.findall(r"^USER (\S+)", STAGES[image], re.MULTILINE) == ["10001"]
    for sources in re.findall(r"^COPY (.+) \S+$", TEXT, re.MULTILINE):
        for name in sources.split():
            assert (ROOT / name).exists(), name


@pytest.mark.long
def test_the_judges_command_tells_its_tier_and_judges_with_a_root_that_is_read_only(
    tmp_path: Path,
) -> None:
    if not shutil.which("bwrap") or subprocess.run([*CONTAINER, "true"], check=False).returncode:
        pytest.skip("nothing like a container can be made here")
    entry = re.search(r"^ENTRYPOINT (.*)$", STAGES["judge"], re.MULTILINE)
    assert entry
    here = f"{sys.executable} -m assay "
    words = [word.replace("8080", "18080") for word in json.loads(entry[1])]
    command = [re.sub(r"\bassay (?=doctor|serve)", here, word) for word in words]
    variables = {**os.environ, "ASSAY_TOKEN": "t" * 32, "HOME": "/tmp"}
    with (tmp_path / "said").open("w") as said:
        served = subprocess.Popen(
            [*CONTAINER, *command, "--allow-weak"], env=variables, stdout=said, stderr=said,
            start_new_session=True,
        )  # fmt: skip
    try:
        task = {"tests": ["assert add(1, 2) == 3"], "entry_point": "add"}
        body = {"task": task, "program": "def add(a, b): return a + b"}
        headers = {"Authorization": f"Bearer {'t' * 32}"}
        answer = None
        for _ in range(300):
            try:
                url = "http://127.0.0.1:18080/judge"
                answer = httpx2.post(url, json=body, headers=headers, timeout=60).json()
                break
            except httpx2.TransportError:
                assert served.poll() is None, (tmp_path / "said").read_text()
                time.sleep(0.2)
        assert answer
        assert answer["verdict"] == "pass", answer
        assert re.match(r"isolation +tier [A-E]", (tmp_path / "said").read_text())
    finally:
        os.killpg(served.pid, signal.SIGTERM)
        served.wait()
