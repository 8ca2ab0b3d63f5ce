"""Words without secrets: what is taken out, what stays, and that no text takes long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fledge.core.redact import REDACTED, redacted, secrets

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\nAAAA\n-----END OPENSSH PRIVATE KEY-----"

SECRETS = [
    ("a key of a model", "use sk-proj-abc123DEF456 now", "use [redacted] now"),
    ("a key with stars", "Incorrect API key provided: sk-ab***cd.", "Incorrect API key provided: [redacted]"),
    ("a key of a cloud", "AKIAIOSFODNN7EXAMPLE!", "[redacted]!"),
    ("a key of maps", "AIza" + "b" * 35, "[redacted]"),
    ("a token of a forge", "ghp_" + "a1" * 18, "[redacted]"),
    ("a fine-grained token", "github_pat_" + "a1_" * 20, "[redacted]"),
    ("a token of a lab", "glpat-" + "a-1_" * 5, "[redacted]"),
    ("a token of a chat", "xoxb-1234-5678-abcdef", "[redacted]"),
    ("a bot's token", "bot 123456789:" + "A" * 35 + " end", "bot [redacted] end"),
    ("a payment key", "sk_live_0123456789ab", "[redacted]"),
    ("a web token", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.sflKxwRJSMeKKF2QT4", "[redacted]"),
    ("a bearer's token", "curl -H 'X: bearer abc.def'", "curl -H 'X: [redacted]'"),
    ("a basic credential", "Basic dXNlcjpwYXNzd29yZA== ok", "[redacted] ok"),
    ("a header", "Authorization: Digest user=1, nonce=2\nnext", "Authorization: [redacted]\nnext"),
    ("a header in JSON", '{"Authorization": "Token abc", "a": 1}', '{"Authorization": "[redacted]", "a": 1}'),
    ("a header in a string", r'"{\"authorization\": \"x\"}"', r'"{\"authorization\": \"[redacted]\"}"'),
    ("a proxy's header", "proxy-authorization: x y", "proxy-authorization: [redacted]"),
    ("a cookie", "Set-Cookie: sid=31d4; Path=/\nb", "Set-Cookie: [redacted]\nb"),
    ("a private key", f"before\n{KEY}\nafter", "before\n[redacted]\nafter"),
    ("a private key that was cut", KEY[:60], "[redacted]"),
    ("a variable", "export OPENAI_API_KEY=abcd1234", "export OPENAI_API_KEY=[redacted]"),
    ("a setting", '"clientSecret": "s3cr"', '"clientSecret": "[redacted]"'),
    ("a password in words", "password: correct-horse", "password: [redacted]"),
    ("a password in an address", "postgres://me:pw@host/db", "postgres://[redacted]@host/db"),
]

HARMLESS = [
    "tokens 15.2k (in 12.1k / out 3.1k)",
    "max_tokens=8192",
    "the token: it is a word",
    "a basic authentication",
    "Cookie: chocolate chip",
    "-----BEGIN PUBLIC KEY-----",
    "see https://host:8080/path",
    "ask-me-anything and disk-usage",
    "agent:main:subagent:550e8400-e29b-41d4-a716-446655440000",
    "git commit 3226a95f07033ed3f",
]


@pytest.mark.parametrize(("name", "text", "expected"), SECRETS, ids=[name for name, _, _ in SECRETS])
def test_a_secret_is_taken_out_and_its_surroundings_stay(name: str, text: str, expected: str) -> None:
    assert redacted(text) == expected


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays_as_it_is(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize(("name", "text", "expected"), SECRETS, ids=[name for name, _, _ in SECRETS])
def test_redacting_again_changes_nothing_more(name: str, text: str, expected: str) -> None:
    assert redacted(redacted(text)) == redacted(text)


def test_another_mark_can_stand_for_what_was_taken_out() -> None:
    assert redacted("token=abcdefgh and sk-abcdef", "[key]") == "token=[key] and [key]"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("nothing", []),
        ("token=sk-abcdef", [(6, 15)]),
        ("sk-abcdef sk-ghijkl", [(0, 9), (10, 19)]),
        ("Authorization: Bearer abc", [(15, 25)]),
        ("password: abcdefghAuthorization: ", [(10, 33)]),
    ],
)
def test_where_secrets_are_is_told_in_order_and_apart(text: str, found: list[tuple[int, int]]) -> None:
    assert secrets(text) == found


@given(st.text(max_size=200), st.sampled_from([text for _, text, _ in SECRETS]), st.text(max_size=200))
def test_a_secret_between_lines_of_anything_is_taken_out(before: str, secret: str, after: str) -> None:
    assert REDACTED in redacted(f"{before}\n{secret}\n{after}")


@pytest.mark.parametrize(
    "piece",
    [
        "eyJaaaaaaaa-",
        "sk-",
        "token",
        "authorization:",
        "-----BEGIN PRIVATE KEY-----",
        "://a:",
        "cookie: a",
        "bearer ",
        "\\",
        "1",
    ],
)
def test_no_text_takes_long(piece: str) -> None:
    # Half a megabyte each: a pattern with quadratic time would take minutes here.
    redacted(piece * (500_000 // len(piece)))
