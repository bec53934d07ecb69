"""Client of an OpenAI-compatible endpoint, which any hosted model and most servers have."""

import asyncio
import math
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import httpx2

from assay.endpoint_answers import EndpointAnswer, excerpt, parse_answer
from assay.errors import RolloutLostError, SettingsError

RETRIES, PAUSE, LONGEST_PAUSE = 3, 1.0, 120.0
"""Further calls after a failure; seconds before the first, which double each time or are what the
endpoint asks for (Retry-After); and the most seconds that it may ask for."""
PASSING = (408, 409, 425, 429)
"""Statuses from 300 to 499 that a further call may change."""
LARGEST = 2**26
"""Bytes of the longest answer."""
KEY = "OPENAI_API_KEY"
"""The environment variable with the key of an endpoint."""
T = TypeVar("T")


class RefusedError(SettingsError):
    """The endpoint refuses a request with `status`: it would do so again."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class _FailedError(Exception):
    """A call failed, and another may not. `pause`: the seconds that the endpoint asks for."""

    def __init__(self, message: str, pause: float = 0.0) -> None:
        super().__init__(message)
        self.pause = pause


class Endpoint:
    """An endpoint at `url`, up to /v1, for `user`: the setting that an error names. It has
    `seconds` for each answer.
    """

    def __init__(
        self, http: httpx2.AsyncClient, url: str, concurrent: int, seconds: float, user: str
    ) -> None:
        self._http, self._url, self._user = http, url.rstrip("/"), user
        self._seconds, self._places = seconds, asyncio.Semaphore(concurrent)

    async def ask(
        self, path: str, body: Callable[[], dict[str, Any]], read: Callable[[EndpointAnswer], T]
    ) -> T:
        """What `read` makes of an answer to `body()`, which is called when it is this question's
        turn. It is asked again where no answer with a completion comes, and where `read` raises
        ValueError.

        Raises RefusedError if the endpoint refuses, SettingsError if its URL is none, and
        RolloutLostError after too many failures.
        """
        return await self._ask("POST", path, body, lambda text: read(parse_answer(text)))

    async def get(self, path: str, read: Callable[[str], T]) -> T:
        """What `read` makes of the body of an answer to GET. Asks again, and raises, as `ask`."""
        return await self._ask("GET", path, lambda: None, read)

    async def _ask(
        self,
        method: str,
        path: str,
        body: Callable[[], dict[str, Any] | None],
        read: Callable[[str], T],
    ) -> T:
        failure = ""
        async with self._places:
            for attempt in range(1 + RETRIES):
                pause = PAUSE * 2**attempt
                try:
                    return read(await self._send(method, path, body()))
                except _FailedError as error:
                    failure, pause = str(error), max(pause, error.pause)
                except ValueError as error:
                    failure = f"it answers with {error}"
                if attempt < RETRIES:
                    await asyncio.sleep(min(LONGEST_PAUSE, pause))
        raise RolloutLostError(
            f"the endpoint of {self._user}, {self._url}, failed {1 + RETRIES} times, at last:"
            f" {failure}"
        )

    async def _send(self, method: str, path: str, body: dict[str, Any] | None) -> str:
        """The body of an answer with status 200 to 299. Raises _FailedError."""
        content = bytearray()
        try:
            async with (
                asyncio.timeout(self._seconds),  # the client's own limit is for each byte
                self._http.stream(method, f"{self._url}/{path}", json=body) as response,
            ):
                async for chunk in response.aiter_bytes():
                    content += chunk
                    if len(content) > LARGEST:
                        raise _FailedError(f"its answer has more than {LARGEST} bytes")
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise SettingsError(
                f"the endpoint of {self._user}, {self._url}, is no URL: {error}"
            ) from None
        except (TimeoutError, httpx2.TimeoutException):
            raise _FailedError(f"it gave no answer within {self._seconds:g} s") from None
        except httpx2.HTTPError as error:
            name = f"{type(error).__name__}: {error}".strip(": ")
            raise _FailedError(f"the connection failed ({name})") from None
        status, text = response.status_code, self._without_key(content.decode("utf-8", "replace"))
        if 300 <= status < 500 and status not in PASSING:
            raise RefusedError(
                f"the endpoint of {self._user}, {self._url}, refuses with {status}:"
                f" {excerpt(text)}", status,
            )  # fmt: skip
        if not 200 <= status < 300:
            pause = seconds_until(response.headers.get("retry-after", ""))
            raise _FailedError(f"it answers {status}: {excerpt(text)}", pause)
        return text

    def _without_key(self, text: str) -> str:
        key = self._http.headers.get("Authorization", "").removeprefix("Bearer ")
        return text.replace(key, "***") if key else text


def seconds_until(retry_after: str) -> float:
    """The seconds of a Retry-After header, which may be a date; 0 for anything else."""
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            date = parsedate_to_datetime(retry_after)
        except ValueError:
            return 0.0
        seconds = (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0


@asynccontextmanager
async def open_endpoint(
    url: str, concurrent: int, seconds: float, user: str
) -> AsyncIterator[Endpoint]:
    """An endpoint, asked at most `concurrent` questions at once, each answered within `seconds`.

    The environment variable OPENAI_API_KEY has its key, if it needs one. Raises SettingsError for
    a key that no header can hold.
    """
    key = os.environ.get(KEY, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise SettingsError(f"the environment variable {KEY} holds no key")
    headers = {"Authorization": f"Bearer {key}"} if key else None
    limits = httpx2.Limits(max_connections=concurrent)
    async with httpx2.AsyncClient(headers=headers, timeout=seconds, limits=limits) as http:
        yield Endpoint(http, url, concurrent, seconds, user)
