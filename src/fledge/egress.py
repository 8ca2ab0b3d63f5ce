"""How requests leave this machine: through which proxy, and which certificates are trusted.

Proxies are named by `HTTPS_PROXY` or `HTTP_PROXY`, else `ALL_PROXY`, with exceptions in `NO_PROXY`; a lower-case name
comes first. Requests to this machine itself go through no proxy. Nothing here opens a connection.
"""

import ipaddress
import ssl
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from urllib.parse import urlsplit

from msgspec import Struct

from fledge.core.redact import error_words
from fledge.errors import BadInput

CA_FILE_VARIABLE = "SSL_CERT_FILE"
Environment = Mapping[str, str]
"""Variables of the environment, by name."""
Headers = Mapping[str, str]
"""The headers of a request or an answer, by name."""


class Proxy(Struct, frozen=True):
    """A proxy, and the variable that names it."""

    url: str
    """With user name and password, if it needs them: not to be shown."""
    variable: str

    @property
    def place(self) -> str:
        """Host and port, which may be shown."""
        parts = urlsplit(self.url)
        return f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"

    def __repr__(self) -> str:
        return f"Proxy({self.place}, {self.variable})"


def proxy_for(url: str, env: Environment) -> Proxy | None:
    """The proxy for requests to this address; None: no proxy. Refused, and not shown: a value that names no proxy."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    names = (f"{parts.scheme}_proxy", "all_proxy")
    for variable in (written for name in names for written in (name, name.upper())):
        given = env.get(variable, "").strip()
        if given:
            break
    else:
        return None
    excepted = (env.get("no_proxy") or env.get("NO_PROXY") or "").split(",")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if is_loopback(host) or any(_excepts(entry.strip().lower(), host, port) for entry in excepted):
        return None
    return Proxy(_checked(given, variable), variable)


def _excepts(entry: str, host: str, port: int) -> bool:
    """True if an entry of `NO_PROXY` covers this host: a name and all below it, an address or network, `*`."""
    if entry == "*":
        return True
    with suppress(ValueError):
        network = ipaddress.ip_network(entry.strip("[]"), strict=False)
        with suppress(ValueError):
            return ipaddress.ip_address(host) in network
        return False
    name, colon, only = entry.rpartition(":")
    if not colon:
        name = entry
    elif only != str(port):
        return False
    name = name.removeprefix("*").strip("[].")
    return bool(name) and (host == name or host.endswith(f".{name}"))


def is_http_address(address: str) -> bool:
    """True of an http(s) address with a host that has a valid name and port."""
    try:
        parts = urlsplit(address)
        sound = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
        (parts.hostname or "").encode("idna")
    except ValueError:
        return False
    return bool(sound) and address.isprintable() and " " not in address


def is_loopback(host: str) -> bool:
    """True of this machine's own names and addresses."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _checked(given: str, variable: str) -> str:
    whole = given if "://" in given else f"http://{given}"
    if whole.lower().startswith("socks"):
        instead = "set HTTPS_PROXY to an http proxy, which goes before it"
        if variable.lower() != "all_proxy":
            instead = "name an http proxy, or unset it"
        raise BadInput(variable, f"SOCKS proxies are not supported: {instead}")
    if not is_http_address(whole):
        raise BadInput(variable, "must be a proxy's address like http://proxy:3128 or http://user:password@proxy:3128")
    return whole


def tls_context(env: Environment, ca_file: str | None = None) -> ssl.SSLContext:
    """A context that checks names and certificates. It trusts the authorities of the system, or those of
    `SSL_CERT_FILE` instead; besides, those of `ca_file`. Refused: a file without certificates."""
    return _context(env.get(CA_FILE_VARIABLE, "").strip(), ca_file or "")


@cache
def _context(instead: str, besides: str) -> ssl.SSLContext:
    context = ssl.create_default_context() if not instead else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for field, path in ((CA_FILE_VARIABLE, instead), ("models.caFile", besides)):
        if path:
            try:
                context.load_verify_locations(path)
            except (OSError, ssl.SSLError) as error:
                words = error.strerror or error_words(error)
                raise BadInput(field, f"must be a readable file of certificates in PEM ({words})", path) from None
    context.set_alpn_protocols(["http/1.1"])
    return context
