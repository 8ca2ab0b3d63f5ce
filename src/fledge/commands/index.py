"""Where each verb is: the module that puts it into the table, and which verbs only read.

It imports nothing of fledge, so that a process that calls one verb, or asks another process for it, does not import all
of them. A test compares it with the table.
"""

from collections.abc import Mapping
from typing import Final

_NAMES: Final[Mapping[str, str]] = {
    "events": "events.subscribe events.unsubscribe events.watch",
    "listing": "runs.query sessions.list sessions.query",
    "login": "page.link",
    "signins": "signins.end signins.list",
    "people": """
        answer approvals.approve approvals.deny documents.accept identity permissions.list permissions.revoke
        undelivered.dismiss undelivered.retry
    """,
    "queries": """
        approvals.list documents.pending overview plans.list runs.ends runs.info runs.list runs.row runs.spans
        runs.tree sessions.below sessions.entry sessions.find sessions.history undelivered.list
    """,
    "runs": """
        plans.approve plans.reject runs.again runs.kill runs.remove runs.result runs.resume runs.send runs.spawn
        runs.steer runs.tell
    """,
    "system": "agents.list config.shown health models.list",
    "sessions": """
        agent agent.wait heartbeat.request reply send sessions.delete sessions.focus sessions.open
        sessions.patch sessions.stop sessions.unfocus sessions.wait slash.list slash.run system.event
    """,
}

_READS: Final = """
    agent.wait agents.list config.shown events.watch health identity models.list permissions.list
    reply runs.result sessions.wait signins.list slash.list
"""

HOMES: Final[Mapping[str, str]] = {name: home for home, names in _NAMES.items() for name in names.split()}
"""The module of each verb, by the verb's name."""
QUERIES: Final = frozenset(f"{_NAMES['queries']} {_NAMES['listing']}".split())
"""The verbs that need nothing but rows: they are answered also from a store that no process drives."""
READS: Final = QUERIES | frozenset(_READS.split())
"""The verbs that a caller may call again if it does not know whether the first call was carried out. They change
nothing, but for `runs.result`: it marks the result of a program's run as delivered, once."""
KEYED: Final = frozenset(["agent", "runs.again", "runs.send", "runs.spawn"])
"""The verbs that take a key: a request that is made again with the same key is carried out once."""
OF_SETTINGS: Final = frozenset(["agents.list", "config.shown", "models.list"])
"""The verbs that answer from the settings: a process that opens the folder for one of them reads the settings, although
the verb changes nothing."""
