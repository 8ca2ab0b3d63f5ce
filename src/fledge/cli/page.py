"""`fledge page`: print, and open in a browser, an address that signs in once at the gateway's page; list the browsers
that are signed in there, and sign one out.

The address has a code in it. A browser that is started with the address shows it to everyone who can list processes, so
it is started with a file instead, which only its owner can read, and which leads to the address.
"""

import html
import os
import sys
import time
import webbrowser
from pathlib import Path
from typing import Any, Final

from fledge.cli.verbs import ask
from fledge.cli.where import Where, state_folder
from fledge.errors import StoreError
from fledge.own_code import folders_outside, keep_out
from fledge.plain_file import write_private
from fledge.store.files import DATABASE

FILE: Final = "page.html"
NO_GATEWAY: Final = "no gateway serves this folder: start one with `fledge serve`"


def page(named: str | None, opens: bool, lists: bool, ends: str | None) -> list[str]:
    """Make an address that signs in, and open it where there is a display. With `lists`, list the browsers that are
    signed in instead; with `ends`, sign out the one of this id. Refused: no gateway serves the state folder."""
    state = state_folder(named, os.environ)
    if not (state / DATABASE).exists():
        raise StoreError(f"{state}: {NO_GATEWAY}")
    if ends is not None:
        return [f"signed out: {_line(ask(Where(state), 'signins.end', id=ends).value)}"]
    if lists:
        return [_line(one) for one in ask(Where(state), "signins.list").value] or ["no browser is signed in"]
    address = str(ask(Where(state), "page.link").value["address"])
    opened = opens and _has_display() and _open(state, address)
    how = "opened in your browser" if opened else "open it in a browser on this machine"
    return [address, f"{how}; it signs in once, within a minute"]


def _line(one: Any) -> str:
    used_at = time.strftime("%Y-%m-%d %H:%M", time.localtime(one["usedAt"] / 1000))
    return f"{one['id']} · last used {used_at} · {one['browser'] or 'a browser without a name'}"


def _has_display() -> bool:
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _open(state: Path, address: str) -> bool:
    path = (state / FILE).absolute()
    keep_out([os.getcwd()])
    os.environ["PATH"] = ":".join(folders_outside(os.environ.get("PATH", "")))  # a browser of no workspace
    write_private(path, f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(address)}">\n')
    return webbrowser.open(path.as_uri())
