"""Which proxy an address is asked through."""

import pytest

from fledge.egress import proxy_for
from fledge.errors import BadInput
from tests.statements import proves

PROXY = "http://u:secret@proxy.example:3128"
BOTH = {"http_proxy": "http://plain.example", "https_proxy": PROXY}


@pytest.mark.parametrize(
    ("url", "env", "place"),
    [
        ("https://a.example/v1", {}, None),
        ("https://a.example/v1", BOTH, "proxy.example:3128"),
        ("http://a.example/v1", BOTH, "plain.example:80"),
        ("https://a.example/v1", {"HTTPS_PROXY": "https://proxy.example"}, "proxy.example:443"),
        ("https://a.example/v1", {"HTTPS_PROXY": "other.example:1", "https_proxy": PROXY}, "proxy.example:3128"),
        ("https://a.example/v1", {"HTTP_PROXY": PROXY}, None),
        ("https://a.example/v1", {"HTTPS_PROXY": "  "}, None),
        ("https://a.example/v1", {"ALL_PROXY": PROXY}, "proxy.example:3128"),
        ("http://a.example/v1", {"ALL_PROXY": "a:1", "all_proxy": "b:2"}, "b:2"),
        ("https://a.example/v1", {"ALL_PROXY": "socks5://s:1", "HTTPS_PROXY": PROXY}, "proxy.example:3128"),
        ("https://127.0.0.1/v1", {"ALL_PROXY": "socks5://s:1"}, None),
        ("https://127.0.0.1:1/v1", BOTH, None),
        ("https://localhost/v1", BOTH, None),
        ("https://me.localhost/v1", BOTH, None),
        ("https://[::1]/v1", BOTH, None),
    ],
)
def test_the_proxy_is_the_one_of_the_environment(url: str, env: dict[str, str], place: str | None) -> None:
    found = proxy_for(url, env)
    assert (None if found is None else found.place) == place
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    ("excepted", "url", "direct"),
    [
        ("a.example", "https://a.example/", True),
        ("A.Example", "https://a.EXAMPLE/", True),
        ("a.example", "https://b.a.example/", True),
        (".a.example", "https://b.a.example/", True),
        ("*.a.example", "https://b.a.example/", True),
        ("a.example", "https://ba.example/", False),
        ("example", "https://a.example.org/", False),
        ("a.example:443", "https://a.example/", True),
        ("a.example:444", "https://a.example/", False),
        ("a.example:444", "https://a.example:444/", True),
        (" x , a.example ", "https://a.example/", True),
        ("*", "https://a.example/", True),
        ("", "https://a.example/", False),
        (",", "https://a.example/", False),
        (".", "https://a.example/", False),
        ("10.0.0.0/8", "https://10.1.2.3/", True),
        ("10.0.0.0/8", "https://11.1.2.3/", False),
        ("10.0.0.0/8", "https://a.example/", False),
        ("192.0.2.1", "https://192.0.2.1/", True),
        ("2001:db8::/32", "https://[2001:db8::1]/", True),
        ("[2001:db8::1]", "https://[2001:db8::1]/", True),
    ],
)
@pytest.mark.parametrize("variable", ["no_proxy", "NO_PROXY"])
def test_what_is_excepted_is_asked_directly(variable: str, excepted: str, url: str, direct: bool) -> None:
    assert (proxy_for(url, {**BOTH, variable: excepted}) is None) == direct


@proves("8.egress.4", "`ALL_PROXY` counts where no other variable does; a SOCKS proxy is refused, with what to set")
@pytest.mark.parametrize("given", ["socks5://u:secret@s:1080", "SOCKS5H://s:1080", "socks4://s:1080"])
def test_a_socks_proxy_is_refused_with_what_to_set(given: str) -> None:
    with pytest.raises(BadInput) as refused:
        proxy_for("https://a.example/v1", {"ALL_PROXY": given})
    words = "ALL_PROXY: SOCKS proxies are not supported: set HTTPS_PROXY to an http proxy, which goes before it"
    assert str(refused.value) == words


def test_a_socks_proxy_in_its_own_variable_is_refused_too() -> None:
    with pytest.raises(
        BadInput, match=r"^https_proxy: SOCKS proxies are not supported: name an http proxy, or unset it$"
    ):
        proxy_for("https://a.example/v1", {"https_proxy": "socks5://s:1"})
