"""The picture in the README: what a terminal shows during `fledge demo`, at the end. Made by `python -m docs.picture`.

The demo runs in a real pseudo-terminal; what it writes is followed line by line, and the screen it leaves becomes an
SVG. Process numbers and times differ from one run to the next, so nothing checks that it is fresh.
"""

import html
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

TARGET = Path(__file__).with_name("demo.svg")
WIDTH, LINE, CHAR, MARGIN = 112, 18, 8.4, 16
REDRAWN = re.compile(r"\x1b\[(\d+)F\x1b\[0J")
INK = {"you": "#7aa2f7", "main": "#9ece6a", "✔": "#73daca", "***": "#f7768e"}


def screen(command: list[str]) -> list[str]:
    """What stands on a terminal after this command."""
    ours, theirs = pty.openpty()
    env = os.environ | {"TERM": "xterm", "COLUMNS": str(WIDTH), "LINES": "60"}
    with subprocess.Popen(command, stdout=theirs, stdin=theirs, stderr=theirs, env=env, close_fds=True) as process:
        os.close(theirs)
        raw = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:
                break
            if not piece:
                break
            raw += piece
        process.wait()
    os.close(ours)
    lines: list[str] = []
    rest = raw.decode("utf-8", "replace").replace("\r\n", "\n")
    while rest:
        redrawn = REDRAWN.match(rest)
        if redrawn is not None:
            del lines[len(lines) - int(redrawn[1]) :]
            rest = rest[redrawn.end() :]
            continue
        line, _, rest = rest.partition("\n")
        lines.append(line)
    return lines


def picture(lines: list[str]) -> str:
    """The lines as an SVG that needs nothing from anywhere."""
    shown = [line[: WIDTH - 1] for line in lines]
    width, height = int(WIDTH * CHAR + 2 * MARGIN), len(shown) * LINE + 2 * MARGIN
    rows = []
    for number, line in enumerate(shown):
        ink = next((colour for word, colour in INK.items() if line.startswith(word)), "#c0caf5")
        y = MARGIN + LINE * number + 13
        rows.append(f'<text x="{MARGIN}" y="{y}" fill="{ink}" xml:space="preserve">{html.escape(line)}</text>')
    style = "font-family:ui-monospace,Menlo,Consolas,monospace;font-size:14px"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" style="{style}">',
            f'<rect width="{width}" height="{height}" rx="8" fill="#1a1b26"/>',
            *rows,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    found = screen([sys.executable, "-m", "fledge.cli.main", "demo"])
    end = next(at for at, line in enumerate(found) if line.startswith("Next, "))
    TARGET.write_text(picture(["$ fledge demo", *found[: end - 1]]), encoding="utf-8")
    print(f"wrote {TARGET} ({end} lines)")
