"""Words without secrets: what is taken out of a transcript before anybody else is shown it.

Known kinds of keys and tokens, headers that carry credentials, private key blocks, passwords in addresses, and values
that stand beside a name such as `api_key`. It recognises shapes, so it cannot know every secret: it lowers the risk of
showing one, and is no reason to show more. Names of secrets stay, so that a reader can tell what was there.
"""

import re
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
_ADDRESS: Final = re.compile(r"(?<=://)[^\s/@:\"']{0,200}:[^\s/@\"']{1,200}(?=@)")
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


def redacted(text: str, mark: str = REDACTED) -> str:
    """The text with `mark` for everything in it that looks like a secret. Doing it again changes nothing more."""
    text = _BLOCK.sub(mark, text)
    text = _HEADER.sub(lambda found: _kept(found) + mark, text)
    text = _SHAPES.sub(mark, text)
    text = _NAMED.sub(lambda found: found[0] if found[2].startswith(mark) else found[1] + mark, text)
    return _ADDRESS.sub(mark, text)


def _kept(found: re.Match[str]) -> str:
    return found[1] or found[3]
