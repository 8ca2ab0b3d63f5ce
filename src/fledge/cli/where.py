"""The target of a command: a state folder of this machine, a store on a server (`--store`), or a gateway elsewhere
(`--gateway`); and its conversation, unless one is named: that of the project folder in which the command is given. The
one place that reads these options and their environment variables."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from fledge.cli.printing import note
from fledge.client.connection import Gateway, checked_address
from fledge.client.folder import Client, Elsewhere, Folder, Local, Server
from fledge.commands.wire import WireObject
from fledge.core.keys import main_key, project_key
from fledge.core.params import as_written
from fledge.core.protected import is_broad
from fledge.errors import BadInput
from fledge.store.addresses import folder_of, is_address, shown
from fledge.store.ways import token_in

OWN_CONVERSATION: Final = "this folder has a conversation of its own now"
"""Shown once, when the conversation of a folder begins and there is an earlier one for all folders."""
RESTART_S: Final = 5.0
"""How long a command waits for a gateway that has answered before."""


class Where(NamedTuple):
    """The state folder, or the gateway that is asked instead; and the project folder in which the command is given."""

    state: Path
    gateway: Gateway | None = None
    project: str = ""
    """Its real path; empty if the current folder is no project, or for a gateway, which knows nothing of folders
    here."""
    store: str = ""
    """The address of the store, if it is on a server; then `state` has only its files."""

    @property
    def session(self) -> str:
        """The conversation of a command that names none: the project's, else `main`."""
        return project_key(self.project) if self.project else main_key()

    def client(self, local: Local, settings: tuple[str, ...] = ()) -> Client:
        """A client for this target; `local` does the work in the folder that no other process does."""
        client = self._client(local, settings)
        client.on_silence = note
        return client

    def _client(self, local: Local, settings: tuple[str, ...]) -> Client:
        if self.gateway is not None:
            return Elsewhere(self.gateway, RESTART_S)
        if self.store:
            return Server(local)
        return Folder(self.state, local, settings=settings)

    async def begin(self, client: Client, session: str = "") -> WireObject:
        """Let a conversation begin, if it has not: the named one, else the conversation of this folder."""
        begun: WireObject = await client.call(
            "sessions.open", once=False, session=session or self.session, folder=self.project
        )
        return begun

    @property
    def words(self) -> str:
        """The address or path of the target, for people."""
        if self.gateway is not None:
            return self.gateway.address
        return shown(self.store) if self.store else str(self.state)


def state_folder(given: str | None, env: Mapping[str, str]) -> Path:
    """The state folder: as given, else `$FLEDGE_STATE`, else `~/.fledge`."""
    return Path(given or env.get("FLEDGE_STATE") or "~/.fledge").expanduser()


def folder_or_store(state: str | None, store: str | None, env: Mapping[str, str]) -> Where:
    """The folder or the store that the options name, else `$FLEDGE_STORE`, else `$FLEDGE_STATE`. A folder that is named
    beside a store has the files of that store. Refused: an address that is not one of a server; the error does not
    repeat it."""
    if store == "":
        raise BadInput("--store", "is empty: give the address of a server, or leave it out")  # a variable that is unset
    address = store or ("" if state else env.get("FLEDGE_STORE", ""))
    if not address:
        return Where(state_folder(state, env), project=project_here(env))
    if not is_address(address):
        name = "--store" if store else "FLEDGE_STORE"
        words = "must be an address that begins with postgresql://; a folder is given by --state"
        raise BadInput(name, words)  # without repeating it: it may hold a password
    shown(address)
    folder = folder_of(address) if state is None else state_folder(state, env)
    return Where(folder, project=project_here(env), store=address)


def ignored_store() -> str:
    """Words for errors of commands that need a store: a variable that the person may have relied on does not count;
    empty if it is not set."""
    return "; FLEDGE_STORE does not count beside --state: give --store too" if os.environ.get("FLEDGE_STORE") else ""


def project_here(env: Mapping[str, str]) -> str:
    """The current folder as the project folder, by its real path; empty for the home folder and the folders that
    contain it, which are no projects."""
    try:
        here = os.path.realpath(Path.cwd())
        here.encode()
    except (OSError, UnicodeEncodeError):  # the folder was removed, or its name is not UTF-8
        return ""
    return "" if is_broad(here, os.path.realpath(Path(env.get("HOME") or "~").expanduser())) else here


def where(
    state: str | None,
    gateway: str | None,
    token_file: str | None,
    settings: Sequence[str],
    env: Mapping[str, str],
    store: str | None = None,
) -> Where:
    """The target that the options of a command name. Refused: a gateway beside a folder or store; settings for a
    gateway, because it has its own; a gateway without a token."""
    address = gateway or (None if state or store else env.get("FLEDGE_GATEWAY"))
    if not address:
        if token_file is not None:
            raise BadInput("--token-file", "needs --gateway URL", token_file)
        return folder_or_store(state, store, env)
    try:
        checked_address(address)
    except BadInput as error:
        raise as_written(error, {"gateway": "--gateway" if gateway else "FLEDGE_GATEWAY"}) from None
    if state is not None:
        raise BadInput("--gateway", "cannot stand beside --state: name a folder or a gateway", address)
    if store is not None:
        raise BadInput("--gateway", "cannot stand beside --store: name a store or a gateway", address)
    if not gateway and env.get("FLEDGE_STORE"):
        raise BadInput("FLEDGE_GATEWAY", "cannot be set beside FLEDGE_STORE: unset one, or give --gateway or --store")
    if settings:
        words = f"cannot count here: the gateway at {address} has its own settings; leave it out"
        raise BadInput("--set", words, settings[0])
    token = token_in(Path(token_file).expanduser()) if token_file else env.get("FLEDGE_GATEWAY_TOKEN", "").strip()
    if not token:
        how = "set $FLEDGE_GATEWAY_TOKEN, or give --token-file FILE"
        raise BadInput("--gateway", f"needs the token in gateway.token of its state folder: {how}", address)
    return Where(state_folder(None, env), Gateway(address, token))
