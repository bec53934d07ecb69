"""Many clients at once, some of them ill-behaved: every answer is the right one."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from types import ModuleType

import pytest

from tests.integrations.server import ROOT, serving, until


def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_serve", ROOT / "bench" / "serve.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_serve"] = module  # where dataclasses look for their module
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
def test_under_load_every_answer_is_right_and_no_request_stays_behind() -> None:
    module = bench()
    with serving("--body-mb", str(module.BODY_MB)) as server:
        load = asyncio.run(module.run(server.port, requests=300, connections=16))
        assert load.wrong == []
        assert sum(load.statuses.values()) > 280
        until(lambda: server.running == 0)
        assert server.ask("GET", "/health").json["waiting"] == 0
