"""Where a command asks: a state folder of this machine, or a gateway elsewhere (`--gateway`)."""

import os
from pathlib import Path

from msgspec import Struct

from fledge.client.connection import Gateway
from fledge.client.folder import Client, Elsewhere, Folder, Local


def state_folder(given: str | None) -> Path:
    """Where state is kept: as given, else `$FLEDGE_STATE`, else `~/.fledge`."""
    return Path(given or os.environ.get("FLEDGE_STATE") or "~/.fledge").expanduser()


class Where(Struct, frozen=True):
    """The folder, or the gateway that is asked instead."""

    state: Path
    gateway: Gateway | None = None

    def client(self, local: Local, settings: tuple[str, ...] = ()) -> Client:
        """A client of it; `local` does for the folder what no other process does."""
        if self.gateway is not None:
            return Elsewhere(self.gateway)
        return Folder(self.state, local, settings=settings)

    def __str__(self) -> str:
        return str(self.state) if self.gateway is None else self.gateway.address
