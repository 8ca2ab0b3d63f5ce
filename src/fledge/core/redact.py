"""Redaction: secrets that are taken out of a transcript before another session or person sees it.

Known kinds of keys and tokens, headers that carry credentials, private key blocks, passwords in addresses, and values
that stand beside a name such as `api_key`. It recognises shapes, so it cannot know every secret: it lowers the risk of
showing one, and is no reason to show more. Names of secrets stay, so that a reader can tell what was there.
"""

import re
from collections.abc import Iterable
from typing import Final

REDACTED: Final = "[redacted]"

# Every pattern is bounded or starts at a rare word, so that no text, however hostile, takes long to search.
_BLOCK: Final = re.compile(
    r"-----BEGIN (?:[A-Z0-9 ]{0,40})PRIVATE KEY(?: BLOCK)?-----(?s:.*?-----END [^\n]{0,60}-----|.*)"
)
_HEADER: Final = re.compile(
    r"""(?i)((?:proxy-)?authorization["'\\]{0,4}\s{0,4}[:=]\s{0,4}["'\\]{0,4})([^\r\n"'\\]+)"""
    r"""|((?:set-)?cookie["'\\]{0,4}\s{0,4}:\s{0,4}["'\\]{0,4})([^\s"'\\=;]{1,200}=[^\r\n"'\\]+)"""
)
_NAMED: Final = re.compile(
    r"""(?ix)
    ( (?: api[_-]?key | access[_-]?key | private[_-]?key | secret[_-]?key | secret | token | credential
        | passw(?:or)?d | passphrase | api[_-]?token | access[_-]?token | auth[_-]?token )
      ["'\\]{0,4} \s{0,4} [:=] \s{0,4} ["'\\]{0,4} )
    ( (?<=["'\\=]) [^\s"'\\,;&]{4,} | [^\s"'\\,;&]{8,} )
    """
)
_ADDRESS: Final = re.compile(r"(?<=://)(?:[^\s/@:\"']{0,200}:[^\s/\"']{1,1000}|[^\s/@:\"']{16,1000})(?=@)")
_SHAPES: Final = re.compile(
    r"""(?x)
    \b (?: (?i:sk|pk|gsk|xai) - [\w*.-]{6,200}+
         | (?: sk | rk | pk ) _ (?: live | test ) _ \w{10,200}+
         | AIza [\w-]{20,100}+ | ya29\. [\w-]{20,500}+
         | gh[pousr]_ \w{20,255}+ | github_pat_ \w{20,255}+ | glpat- [\w-]{16,100}+
         | xox[abeoprs]- [\w-]{10,250}+ | (?: AKIA | ASIA ) [0-9A-Z]{16} \b
         | npm_ \w{30,100}+ | hf_ \w{20,100}+ | SG\. [\w-]{16,100}+ \. [\w-]{16,100}+
         | \d{8,10} : [\w-]{35} \b
         | eyJ [\w-]{8,2000}+ \. [\w-]{8,2000}+ (?: \. [\w-]{0,2000}+ )?
         | (?i:bearer) \s{1,4} [^\s"',;\\]{1,4000}
         | (?i:basic) \s{1,4} (?= [a-z+/=]* [A-Z0-9] ) [A-Za-z0-9+/]{12,2000}+ ={0,2}
      )
    """
)


_RULES: Final = ((_BLOCK, (0,)), (_HEADER, (2, 4)), (_SHAPES, (0,)), (_NAMED, (2,)), (_ADDRESS, (0,)))
"""Each pattern with the groups that hold its secret."""

TextSpan = tuple[int, int]


def secrets(text: str) -> list[TextSpan]:
    """Where the text holds what looks like a secret: start and end of each, in order, none touching another."""
    found = [match.span(group) for pattern, groups in _RULES for match in pattern.finditer(text) for group in groups]
    apart: list[TextSpan] = []
    for start, end in sorted(span for span in found if span[0] >= 0):
        if apart and start <= apart[-1][1]:
            apart[-1] = (apart[-1][0], max(end, apart[-1][1]))
        else:
            apart.append((start, end))
    return apart


def redacted(text: str, mark: str = REDACTED) -> str:
    """The text with `mark` for everything in it that looks like a secret."""
    return hidden(text, secrets(text), mark)


def error_words(error: BaseException) -> str:
    """The words of an exception, without secrets. The exceptions of libraries quote what they were given, such as the
    address of a proxy with its password: no words of them reach a model, a log or a transcript but through this."""
    return redacted(str(error))


def hidden(text: str, spans: Iterable[TextSpan], mark: str = REDACTED) -> str:
    """The text with `mark` for each of these spans."""
    parts, done = [], 0
    for start, end in spans:
        parts += [text[done:start], mark]
        done = end
    return "".join([*parts, text[done:]]) if parts else text
