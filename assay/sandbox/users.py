"""Claims a user that nobody else on this machine has for programs, where we are root.

Two families or boxes whose programs ran as one user could kill each other's processes where no
namespace hides them. They would count each other's threads against one limit, so that a program of
one could keep a compiler of the other from starting.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

USERS = range(60_000, 65_534)
"""Ids that no account has, as a container that maps 65,536 of them knows them too."""
NAME = "\0assay-user-{}"


@dataclass(frozen=True, slots=True)
class UserClaim:
    """A user that nobody else's programs have, until this is released, dropped or its process
    ends.
    """

    user: int | None
    """None where programs keep ours."""
    name: socket.socket | None = None
    """What holds the claim."""

    def release(self) -> None:
        """Leave the user to others, once no process of it is left."""
        if self.name is not None:
            self.name.close()


def claim_user() -> UserClaim:
    """Claim a user. Where others have taken the names of all, it is one that they may use too.

    The claim is the name of a socket, which the kernel frees with the process. Each process starts
    to look at a place of its own, since machines may share users but not these names.
    """
    if os.getuid() != 0:
        return UserClaim(None)
    first: int = os.getpid() * 64 % len(USERS)
    for at in range(first, first + len(USERS)):
        user = USERS[at % len(USERS)]
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(NAME.format(user))
        except OSError:
            claim.close()
        else:
            return UserClaim(user, claim)
    return UserClaim(USERS[first])
