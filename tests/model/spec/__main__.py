"""`python -m tests.model.spec`: search configurations, and print what is found.

python -m tests.model.spec              the first draft of the contract, then every fix, then other readings; no traces
python -m tests.model.spec NAME         one configuration with every fix, and the shortest trace of each violation
python -m tests.model.spec NAME draft   the same without any fix
python -m tests.model.spec NAME FIX …   the same with the named fixes only
python -m tests.model.spec --drop       every configuration with all fixes but one, for each fix
"""

import argparse
from collections.abc import Collection, Iterable

from tests.model.graph import Found
from tests.model.spec.configurations import ALL, CONFIGURATIONS, MIXES, READINGS
from tests.model.spec.rules import FIXES
from tests.model.spec.search import search


def show(name: str, fixes: Collection[str]) -> Found:
    found = search(ALL[name], fixes)
    print(line(name, found), flush=True)
    return found


def line(name: str, found: Found) -> str:
    """A line of results.txt."""
    kinds = len(found.violations)
    return f"{name:18} {found.states:8} states  " + (f"{kinds} kinds of violation" if kinds else "ok")


def show_all(title: str, names: Iterable[str], fixes: Collection[str]) -> None:
    print(f"== {title}")
    print(f"total states: {sum(show(name, fixes).states for name in names)}")


def show_traces(name: str, fixes: Collection[str]) -> None:
    found = show(name, fixes)
    for violation in sorted(found.violations.values(), key=lambda each: len(each.trace)):
        print(f"   !! {violation.why}   [{len(violation.trace)} steps]")
        for label in violation.trace:
            print(f"        {label}")


def show_drops() -> None:
    for fix in FIXES:
        found = [
            (len(violation.trace), name, violation.why)
            for name, configuration in CONFIGURATIONS.items()
            for violation in search(configuration, FIXES.keys() - {fix}).violations.values()
        ]
        shortest = "{} steps, {}, {}".format(*min(found)) if found else "NONE"
        print(f"without {fix:9} {len(found):2} violations; shortest: {shortest}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.model.spec", description="Search the model of delivery.")
    parser.add_argument("name", nargs="?", choices=ALL, metavar="NAME", help="one configuration, with traces")
    parser.add_argument(
        "fixes", nargs="*", metavar="FIX", help=f"default: all; or draft, or some of {', '.join(FIXES)}"
    )
    parser.add_argument("--drop", action="store_true", help="all fixes but one, for each fix")
    asked = parser.parse_args()
    fixes = FIXES.keys() if not asked.fixes else set() if asked.fixes == ["draft"] else set(asked.fixes)
    if unknown := fixes - FIXES.keys():
        parser.error(f"no such fix: {', '.join(sorted(unknown))} (there are {', '.join(FIXES)})")
    if asked.drop:
        show_drops()
    elif asked.name:
        show_traces(asked.name, fixes)
    else:
        show_all("the first draft", CONFIGURATIONS, ())
        show_all("with every fix", CONFIGURATIONS | MIXES, FIXES)
        show_all("other readings and mutants, every fix on: each must fail", READINGS, FIXES)


if __name__ == "__main__":
    main()
