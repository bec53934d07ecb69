"""The judge as a resources server of NeMo Gym: its `app.py` imports CodeJudge from here, and calls
`CodeJudge.run_webserver()` where it is the main module.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from fastapi import HTTPException
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from pydantic import ConfigDict

from assay.errors import DataError, SandboxError
from assay.extract import program
from assay.integrations import case_rows
from assay.integrations.background import shared
from assay.integrations.bodies import require_allowed
from assay.judge import Job
from assay.rewards.tests import score_execution
from assay.tasks import bigcodebench, jsonl, nemo_gym
from assay.tasks.rows import LeftOutError, Row
from assay.types import Cause, Task

MASKS = "mask_sample" in BaseVerifyResponse.model_fields
"""Whether this release of NeMo Gym leaves a sample out that is masked, as 0.7 does and 0.4 not."""
WHERE = "the row"


class CodeJudgeConfig(BaseResourcesServerConfig):
    """What stands beside `entrypoint` in the server's YAML."""

    slots: int | None = None
    """Programs that run at a time; by default one for each core."""
    fraction: bool = False
    """Pay the share of tests passed instead of all or nothing."""
    folders: bool = False
    """Whether rows may name folders of this machine, as the trees of repositories, whose files
    programs can then read. Whoever reaches the server can send a row."""


class CodeVerifyRequest(BaseVerifyRequest):
    """A row with its tests, and the response of the policy."""

    model_config = ConfigDict(extra="allow")


class CodeVerifyResponse(BaseVerifyResponse):
    """The row with its reward."""

    model_config = ConfigDict(extra="allow")

    verdict: str = ""
    """The judge's, such as `pass` or `timeout`; empty where there is none."""
    detail: str = ""
    """One line that says why."""


class CodeJudge(SimpleResourcesServer):
    """Pays 1 for a reply whose program passes the tests of its row, else 0.

    What the machine or the task has failed is never scored: its sample is masked, and a release of
    NeMo Gym without masks gets an error.
    """

    config: CodeJudgeConfig

    async def verify(self, body: CodeVerifyRequest) -> CodeVerifyResponse:
        """Judge the program in the last message. Tests stand in the row's `verifier_metadata`: as
        in NeMo Gym's `code_gen` and `bigcodebench`, or as in assay's own rows.
        """
        fields = body.model_dump()
        try:
            job = await asyncio.to_thread(_job, fields, self.config.folders)
            judge = await asyncio.to_thread(shared, None, self.config.slots)
            (execution,) = await judge.run_async([job])
        except (DataError, LeftOutError) as error:
            return _unscored(fields, Cause.TASK, str(error))
        except SandboxError as error:
            return _unscored(fields, Cause.MACHINE, str(error))
        reward = score_execution(execution, fraction=self.config.fraction)
        if reward is None:
            return _unscored(fields, execution.cause or Cause.MACHINE, execution.detail)
        verdict = {"verdict": execution.verdict.value, "detail": execution.detail}
        return CodeVerifyResponse(**fields | verdict | {"reward": reward})


def _job(fields: Mapping[str, Any], folders: bool) -> Job:
    """What is to be judged. Raises DataError or LeftOutError."""
    task = _task(Row(fields, WHERE), folders)
    return Job(task, program(task, _last_text(fields["response"]["output"])))


def _task(row: Row, folders: bool) -> Task:
    metadata = row.table("verifier_metadata")
    match nemo_gym.set_of(row):
        case "nemo_gym":
            tests = metadata.table("unit_tests")
            if tests.fields.get("fn_name"):
                return case_rows.task_of(tests.fields, WHERE)
            return nemo_gym.task_of(row)
        case "bigcodebench":
            return bigcodebench.task_of(row)
    if not metadata.fields:
        raise row.wrong("has no verifier_metadata, where its tests stand")
    if not folders:
        require_allowed(metadata.fields, WHERE)
    return jsonl.task_of(Row({"task_id": "row", "prompt": ""} | dict(metadata.fields), WHERE))


def _last_text(output: list[Mapping[str, Any]]) -> str:
    """The text of the last message; empty where the policy only called tools."""
    messages = [item["content"] for item in output if item["type"] == "message"]
    content = messages[-1] if messages else ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content)


def _unscored(fields: Mapping[str, Any], cause: Cause, detail: str) -> CodeVerifyResponse:
    """The answer for what has no score. Raises HTTPException where samples cannot be masked."""
    if not MASKS:
        raise HTTPException(503 if cause is Cause.MACHINE else 422, f"{cause}: {detail}")
    failure = {"mask_sample": True, "failure_kind": f"assay:{cause}", "failure_reason": detail}
    return CodeVerifyResponse(**{**fields, **failure, "reward": 0.0})
