"""Broad workspaces, those that hold the whole home folder: each needs a person's yes, kept in the user's own folder.

A yes is for one folder, by its real path, and stays until it is taken back. `core.protected` defines broad workspaces.
"""

import json
import os
import shlex
from pathlib import Path

from fledge.config.places import read_memory, user_folder
from fledge.errors import BadInput
from fledge.plain_file import write_private

FILE = "workspaces.json"
MAX_BYTES = 1024 * 1024


def needs_yes(workspace: str) -> str:
    """The error text for a broad workspace to which no person has said yes."""
    return (
        f"{workspace} holds your whole home folder, and agents could read and change nearly all of it. Start in a"
        f" folder of its own, or say yes once: fledge trust --workspace {shlex.quote(workspace)}"
    )


def accepted(user: Path | None = None) -> list[str]:
    """The broad workspaces that a person said yes to, by real path. Refused: a list that cannot be read."""
    expected = "a readable JSON list of folders; remove it to take back every yes"
    return read_memory((user or user_folder()) / FILE, list[str], expected, MAX_BYTES) or []


def accept(workspace: Path, user: Path | None = None) -> None:
    """From now on agents may work in this folder, however much it holds. Refused: a path that is no folder."""
    if not workspace.is_dir():
        raise BadInput("--workspace", "must be a folder that exists", str(workspace))
    _save(sorted({*accepted(user), os.path.realpath(workspace)}), user)


def take_back(workspace: Path, user: Path | None = None) -> bool:
    """From now on agents may not work there; False if no person had said yes."""
    held, real = accepted(user), os.path.realpath(workspace)
    if real not in held:
        return False
    _save([one for one in held if one != real], user)
    return True


def _save(held: list[str], user: Path | None) -> None:
    write_private((user or user_folder()) / FILE, json.dumps(held, indent=1))
