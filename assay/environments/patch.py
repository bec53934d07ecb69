"""A repository is changed by a patch: the model reads the statement and files, and answers with
SEARCH/REPLACE blocks or a unified diff; it may then see how its tests end, and write it anew.
"""

import re
from collections.abc import Generator
from typing import Literal

from pydantic import PositiveInt

from assay.environments import (
    Conversation,
    environment_with,
    missing_repository,
    repository_tests,
)
from assay.environments.repair import describe_failure, first_failure
from assay.errors import DataError
from assay.extract import edits
from assay.extract.thoughts import answer
from assay.files import encodable
from assay.judge.patches import PatchError, Read, parse
from assay.judge.repository_tree import files_of, reader
from assay.types import AnyCheck, Execution, Task, ToolCall

ASKED = re.compile(r"^###[ \t]+(\S[^\n]*)$", re.MULTILINE)
LISTED, MOST_ASKED, LONGEST = 200, 5, 30_000
"""Files that are listed, and shown at once; characters of them together."""
FAILURES = 5
"""Failing tests that are shown."""
FORMAT = """Answer with one or more SEARCH/REPLACE blocks, each under the path of its file:

### path/to/file.py
<<<<<<< SEARCH
lines of the file, as they are
=======
the lines in their place
>>>>>>> REPLACE

An empty SEARCH part makes a new file. A unified diff in a ```diff block is right, too. Do not \
change tests. Each answer is a whole one: it starts from the files as they were."""
ASK = "To read files first, answer with nothing but their paths, each in a line `### path`."


def instructions(task: Task, files: str) -> str:
    """The files to begin with, and how to answer."""
    check = repository_tests(task)
    if check is None or files == "none":
        return FORMAT if check else ""
    if files == "changed":
        try:
            changes = parse(task.reference) if task.reference else []
        except PatchError as error:
            raise DataError(f"task {task.id!r}: its reference cannot be shown: {error}") from None
        return f"{_shown(reader(check), [file.old for file in changes if file.old])}\n\n{FORMAT}"
    names = files_of(check)
    more = [f"... and {len(names) - LISTED} more"] * (len(names) > LISTED)
    return "\n".join(["Files of the repository:", *names[:LISTED], *more, "", ASK, "", FORMAT])


def script(task: Task, reply: str, right: str) -> Generator[str | ToolCall, bool, None]:
    """The demonstration, then a right answer if the demonstration fails a visible check; diffs as
    SEARCH/REPLACE blocks.
    """
    check = repository_tests(task)
    for text in (reply, right):
        yield edits.as_blocks(text, reader(check)) if check else text


@environment_with(script, missing_repository, instructions, request="{prompt}")
async def patch(
    conversation: Conversation, *, turns: PositiveInt = 3,
    files: Literal["asked", "changed", "none"] = "asked",
) -> None:  # fmt: skip
    """Take a patch, and show why it cannot be applied or which visible tests fail, in at most
    `turns` replies. Replies that name `files` get them, if those are "asked"; "changed" shows those
    that the reference changes at once, "none" none.
    """
    check = repository_tests(conversation.task)
    for left in range(turns - 1, -1, -1):
        reply = await conversation.reply()
        if check is None:
            return
        read = reader(check)
        try:
            conversation.submit(edits.patch(reply, read))
        except PatchError as error:
            names = ASKED.findall(answer(reply)) if files == "asked" else []
            paths = names if edits.SEARCH not in reply else []
            feedback = _shown(read, paths) if paths else f"That is no patch: {error}"
        else:
            heading = "The tests fail with this patch:\n"
            feedback = await first_failure(conversation, heading, _failed_tests) if left else ""
        if not (left and feedback):
            return
        conversation.show(feedback, correct=False)


def _shown(read: Read, names: list[str]) -> str:
    """Files, each under its path."""
    texts, room = [], LONGEST
    for name in list(dict.fromkeys(names))[:MOST_ASKED]:
        text = read(name.strip().strip("`"))
        content = "(there is no such file)" if text is None else f"```\n{text[:room]}```"
        room -= len(text or "")
        texts.append(f"### {name}\n{content}")
        if room <= 0:
            texts.append("(The files are too long to show more.)")
            break
    return encodable("\n".join(texts))


def _failed_tests(check: AnyCheck, execution: Execution) -> str:
    """The first tests that fail, or why none ran."""
    failed = [test for test in execution.tests if not test.holds]
    lines = [f"{test.name}: {test.outcome}\n{test.detail.strip()}" for test in failed[:FAILURES]]
    return "\n".join(lines) or describe_failure(check, execution)
