"""`python -m bench.peers install [NAME …]`; then `python -m bench --only peers` measures them."""

import argparse
import sys

from bench.peers.libraries import PEERS, install


def main(arguments: list[str]) -> int:
    names = [peer.name for peer in PEERS]
    parser = argparse.ArgumentParser(prog="python -m bench.peers")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("install").add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    asked = parser.parse_args(arguments)
    if unknown := set(asked.names) - set(names):
        parser.error(f"no such library: {', '.join(sorted(unknown))} (there are {', '.join(names)})")
    return 1 if install(asked.names) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
