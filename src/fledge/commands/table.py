"""The table of verbs: each has the struct into which its parameters are read, the type of its answer, and its function.

One vocabulary holds for all parameters: `session` is a session key, `run` a run id, `agent` an agent's id, `requester`
the session whose runs are meant, and `target` a word for one of them. Old names stand in the structs (`formerly`).

`methods` has the whole table. The published schema is made from it, so it describes exactly the checks that are made.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from msgspec import Struct

from fledge.commands.wire import WireObject
from fledge.core.params import Reading, as_written, read_params
from fledge.core.run import Instant
from fledge.core.value import NamedValue, Value
from fledge.errors import BadInput, FledgeError
from fledge.store.base import Tx

if TYPE_CHECKING:
    from fledge.commands.gateway_state import GatewayState

P = TypeVar("P", bound=Struct)
T = TypeVar("T")
Do = TypeVar("Do", bound=Callable[["GatewayState", Any], Awaitable[object]])
Query = TypeVar("Query", bound=Callable[["Moment", Any], object])

log = logging.getLogger("fledge.gateway")


class Reader(Protocol):
    """A folder whose rows can be read, as queries use it. A `GatewayState` is one, so is a store at rest."""

    old_names: set[tuple[str, str]]
    """Former names that callers have used, of methods and of their parameters: each is logged once."""

    @property
    def drives(self) -> bool:
        """True if unfinished work continues in this process."""

    def now(self) -> Instant:
        """The time."""

    async def read(self, look: Callable[[Tx], T]) -> T:
        """The answer of `look`, which reads the rows of one moment."""


class Moment(Value):
    """The rows of a folder at one moment, from which a query is answered."""

    tx: Tx
    now: Instant
    drives: bool
    """True if unfinished work continues in this process."""


class Params(NamedValue, rename="camel", forbid_unknown_fields=True):
    """The parameters of a method."""


class Method(Value):
    """One method."""

    name: str
    params: type[Struct]
    result: Any
    """The type of its answer."""
    meaning: str
    do: Callable[[Any, Any], Awaitable[object]]
    """Takes a `Reader` if it is a query, else a `GatewayState`; and the parameters."""
    nested: str = ""
    """The former parameter that held the others as members; it is still read. Empty: there was none."""
    formerly: str = ""
    """Its former name, which still works. Empty: it has none."""


METHODS: Final[dict[str, Method]] = {}
FORMER: Final[dict[str, str]] = {}
"""By a method's former name: its present one."""


def method(name: str, *, nested: str = "", formerly: str = "") -> Callable[[Do], Do]:
    """Put a function into the table: the type of its `params` is that of the parameters, its return type that of the
    answer, its docstring the published description."""

    def put(do: Do) -> Do:
        types, meaning = do.__annotations__, (do.__doc__ or "").strip()
        METHODS[name] = Method(name, types["params"], types["return"], meaning, do, nested, formerly)
        if formerly:
            FORMER[formerly] = name
        return do

    return put


def query(name: str, *, formerly: str = "") -> Callable[[Query], Query]:
    """The same for a function of rows and parameters. All rows that it reads are those of one moment."""

    def put(answer: Query) -> Query:
        @wraps(answer)
        async def do(folder: Reader, params: Any) -> object:
            now = folder.now()
            return await folder.read(lambda tx: answer(Moment(tx, now, folder.drives), params))

        method(name, formerly=formerly)(do)
        return answer

    return put


async def carry_out(gateway: Reader, method: Method, given: WireObject, do: Callable[[P], Awaitable[object]]) -> object:
    """Read the parameters and carry out the method. A BadInput names its field as the caller wrote it; each old name
    that a caller uses is logged once."""
    written: dict[str, str] = {}
    old_forms: dict[str, str] = {}
    try:
        if method.nested and method.nested in given:
            old_forms[method.nested] = "give its members as parameters"
            given = _unnested(method.nested, given, written)
        reading: Reading[Any] = read_params(method.params, given)
        written |= {name: written.get(key, key) for name, key in reading.written.items()}
        old_forms |= {old: f"the parameter is called {name}" for old, name in reading.old_names.items()}
        for old, right in old_forms.items():
            if (method.name, old) not in gateway.old_names:
                gateway.old_names.add((method.name, old))
                log.warning("%s: %s is deprecated: %s", method.name, old, right)
        return await do(reading.params)
    except FledgeError as error:
        raise as_written(error, written) from None


def _unnested(nested: str, given: WireObject, written: dict[str, str]) -> WireObject:
    """The parameters side by side. `written` gets the caller's names of those that were nested."""
    inner = {} if given[nested] is None else given[nested]
    if not isinstance(inner, dict):
        raise BadInput(nested, "must be an object; its members may stand beside it instead", inner)
    outer = {name: value for name, value in given.items() if name != nested}
    for name in inner:
        if name in outer:
            raise BadInput(name, f"was given twice: here and in {nested}")
        written[name] = f"{nested}.{name}"
    return {**outer, **inner}
