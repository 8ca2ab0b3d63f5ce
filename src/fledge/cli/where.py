"""Where a command asks: a state folder of this machine, or a gateway elsewhere (`--gateway`); and, unless one is named,
in which conversation: that of the project folder it is given in."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from fledge.client.connection import Gateway
from fledge.client.folder import Client, Elsewhere, Folder, Local
from fledge.core.keys import main_key, project_key
from fledge.core.protected import is_broad
from fledge.errors import BadInput
from fledge.store.ways import token_in

OWN_CONVERSATION: Final = "this folder has a conversation of its own now"
"""Said once, in a folder whose conversation begins, where there is an earlier one for all folders."""
RESTART_S: Final = 5.0
"""How long a gateway that was there is waited for."""


class Where(NamedTuple):
    """The state folder, or the gateway that is asked instead; and the project folder in which the command is given."""

    state: Path
    gateway: Gateway | None = None
    project: str = ""
    """By its real path; empty if it is none, or if a gateway is asked, which knows nothing of folders here."""

    @property
    def session(self) -> str:
        """The conversation that is meant where none is named: the project's, else `main`."""
        return project_key(self.project) if self.project else main_key()

    def client(self, local: Local, settings: tuple[str, ...] = ()) -> Client:
        """A client of it; `local` does for the folder what no other process does."""
        if self.gateway is not None:
            return Elsewhere(self.gateway, RESTART_S)
        return Folder(self.state, local, settings=settings)

    @property
    def words(self) -> str:
        """Where it is, for people."""
        return str(self.state) if self.gateway is None else self.gateway.address


def state_folder(given: str | None, env: Mapping[str, str]) -> Path:
    """Where state is kept: as given, else `$FLEDGE_STATE`, else `~/.fledge`."""
    return Path(given or env.get("FLEDGE_STATE") or "~/.fledge").expanduser()


def project_here(env: Mapping[str, str]) -> str:
    """The project folder that the current folder is, by its real path. The home folder and what holds it are none."""
    try:
        here = os.path.realpath(Path.cwd())
        here.encode()
    except (OSError, UnicodeEncodeError):  # the folder was removed, or its name is no text
        return ""
    return "" if is_broad(here, os.path.realpath(Path(env.get("HOME") or "~").expanduser())) else here


def where(
    state: str | None,
    gateway: str | None,
    token_file: str | None,
    settings: Sequence[str],
    env: Mapping[str, str],
) -> Where:
    """What the options of a command mean. Refused: both a folder and a gateway; for a gateway, settings, because it has
    its own, and no token."""
    address = gateway or (None if state else env.get("FLEDGE_GATEWAY"))
    if not address:
        if token_file is not None:
            raise BadInput("--token-file", "needs --gateway URL", token_file)
        return Where(state_folder(state, env), project=project_here(env))
    if state is not None:
        raise BadInput("--gateway", "cannot stand beside --state: name a folder or a gateway", address)
    if settings:
        words = f"cannot count here: the gateway at {address} has its own settings; leave it out"
        raise BadInput("--set", words, settings[0])
    token = token_in(Path(token_file).expanduser()) if token_file else env.get("FLEDGE_GATEWAY_TOKEN", "").strip()
    if not token:
        how = "set $FLEDGE_GATEWAY_TOKEN, or give --token-file FILE"
        raise BadInput("--gateway", f"needs the token in gateway.token of its state folder: {how}", address)
    return Where(state_folder(None, env), Gateway(address, token))
