"""`python -m bench.peers install [NAME …]`, or `measure [CHILDREN]`, which prints a line for each library."""

import argparse
import sys

from bench.peers.libraries import PEERS, install, measured


def main(arguments: list[str]) -> int:
    names = [peer.name for peer in PEERS]
    parser = argparse.ArgumentParser(prog="python -m bench.peers")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("install").add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    commands.add_parser("measure").add_argument("children", type=int, nargs="?", default=100)
    asked = parser.parse_args(arguments)
    if asked.command == "install":
        if unknown := set(asked.names) - set(names):
            parser.error(f"no such library: {', '.join(sorted(unknown))} (there are {', '.join(names)})")
        return 1 if install(asked.names) else 0
    for one in measured(asked.children, 1):
        print(f"{one.what}: {one.detail}" if one.cpu_ms is None else f"{one.what}: {one.cpu_ms:.2f} ms ({one.detail})")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
