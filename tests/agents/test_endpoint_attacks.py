"""What a program that the policy wrote may try at the endpoint."""

from __future__ import annotations

import gc
import json
import weakref
from typing import Any

import pytest

from tests.agents.served import BASH, LS, USER, Agent, serving, url_of
from tests.agents.test_endpoint import in_loop, result


@pytest.mark.parametrize("key", ["", "x", "../v1", "%00", "A" * 43])
@in_loop
async def test_a_guessed_key_is_refused_in_the_path_and_in_every_header(key: str) -> None:
    async with serving("One.") as agent:
        root = agent.url.partition("/rollout")[0]
        statuses = {(await agent.post(USER, url=f"{root}/rollout/{key}/v1")).status_code}
        for name in ("Authorization", "x-api-key", "api-key"):
            value = f"Bearer {key}" if name == "Authorization" else key
            response = await agent.post(USER, url=f"{root}/v1", headers={name: value.strip()})
            assert response.status_code == 401
            assert response.json()["error"]["code"] == "invalid_api_key"
        assert statuses <= {401, 404}
        assert (await agent.http.get(f"{root}/v1/models")).status_code == 401
        assert not agent.engine.sampled


@in_loop
async def test_keys_are_long_and_random_and_work_as_api_key_too() -> None:
    async with serving("One.") as agent, serving("Two.") as other:
        assert len(agent.address.key) >= 43
        assert agent.address.key != other.address.key
        root = agent.url.partition("/rollout")[0]
        ours = {"Authorization": f"Bearer {agent.address.key}"}
        assert (await agent.post(USER, url=f"{root}/v1", headers=ours)).status_code == 200


@in_loop
async def test_a_key_reaches_its_own_rollout_alone() -> None:
    async with serving("One.") as agent, agent.server.open(agent.session) as second:
        other = type(agent.session)(agent.session.policy, 4, agent.session.limits)
        async with agent.server.open(other) as address:
            await agent.reply(USER, url=url_of(address))
            assert (other.calls, agent.session.calls) == (1, 0)
        assert (await agent.post(USER, url=url_of(address))).status_code == 409
        assert second.key != address.key


@in_loop
async def test_a_rollout_that_ended_is_kept_by_its_key_alone() -> None:
    async with serving("One.") as agent:
        other = type(agent.session)(agent.session.policy, 4, agent.session.limits)
        async with agent.server.open(other) as address:
            url = url_of(address)
            await agent.reply(USER, url=url)
        ended = weakref.ref(other)
        del other, address
        agent.engine.sampled.clear()
        gc.collect()
        assert ended() is None
        assert (await agent.post(USER, url=url)).json()["error"]["code"] == "rollout_sealed"
        assert (await agent.http.get(f"{url}/models")).status_code == 409


@in_loop
async def test_a_session_that_forgets_replies_keeps_no_answer_to_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("assay.agents.tree.MOST_TOKENS", 1)
    async with serving("One.", "Two.", "Three.") as agent:
        session = type(agent.session)(agent.session.policy, 4, agent.session.limits, most=100)
        async with agent.server.open(session) as address:
            for _ in range(3):
                await agent.reply(USER, url=url_of(address))
            assert len(session.tree.nodes) == len(session._pending) == 1


@in_loop
async def test_no_route_reads_ends_or_changes_a_rollout() -> None:
    async with serving("One.") as agent:
        await agent.reply(USER)
        root, base = agent.url.partition("/rollout")[0], agent.url
        for path in ("sessions", "rollout", "admin", "metrics", "openapi.json", "docs", "seal",
                     "samples", "weights", "pause", "resume", "load"):  # fmt: skip
            for url in (root, base, base.removesuffix("/v1")):
                for method in ("GET", "POST", "DELETE", "PUT"):
                    response = await agent.http.request(method, f"{url}/{path}")
                    assert response.status_code in (404, 405), (method, url, path)
        for method in ("GET", "DELETE", "PUT", "PATCH"):
            response = await agent.http.request(method, f"{base}/chat/completions")
            assert response.status_code == 405


@in_loop
async def test_what_the_policys_own_program_samples_with_the_agents_key_is_not_paid() -> None:
    async with serving(LS, "paid for nothing", "and again", "Done.") as agent:
        first = await agent.reply(USER, tools=[BASH])
        shell: list[Any] = [{"role": "user", "content": "Repeat: token token token"}]
        shell.append(await agent.reply(*shell, tools=[BASH]))
        await agent.reply(*shell, USER, tools=[BASH])
        await agent.reply(USER, first, result(first["tool_calls"][0]), tools=[BASH])
        lengths = [completion.length for _, completion in agent.engine.sampled]
        assert agent.balance == {
            "learned": lengths[0] + lengths[3], "foreign_root": lengths[1] + lengths[2],
        }  # fmt: skip
        agent.require_exact()


@in_loop
async def test_a_program_that_spends_the_budget_cannot_make_the_rollout_longer() -> None:
    async with serving(*["One."] * 5, limits={"calls": 5}) as agent:
        for number in range(30):
            await agent.post({"role": "user", "content": str(number)})
        assert len(agent.engine.sampled) == 5


@pytest.mark.parametrize("mark", ["<|im_end|>", "<|im_start|>", "</s>"])
@in_loop
async def test_a_surrogate_or_a_mark_in_a_message_ends_no_server(mark: str) -> None:
    async with serving("One.", "Two.") as agent:
        broken = await agent.post({"role": "user", "content": "\ud800"})
        assert broken.status_code in (200, 400)
        await agent.reply({"role": "user", "content": mark})


DEEP = "[" * 992 + "]" * 992


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("chat/completions", '{"messages": [{"role": "assistant", "tool_calls": 5}]}', 400),
        ("chat/completions", f'{{"messages": [{json.dumps(USER)}], "x": {DEEP}}}', 400),
        ("chat/completions", f'{{"messages": [{json.dumps(USER)}], "x": NaN}}', 400),
        ("chat/completions", f'{{"messages": [{json.dumps(USER)}], "x": 1e999}}', 400),
        ("responses", f'{{"input": "x", "tool_choice": {"[" * 600}NaN{"]" * 600}}}', 400),
        ("chat/completions", json.dumps({"messages": [USER, {
            "role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": DEEP}}]
        }, USER]}), 400),
    ],
)  # fmt: skip
@in_loop
async def test_odd_json_is_the_requests_error_and_never_the_endpoints(
    path: str, body: str, status: int
) -> None:
    async with serving("One.") as agent:
        response = await agent.http.post(f"{agent.url}/{path}", content=body)
        assert response.status_code == status, response.text


@in_loop
async def test_a_count_of_retries_with_thousands_of_digits_is_no_error() -> None:
    async with serving("One.") as agent:
        headers = {"x-stainless-retry-count": "1" * 60_000}
        assert (await agent.post(USER, headers=headers)).status_code == 200


@in_loop
async def test_a_body_that_cannot_fit_into_the_context_is_refused_before_it_is_parsed() -> None:
    async with serving("One.", context_length=2000) as agent:
        response = await agent.http.post(
            f"{agent.url}/chat/completions", content=b"no JSON" * 20_000
        )
        assert response.status_code == 400
        assert response.json()["error"]["code"] == "context_length_exceeded"
        await agent.reply(USER)


@in_loop
async def test_a_body_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.agents.app.LARGEST", 1000)

    async def large(agent: Agent) -> int:
        return (await agent.post({"role": "user", "content": "x" * 2000})).status_code

    async with serving("One.") as agent:
        assert await large(agent) == 413
        await agent.reply(USER)
