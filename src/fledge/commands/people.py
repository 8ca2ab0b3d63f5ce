"""Verbs for things that wait for a person (tool calls, plans, undelivered results, changed documents): `answer`,
`approvals.*`, `undelivered.*`, `documents.*`; those that show and revoke commands that a person has allowed for good:
`permissions.*`; and `identity`."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from fledge.api.fledge import MOST_WORDS
from fledge.api.identity import Identity
from fledge.api.values import Question
from fledge.api.views import session_key
from fledge.commands.gateway_state import GatewayState
from fledge.commands.looking import found
from fledge.commands.params import InWorkspace, Nothing, One
from fledge.commands.sessions import Done
from fledge.commands.table import Params, method
from fledge.core.exchange import plan_words
from fledge.core.keys import is_called, short_id
from fledge.core.permission import Permission
from fledge.core.value import NamedValue
from fledge.errors import BadInput
from fledge.orchestrator import control, transcripts, views
from fledge.orchestrator.commit import Commit

Always = Annotated[bool, Meta(description="allow such commands from now on: the question's `always` says which")]
ForChildren = Annotated[bool, Meta(description="with `always`: for subagents that run as this agent, too")]


class AnswerParams(Params):
    """An answer to a question."""

    id: Annotated[str, Meta(min_length=1, max_length=64)]
    digest: Annotated[str, Meta(min_length=1, max_length=64, description="of the call that was shown")]
    by: Annotated[str, Meta(max_length=64, description="who answers there, for the record")] = ""


class Approve(AnswerParams):
    """Approval of a tool call."""

    always: Always = False
    children: ForChildren = False


class Approved(NamedValue):
    """A tool call was approved."""

    ok: bool = True
    permission: Permission | UnsetType = UNSET
    """With `always`: the rule that was made."""


@method("approvals.approve")
async def approvals_approve(gateway: GatewayState, params: Approve) -> Approved:
    """Approve a tool call, if it is still the one that was shown (`digest`). With `always`, the
    commands in the question's `always` run without a question from now on."""
    rule = await gateway.fl.approve(
        params.id,
        by=gateway.signed(params.by),
        digest=params.digest,
        always=params.always,
        children=params.children,
    )
    return Approved(permission=rule or UNSET)


class Deny(AnswerParams):
    """Denial of a tool call."""

    words: Annotated[str, Meta(max_length=MOST_WORDS, description="for the model, as the person's words")] = ""


@method("approvals.deny")
async def approvals_deny(gateway: GatewayState, params: Deny) -> Done:
    """Deny a tool call; the model reads the denial, with the person's words."""
    await gateway.fl.deny(params.id, by=gateway.signed(params.by), digest=params.digest, words=params.words)
    return Done()


@method("permissions.list")
async def permissions_list(gateway: GatewayState, params: Nothing) -> list[Permission]:
    """The rules by which commands run without a question, of all folders and agents, oldest first."""
    return await gateway.fl.permissions()


class Revoke(Params):
    """`permissions.revoke`."""

    id: Annotated[str, Meta(min_length=1, max_length=64, description="of a rule, or its beginning")]


@method("permissions.revoke")
async def permissions_revoke(gateway: GatewayState, params: Revoke) -> Permission:
    """Remove a rule: the commands that it covered ask again. Answers the rule that was removed."""
    return await gateway.fl.revoke_permission(params.id)


class TakenUp(NamedValue):
    """The undelivered result or message that was retried or dismissed."""

    key: str
    name: str
    """The label of the run, else the key."""
    ok: bool = True


class RetryParams(One):
    """`undelivered.retry`."""

    to: Annotated[str, Meta(max_length=256, description="the conversation that gets the result instead")] = ""


@method("undelivered.retry")
async def undelivered_retry(gateway: GatewayState, params: RetryParams) -> TakenUp:
    """Deliver an undelivered result again, or a message, which is named by its key. With `to`, a result goes to that
    conversation instead of its requester."""
    return await _taken_up(gateway, "retry", params, session_key(params.to, "to") if params.to else None)


@method("undelivered.dismiss")
async def undelivered_dismiss(gateway: GatewayState, params: One) -> TakenUp:
    """Take an undelivered result, or a message, which is named by its key, off the list."""
    return await _taken_up(gateway, "dismiss", params)


async def _taken_up(
    gateway: GatewayState, action: Literal["retry", "dismiss"], params: One, to: str | None = None
) -> TakenUp:
    def take(c: Commit) -> TakenUp:
        key = params.target if c.tx.outbox.get(params.target) is not None else found(c.tx, params)
        control.take_up(c, action, key, to)
        return TakenUp(key=key, name=views.name_of(c.tx, key))

    return await gateway.commit(take)


@method("identity")
async def identity(gateway: GatewayState, params: Nothing) -> Identity:
    """The tools, agents, runtimes, hooks and settings that the answering process brings to its folder, by name, with
    digests. Another process compares them with its own before it uses the folder through this one."""
    return gateway.fl.identity


class ToAnswer(One):
    """`answer`."""

    target: Annotated[
        str, Meta(min_length=1, max_length=256, description="the beginning of a question's id, or the run of a plan")
    ]
    approve: bool
    words: Annotated[
        str, Meta(max_length=MOST_WORDS, description="with a no, for the model; the rejection of a plan needs some")
    ] = ""
    always: Always = False
    children: ForChildren = False


class Answered(NamedValue):
    """The tool call or plan that was answered, and the answer."""

    approved: bool
    tool: str = ""
    """For a tool call: the name of the tool."""
    permission: Permission | UnsetType = UNSET
    """With `always`: the rule that was made."""
    session_key: str
    run_id: str = ""
    """For a plan: the run id of the attempt that follows."""


@method("answer")
async def answer(gateway: GatewayState, params: ToAnswer) -> Answered:
    """Approve or reject a tool call or a plan that waits for a person."""
    waiting = await gateway.fl.approvals()
    asked = [one for one in waiting if is_called(one.id, params.target)]
    if len(asked) == 1:
        return await _answered(gateway, params, asked[0])
    if params.always or params.children:
        raise BadInput(
            "always", "applies to a tool call that waits for approval; there is none of this name", params.target
        )

    def decide(c: Commit) -> Answered:
        key = found(c.tx, params)
        calls = [f"{short_id(one.id)} ({one.tool})" for one in waiting if one.session_key == key]
        if calls:
            raise BadInput("target", f"must be the id of the tool call that waits: {', '.join(calls)}", params.target)
        if not params.approve and not params.words.strip():
            raise BadInput("words", "must say why the plan is rejected")
        run = control.answer_plan(c, key, params.approve, plan_words(params.approve, params.words))
        return Answered(approved=params.approve, session_key=run.key, run_id=run.run_id)

    return await gateway.commit(decide)


async def _answered(gateway: GatewayState, params: ToAnswer, asked: Question) -> Answered:
    """Answer the question about a tool call."""
    rule = None
    if params.approve:
        if params.words.strip():
            raise BadInput("words", "go with a no, or with a plan: a tool call that is allowed is run as it is")
        rule = await gateway.fl.approve(
            asked.id, by=gateway.client, digest=asked.digest, always=params.always, children=params.children
        )
    elif params.always or params.children:
        raise BadInput("always", "goes with a yes")
    else:
        await gateway.fl.deny(asked.id, by=gateway.client, digest=asked.digest, words=params.words)
    return Answered(
        approved=params.approve,
        tool=asked.tool,
        permission=rule or UNSET,
        session_key=asked.session_key,
    )


class TakeIn(InWorkspace):
    """`documents.accept`."""

    digests: dict[str, str]
    """By name of a document: the digest of the version that a person has seen."""


@method("documents.accept")
async def documents_accept(gateway: GatewayState, params: TakeIn) -> list[str]:
    """Accept these versions of a workspace's documents for prompts. Answers the names of those that were left out until
    now."""
    return await gateway.commit(transcripts.accept_documents, params.workspace, params.digests)
