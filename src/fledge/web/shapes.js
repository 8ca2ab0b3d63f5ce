// The values that the gateway answers and tells, as types for editors and readers. Made from the gateway's schema by
// `python -m docs.generate`; a test fails when it is stale, and another when the page reads a field that is not here.

/** The return value of `fl.agent`.
 * @typedef {object} Accepted
 * @property {string} runId
 * @property {"accepted"} [status]
 * @property {number} [failures]
 */

/** An agent: its models, its tools, the agents that it may start, its limits and its use.
 * @typedef {object} AgentDetails
 * @property {string} id
 * @property {string} [description]
 * @property {string} [model]
 * @property {(string)[]} [fallbacks]
 * @property {(string)[]} may
 * @property {(string)[]} asks
 * @property {(string)[]} never
 * @property {(string)[]} starts
 * @property {number} maxDepth
 * @property {number} maxChildren
 * @property {Budget|null} budget
 * @property {string} sandbox
 * @property {string} network
 * @property {(AgentWeekday)[]} week
 */

/** The runs and cost of an agent on one day.
 * @typedef {object} AgentWeekday
 * @property {number} [runs]
 * @property {number|null} [costUsd]
 */

/** The tool call or plan that was answered, and the answer.
 * @typedef {object} Answered
 * @property {boolean} approved
 * @property {string} [tool]
 * @property {Permission} [permission]
 * @property {string} sessionKey
 * @property {string} [runId]
 */

/** The questions that wait for a person have changed; `open` has the ids of all that wait now.
 * @typedef {object} ApprovalsChanged
 * @property {"approvals"} type
 * @property {(string)[]} open
 */

/** A tool call was approved.
 * @typedef {object} Approved
 * @property {boolean} [ok]
 * @property {Permission} [permission]
 */

/** A file that is handed over.
 * @typedef {object} Artifact
 * @property {string} name
 * @property {number} bytes
 * @property {string} [sha256]
 */

/** A file that came with a message. `GET /attachments/<session>/<name>` downloads it.
 * @typedef {object} AttachmentShown
 * @property {string} name
 * @property {number} size
 * @property {string} type
 */

/** The session that gets messages from the given address.
 * @typedef {object} Begun
 * @property {string} sessionKey
 * @property {string} name
 * @property {number} entry
 * @property {string} [earlier]
 */

/** The present work of a conversation and of the subagents below it.
 * @typedef {object} Below
 * @property {number} nowAt
 * @property {"busy"|"idle"|"queued"} state
 * @property {number|null} [openedAt]
 * @property {boolean} [waits]
 * @property {string} [unanswered]
 * @property {FailingTurn|null} [failing]
 * @property {number} [tokensIn]
 * @property {number} [tokensOut]
 * @property {number|null} [costUsd]
 * @property {(ChildAtWork)[]} [children]
 * @property {(Target)[]} [targets]
 */

/** A binding, made or ended.
 * @typedef {object} Bound
 * @property {string} sessionKey
 */

/** Limits for a run and everything below it; None means no limit. A run ends when it reaches one.
 * @typedef {object} Budget
 * @property {number|null} [tokens]
 * @property {number|null} [usd]
 * @property {number|null} [turns]
 * @property {number|null} [seconds]
 */

/** One limit of a budget, by its name, and how much of it is used.
 * @typedef {object} BudgetUse
 * @property {string} name
 * @property {number} used
 * @property {number} most
 */

/** The question to a person about a call, and its answer.
 * @typedef {object} CallAsked
 * @property {string} id
 * @property {string} state
 * @property {string} [answeredBy]
 * @property {string} [words]
 * @property {string} [rule]
 */

/** One tool call of a reply.
 * @typedef {object} CallValue
 * @property {string} id
 * @property {string} name
 * @property {string} arguments
 * @property {number} [size]
 * @property {"asked"|"error"|"ok"|"running"|"unknown"} status
 * @property {number} startedAt
 * @property {number|null} [endedAt]
 * @property {number} [resultSeq]
 * @property {string} [childRunId]
 * @property {string} [childSessionKey]
 * @property {FileChange|null} [change]
 * @property {CallAsked|null} [question]
 */

/** One line of a change.
 * @typedef {object} ChangeLine
 * @property {"added"|"gap"|"kept"|"removed"} mark
 * @property {string} text
 */

/** A subagent that has not settled.
 * @typedef {object} ChildAtWork
 * @property {string} sessionKey
 * @property {string} label
 * @property {string} state
 * @property {number} depth
 * @property {number} [tokens]
 * @property {boolean} [waits]
 * @property {number|null} [startedAt]
 */

/** The result of a command, in words for the person who gave it.
 * @typedef {object} CommandResult
 * @property {string} text
 * @property {boolean} [ok]
 * @property {"again"|"agents"|"allow"|"approvals"|"approve"|"attach"|"compact"|"deny"|"event"|"focus"|"heartbeat"|"help"|"image"|"info"|"kill"|"list"|"log"|"model"|"permissions"|"reject"|"reload"|"remove"|"resume"|"send"|"spawn"|"status"|"steer"|"stop"|"tree"|"undelivered"|"unfocus"|null} [verb]
 */

/** A completion of a child that the session has read.
 * @typedef {object} CompletionValue
 * @property {string} kind
 * @property {string} sessionKey
 * @property {string} [runId]
 * @property {string} [label]
 * @property {string} status
 * @property {string} [error]
 * @property {string} [summary]
 * @property {Stats} [stats]
 * @property {(Artifact)[]} [artifacts]
 * @property {number} [moreArtifacts]
 * @property {string} [resultId]
 * @property {number} [resultBytes]
 * @property {boolean} [inOneLine]
 * @property {string} [result]
 */

/** Completions that the session read at once.
 * @typedef {object} CompletionsEntry
 * @property {"completions"} type
 * @property {number} seq
 * @property {number} at
 * @property {(CompletionValue)[]} [completions]
 * @property {string} [text]
 * @property {number} [size]
 */

/** Postponed; it will be tried again.
 * @typedef {object} Deferred
 * @property {"deferred"} kind
 * @property {"descendants-active"|"missing-requester"} reason
 */

/** The requester's transcript has it.
 * @typedef {object} Delivered
 * @property {"delivered"} kind
 * @property {"direct"|"queued"|"steered"} path
 */

/** No session could receive it.
 * @typedef {object} DeliveryFailed
 * @property {"failed"} kind
 * @property {boolean} retryable
 * @property {string} error
 */

/** The record of a try at delivery: the requester, the route, the phases tried, the result.
 * @typedef {object} DeliveryTrace
 * @property {string} key
 * @property {string} requester
 * @property {"main"|"nested"} depth
 * @property {"bound"|"fallback"|"hook"} route
 * @property {(Tried)[]} [tried]
 * @property {"direct"|"queued"|"steered"|null} [path]
 * @property {"summarised"|"whole"} [form]
 * @property {string} [why]
 */

/** The current activity of a run.
 * @typedef {object} Doing
 * @property {"children"|"delivery"|"ending"|"lost"|"model"|"preparing"|"queue"|"retry"|"stuck"|"tool"|"undriven"|"you"} kind
 * @property {string} text
 * @property {number|null} [sinceAt]
 * @property {number|null} [untilAt]
 */

/** It was done.
 * @typedef {object} Done
 * @property {boolean} [ok]
 */

/** The runs that a kill would end.
 * @typedef {object} Ends
 * @property {(RunRow)[]} rows
 * @property {number} leftOut
 */

/** A process that works with a store on a server.
 * @typedef {object} EngineView
 * @property {"alive"|"closing"|"dead"} state
 * @property {string} name
 * @property {string} host
 * @property {number} pid
 * @property {string} version
 * @property {boolean} drives
 * @property {number} sessions
 * @property {number} startedAt
 * @property {number} seenAt
 * @property {boolean} isThis
 */

/** Entries of a transcript, oldest first, with the lines between them.
 * @typedef {object} EntriesPage
 * @property {(MessageEntry|ReplyEntry|ResultEntry|CompletionsEntry|NoteEntry|LineEntry)[]} entries
 * @property {number} [first]
 * @property {number} [last]
 * @property {boolean} [older]
 * @property {boolean} [newer]
 */

/** Tokens that a reply used, as its provider counted them.
 * @typedef {object} EntryUsage
 * @property {number} [tokensIn]
 * @property {number} [tokensOut]
 * @property {number} [tokensCached]
 * @property {number} [tokensReasoning]
 */

/** It could not go on; `error` says why, in words for people.
 * @typedef {object} Failed
 * @property {"error"} type
 * @property {string} error
 */

/** A turn whose newest try has failed; it is tried again.
 * @typedef {object} FailingTurn
 * @property {number} tries
 * @property {string} reason
 * @property {number|null} nextAt
 * @property {number|null} endsAt
 */

/** The feed ends here; a new feed from this cursor continues it.
 * @typedef {object} FeedClosing
 * @property {"closing"} type
 * @property {number} cursor
 * @property {string} reason
 */

/** What a tool call would change in a file.
 * @typedef {object} FileChange
 * @property {string} path
 * @property {string} [note]
 * @property {(ChangeLine)[]} [lines]
 * @property {boolean} [hides]
 * @property {string} [digest]
 */

/** How many runs each filter finds: in the folder, in the whole tree to which `below` belongs, or among the runs of `requester`. Search, agent and time do not narrow them.
 * @typedef {object} FilterCounts
 * @property {number} all
 * @property {number} active
 * @property {number} waiting
 * @property {number} stuck
 * @property {number} failed
 * @property {number} undelivered
 */

/** The runs below some sessions, each with its children, oldest first. An archived run is among them only while a run below it is not archived.
 * @typedef {object} Forest
 * @property {(RunInfo)[]} runs
 * @property {number} leftOut
 */

/** An undelivered result or message. `fl.retry(key)` delivers it again, `fl.dismiss(key)` removes it.
 * @typedef {object} GivenUp
 * @property {string} key
 * @property {string} sessionKey
 * @property {string} runId
 * @property {string} kind
 * @property {string} label
 * @property {string} status
 * @property {string} [reason]
 * @property {string} text
 * @property {number|null} arrivedAt
 * @property {string} [to]
 * @property {number} [tries]
 * @property {number|null} [keptUntilAt]
 */

/** The state of the gateway.
 * @typedef {object} Health
 * @property {"closing"|"ok"} status
 * @property {string} version
 * @property {number} pid
 * @property {number} startedAt
 * @property {number} nowAt
 * @property {number} drivers
 * @property {number} questions
 * @property {number} plans
 * @property {number} undelivered
 * @property {number} subscriptions
 * @property {number} requests
 * @property {number} rejections
 * @property {object} counters
 * @property {(LaneView)[]} lanes
 * @property {StoreView} store
 * @property {(Wrong)[]} errors
 * @property {(number)[]} steps
 * @property {(EngineView)[]} engines
 */

/** The session that has the heartbeat.
 * @typedef {object} HeartbeatOf
 * @property {string} sessionKey
 */

/** The tools, agents, runtimes, hooks and settings of a process: for each kind, digests by name.
 * @typedef {object} Identity
 * @property {string} state
 * @property {string} program
 * @property {object} tools
 * @property {object} agents
 * @property {object} runtimes
 * @property {object} hooks
 * @property {object} settings
 * @property {string} workspace
 */

/** An image that came with an entry.
 * @typedef {object} ImageShown
 * @property {string} name
 * @property {string} mediaType
 * @property {number} bytes
 * @property {number} width
 * @property {number} height
 */

/** It was killed. `named` is true of the run the kill named, false of those below it.
 * @typedef {object} Killed
 * @property {"killed"} type
 * @property {boolean} named
 */

/** The result of a kill, by session keys. False if there was nothing left to end.
 * @typedef {object} Killing
 * @property {(string)[]} killed
 * @property {(string)[]} stopping
 * @property {(string)[]} [finished]
 */

/** A lane: its slots, how many of them are in use, and the sessions that wait for one.
 * @typedef {object} LaneView
 * @property {string} name
 * @property {number} used
 * @property {number} width
 * @property {number} [queued]
 * @property {number} [oldestWaitS]
 */

/** A limit of a run: the value asked for, the value that holds, and the rule that set it where they differ.
 * @typedef {object} Limit
 * @property {string} name
 * @property {number|null} [asked]
 * @property {number|null} [applied]
 * @property {string} [rule]
 * @property {boolean} [isCut]
 */

/** Something was done to a run: to this session's own, or to a child of the session.
 * @typedef {object} LineEntry
 * @property {"line"} type
 * @property {number} seq
 * @property {number} at
 * @property {"crashed"|"killed"|"plan_approved"|"plan_rejected"|"restarted"|"resumed"|"steered"} kind
 * @property {string} sessionKey
 * @property {string} [label]
 * @property {string} [reason]
 */

/** A live event: something happened inside a turn. The fields mean the same as in the library's `TurnEvent`.
 * @typedef {object} Live
 * @property {"turn"} type
 * @property {string} sessionKey
 * @property {string} kind
 * @property {string} [text]
 * @property {number} [turn]
 * @property {string} [call]
 * @property {string} [remedy]
 * @property {number} [retryInS]
 * @property {number} [entry]
 * @property {string} [arguments]
 * @property {string} [cause]
 * @property {number} [offset]
 * @property {number} [tokensIn]
 * @property {number} [tokensOut]
 * @property {number|null} [costUsd]
 * @property {boolean} [isError]
 * @property {boolean} [mayPass]
 */

/** At least `count` live events are missing, because this watcher is slow, or messages between processes that share a store were lost.
 * @typedef {object} Lost
 * @property {"lost"} type
 * @property {number} count
 */

/** A moment at which something was done to the run.
 * @typedef {object} Mark
 * @property {number} at
 * @property {"crashed"|"killed"|"plan_approved"|"plan_rejected"|"restarted"|"resumed"|"steered"} name
 * @property {string} [reason]
 */

/** One entry of a transcript.
 * @typedef {object} Message
 * @property {number} seq
 * @property {number} at
 * @property {"assistant"|"event"|"note"|"tool"|"user"} role
 * @property {string} text
 * @property {string} [kind]
 * @property {(string)[]} [calls]
 * @property {string} [runId]
 * @property {boolean} [isCut]
 * @property {(CompletionValue)[]} [completions]
 * @property {(AttachmentShown)[]} [attachments]
 */

/** Words that came in.
 * @typedef {object} MessageEntry
 * @property {"message"} type
 * @property {number} seq
 * @property {number} at
 * @property {string} kind
 * @property {"fledge"|"person"|"session"} by
 * @property {string} text
 * @property {number} [size]
 * @property {string} [source]
 * @property {string} [runId]
 * @property {(ImageShown)[]} [images]
 * @property {(AttachmentShown)[]} [attachments]
 */

/** A model that a conversation can use.
 * @typedef {object} ModelView
 * @property {string} name
 * @property {string} because
 * @property {number|null} [window]
 * @property {boolean|null} [images]
 * @property {number|null} [inputUsd]
 * @property {number|null} [outputUsd]
 */

/** An entry was appended to a transcript; `entry` is the same value as in `sessions.history`.
 * @typedef {object} NewEntry
 * @property {"entry"} type
 * @property {string} sessionKey
 * @property {MessageEntry|ReplyEntry|ResultEntry|CompletionsEntry|NoteEntry|LineEntry} entry
 */

/** The new attempt of a run.
 * @typedef {object} NextAttempt
 * @property {string} sessionKey
 * @property {string} runId
 * @property {number} attempt
 */

/** The next change of a run that needs no event but time.
 * @typedef {object} NextDue
 * @property {number} at
 * @property {string} what
 */

/** Something for the record, such as a summary of older entries.
 * @typedef {object} NoteEntry
 * @property {"note"} type
 * @property {number} seq
 * @property {number} at
 * @property {string} text
 * @property {number} [size]
 * @property {number} [covers]
 */

/** The attempt finished its task. `cut`: its last words were cut at the token limit.
 * @typedef {object} Ok
 * @property {"ok"} type
 * @property {boolean} [cut]
 */

/** The present work in a folder, and everything that waits for a person.
 * @typedef {object} Overview
 * @property {number} nowAt
 * @property {boolean} isDriven
 * @property {boolean} isUnfinished
 * @property {string} sessionKey
 * @property {number} elsewhere
 * @property {string} state
 * @property {number} unread
 * @property {(RunInfo)[]} runs
 * @property {number} leftOut
 * @property {(UnansweredTurn)[]} unanswered
 * @property {(Question)[]} questions
 * @property {(Plan)[]} plans
 * @property {number} undelivered
 */

/** An address of the page that signs a browser in once.
 * @typedef {object} PageLink
 * @property {string} address
 * @property {number} expiresAt
 */

/** A rule made by a person: some commands of an agent run in a folder without asking.
 * @typedef {object} Permission
 * @property {string} id
 * @property {(string)[]} words
 * @property {string} folder
 * @property {string} agent
 * @property {boolean} [children]
 * @property {number} madeAt
 * @property {string} madeBy
 * @property {boolean} [paths]
 * @property {boolean} [counts]
 */

/** A plan that waits for approval: `fl.approve_plan(plan.session_key)` or `fl.reject_plan(…, why)`.
 * @typedef {object} Plan
 * @property {string} sessionKey
 * @property {string} runId
 * @property {string} label
 * @property {string} text
 * @property {number} expiresAt
 * @property {number} askedAt
 * @property {string} requester
 * @property {(string)[]} [lineage]
 */

/** The result of posting a system event.
 * @typedef {object} Posted
 * @property {boolean} posted
 */

/** A tool call that waits for a person: answer it with `fl.approve(id)` or `fl.deny(id)`.
 * @typedef {object} Question
 * @property {string} id
 * @property {string} sessionKey
 * @property {string} tool
 * @property {string} arguments
 * @property {string} digest
 * @property {number} askedAt
 * @property {number} expiresAt
 * @property {string} [always]
 * @property {boolean} [forSubagents]
 * @property {"allowed"|"denied"|"expired"|"started"|"void"|"waiting"} [state]
 * @property {string} [answeredBy]
 * @property {string} [words]
 * @property {string} [rule]
 * @property {string} [why]
 * @property {FileChange|null} [change]
 * @property {string} [runId]
 * @property {string} [label]
 * @property {(string)[]} [lineage]
 * @property {string} [cwd]
 * @property {boolean} [isSandboxed]
 */

/** The model, tools and folder that a run really had, as recorded while it ran.
 * @typedef {object} RanWith
 * @property {string} model
 * @property {string} thinking
 * @property {(string)[]} tools
 * @property {boolean} boxed
 * @property {string} folder
 */

/** A run that was taken off the lists.
 * @typedef {object} RemovedRun
 * @property {string} sessionKey
 * @property {string} runId
 * @property {string} name
 */

/** The answer of a conversation, or the reason why there is none.
 * @typedef {object} Reply
 * @property {"error"|"ok"|"pending"|"stopped"} status
 * @property {string} [text]
 * @property {string|null} [error]
 * @property {string} runId
 * @property {(Question)[]} [questions]
 * @property {string} [delivery]
 */

/** A model's reply.
 * @typedef {object} ReplyEntry
 * @property {"reply"} type
 * @property {number} seq
 * @property {number} at
 * @property {string} text
 * @property {number} [size]
 * @property {(CallValue)[]} [calls]
 * @property {string} [model]
 * @property {EntryUsage} [usage]
 * @property {number|null} [costUsd]
 * @property {boolean} [isAside]
 * @property {boolean} [isCut]
 */

/** The work of a session: whether any is left, and the questions and failures that hold it up.
 * @typedef {object} Rest
 * @property {boolean} settled
 * @property {(Question)[]} [questions]
 * @property {(Plan)[]} [plans]
 * @property {number} [failures]
 * @property {number} [patienceSeconds]
 */

/** The result of a tool call.
 * @typedef {object} ResultEntry
 * @property {"result"} type
 * @property {number} seq
 * @property {number} at
 * @property {string} callId
 * @property {number} callSeq
 * @property {string} name
 * @property {string} text
 * @property {number} [size]
 * @property {boolean} [isError]
 * @property {boolean} [isUnknown]
 * @property {(ImageShown)[]} [images]
 */

/** The outcome of a run. A failed run is a `Result` with a status, not an exception.
 * @typedef {object} Result_Any_
 * @property {"error"|"killed"|"ok"|"pending"|"timeout"|"unknown"} status
 * @property {string} [text]
 * @property {string|null} [error]
 * @property {"complete"|"error"|"killed"|"timeout"|"unknown"|null} [endedReason]
 * @property {Ok|Failed|TimedOut|Killed|Unknown|null} [outcome]
 * @property {*|null} [value]
 * @property {string|null} [valueError]
 * @property {Stats} [stats]
 * @property {string} runId
 * @property {string} sessionKey
 * @property {string} [label]
 * @property {(string)[]} [artifacts]
 * @property {Worktree|null} [worktree]
 * @property {string} phase
 * @property {number|null} [startedAt]
 * @property {number|null} [endedAt]
 */

/** A run has changed; `row` is its present state. `cursor`: every event up to there is covered by this row or by earlier ones.
 * @typedef {object} RowEvent
 * @property {"row"} type
 * @property {number} cursor
 * @property {RunRow} row
 */

/** How the result of a run is handed over.
 * @typedef {object} RunDelivery
 * @property {"deferred"|"delivered"|"pending"|"skipped"|"undelivered"} state
 * @property {number} tries
 * @property {string} [why]
 * @property {number|null} [deliveredAt]
 */

/** An event of a run. `phase` and `status` are the present ones when it is sent, not those just after the event.
 * @typedef {object} RunHappened
 * @property {"run"} type
 * @property {number} cursor
 * @property {string} sessionKey
 * @property {string} runId
 * @property {string} event
 * @property {number} version
 * @property {number} at
 * @property {string} phase
 * @property {string} status
 * @property {"complete"|"error"|"killed"|"timeout"|"unknown"|null} endedReason
 * @property {string} requester
 * @property {string} label
 */

/** A run as listed by `fl.runs()` and `fl.tree()`.
 * @typedef {object} RunInfo
 * @property {string} sessionKey
 * @property {string} runId
 * @property {number} number
 * @property {string} label
 * @property {string} task
 * @property {string} status
 * @property {string} phase
 * @property {string|null} error
 * @property {"complete"|"error"|"killed"|"timeout"|"unknown"|null} endedReason
 * @property {string} requester
 * @property {number} depth
 * @property {number} attempt
 * @property {string} plan
 * @property {string|null} delivery
 * @property {number} createdAt
 * @property {number|null} startedAt
 * @property {number|null} endedAt
 * @property {number} unsettled
 * @property {"run"|"session"} mode
 * @property {"delete"|"keep"} cleanup
 * @property {string} controller
 * @property {string} [model]
 * @property {number} [tokens]
 * @property {number|null} [costUsd]
 * @property {(RunInfo)[]} [children]
 * @property {number} [leftOut]
 * @property {boolean} [stuck]
 * @property {number|null} [queuedAt]
 * @property {number|null} [retryAt]
 * @property {string} [retryReason]
 * @property {number|null} [archiveAt]
 * @property {string} [origin]
 */

/** A page of runs.
 * @typedef {object} RunPage
 * @property {(RunRow)[]} rows
 * @property {FilterCounts} counts
 * @property {string} next
 * @property {number} nowAt
 * @property {boolean} isDriven
 * @property {number} feedCursor
 */

/** A run as lists show it, in one row.
 * @typedef {object} RunRow
 * @property {string} runId
 * @property {string} sessionKey
 * @property {number} number
 * @property {number} ordinal
 * @property {string} label
 * @property {string} task
 * @property {string} agentId
 * @property {string} model
 * @property {string} phase
 * @property {string} status
 * @property {"complete"|"error"|"killed"|"timeout"|"unknown"|null} endedReason
 * @property {string} error
 * @property {string|null} parent
 * @property {string} root
 * @property {string} requester
 * @property {number} depth
 * @property {number} attempt
 * @property {number} crashes
 * @property {(Mark)[]} marks
 * @property {number} createdAt
 * @property {number|null} startedAt
 * @property {number|null} endedAt
 * @property {number} tokensIn
 * @property {number} tokensOut
 * @property {number} tokensCached
 * @property {number|null} costUsd
 * @property {number|null} costBelowUsd
 * @property {(BudgetUse)[]} budget
 * @property {string} lane
 * @property {number} place
 * @property {Doing|null} now
 * @property {number|null} stuckAt
 * @property {RunDelivery|null} delivery
 * @property {number} children
 * @property {number} unsettled
 * @property {string} questionId
 * @property {string} planId
 * @property {boolean} isActive
 */

/** Where a run works.
 * @typedef {object} RunWorkspace
 * @property {"dir"|"inherit"|"worktree"} kind
 * @property {string} folder
 * @property {string} [cwd]
 * @property {boolean} [isSandboxed]
 */

/** The answer to a sender: what happened to its message.
 * @typedef {object} Sent
 * @property {"accepted"|"done"|"error"|"forbidden"|"ok"|"timeout"} status
 * @property {string} [sessionKey]
 * @property {string} [runId]
 * @property {string} [messageId]
 * @property {string} [reply]
 * @property {string} [delivery]
 * @property {string} [error]
 */

/** A session.
 * @typedef {object} SessionFound
 * @property {string} sessionKey
 */

/** A page of sessions, the latest active first.
 * @typedef {object} SessionPage
 * @property {(SessionRow)[]} rows
 * @property {string} next
 * @property {number} nowAt
 */

/** A session in a list.
 * @typedef {object} SessionRow
 * @property {string} key
 * @property {string} kind
 * @property {string} agentId
 * @property {string} label
 * @property {string|null} parent
 * @property {number} depth
 * @property {number} createdAt
 * @property {number} updatedAt
 * @property {"busy"|"idle"|"queued"} state
 * @property {number} unread
 * @property {number} unsettled
 * @property {string} [waitsFor]
 * @property {string} [status]
 * @property {string} [unanswered]
 * @property {FailingTurn|null} [failing]
 * @property {string} [project]
 * @property {string} [firstWords]
 * @property {string} [workspace]
 * @property {string} [model]
 * @property {number} [waits]
 * @property {number} [stuck]
 * @property {number|null} [costUsd]
 * @property {number|null} [costBelowUsd]
 */

/** One setting.
 * @typedef {object} SettingShown
 * @property {string} key
 * @property {string} value
 * @property {string} default
 * @property {string} source
 * @property {string} [meaning]
 */

/** A browser that is signed in at the gateway's page.
 * @typedef {object} SignedIn
 * @property {string} id
 * @property {string} browser
 * @property {number} madeAt
 * @property {number} usedAt
 * @property {number} endsAt
 */

/** There was nothing to tell, or a kill or a plan's answer made it moot.
 * @typedef {object} Skipped
 * @property {"skipped"} kind
 * @property {"announce-skip"|"silent"|"suppressed"} reason
 */

/** A slash command.
 * @typedef {object} SlashCommand
 * @property {string} form
 * @property {string} meaning
 * @property {string} name
 * @property {string} [arguments]
 */

/** Something that took a while, or still does.
 * @typedef {object} Span
 * @property {"attempts"|"children"|"delivery"|"model"|"phase"|"tools"|"waits"} lane
 * @property {number} startedAt
 * @property {number|null} [endedAt]
 * @property {string} name
 * @property {string} [short]
 * @property {string} [status]
 * @property {number} [tokens]
 * @property {string} [runId]
 * @property {string} [sessionKey]
 * @property {number} [seq]
 */

/** The spans of a run in a time, by lane and start, and its marks.
 * @typedef {object} Spans
 * @property {(Span)[]} spans
 * @property {(Mark)[]} marks
 * @property {number} [leftOut]
 */

/** The figures of an attempt, as measured; None where nothing was measured.
 * @typedef {object} Stats
 * @property {number|null} [runtimeS]
 * @property {number|null} [tokensIn]
 * @property {number|null} [tokensOut]
 * @property {number|null} [costUsd]
 * @property {number|null} [tokensCached]
 */

/** The sessions that a stop ended, and the messages that it withdrew.
 * @typedef {object} StopDone
 * @property {(string)[]} killed
 * @property {(string)[]} stopping
 * @property {(string)[]} [finished]
 * @property {(string)[]} [withdrawn]
 */

/** The database.
 * @typedef {object} StoreView
 * @property {string} folder
 * @property {string} server
 * @property {number} bytes
 * @property {number} freeBytes
 * @property {number} runs
 * @property {number} sessions
 * @property {number} events
 * @property {number} commitMs
 * @property {number} commitP95Ms
 */

/** A run in full.
 * @typedef {object} Story
 * @property {number} nowAt
 * @property {RunInfo} run
 * @property {(TimelineEvent)[]} timeline
 * @property {(Try)[]} tries
 * @property {Delivered|Deferred|Skipped|DeliveryFailed|null} announced
 * @property {string} text
 * @property {Stats} stats
 * @property {(string)[]} models
 * @property {RanWith|null} [ran]
 * @property {number} [timeoutS]
 * @property {(BudgetUse)[]} [budget]
 * @property {number} [spawned]
 * @property {(UnansweredTurn)[]} [unanswered]
 * @property {(FailingTurn)[]} [failing]
 * @property {(Question)[]} [questions]
 * @property {Question|null} [question]
 * @property {(Limit)[]} [limits]
 * @property {RunWorkspace} workspace
 * @property {(Artifact)[]} [artifacts]
 * @property {number} [moreArtifacts]
 * @property {NextDue|null} [due]
 */

/** A feed has begun: its events after `cursor` come as notifications `event`.
 * @typedef {object} Subscribed
 * @property {number} subscription
 * @property {number} cursor
 */

/** The undelivered result or message that was retried or dismissed.
 * @typedef {object} TakenUp
 * @property {string} key
 * @property {string} name
 * @property {boolean} [ok]
 */

/** A word that names a subagent in slash commands.
 * @typedef {object} Target
 * @property {string} word
 * @property {string} meaning
 */

/** Its time was up; its work so far was kept.
 * @typedef {object} TimedOut
 * @property {"timeout"} type
 */

/** One event in the life of a run, and the phase after it.
 * @typedef {object} TimelineEvent
 * @property {number} at
 * @property {string} name
 * @property {string} phase
 * @property {number} attempt
 * @property {string} words
 * @property {string} [reason]
 */

/** One phase of a delivery and how it came out; `detail` is its path, reason or error.
 * @typedef {object} Tried
 * @property {"direct-fallback"|"direct-primary"|"queue-fallback"|"queue-primary"} phase
 * @property {"deferred"|"delivered"|"failed"|"skipped"} result
 * @property {string} [detail]
 */

/** One try to deliver a result or a plan of a run.
 * @typedef {object} Try
 * @property {number} at
 * @property {DeliveryTrace} trace
 */

/** A turn that has read something and could not answer it for half an hour; it is still being tried.
 * @typedef {object} UnansweredTurn
 * @property {string} session
 * @property {number} turn
 * @property {number} sinceAt
 * @property {number} tries
 * @property {(string)[]} rows
 */

/** Nothing else can be said.
 * @typedef {object} Unknown
 * @property {"unknown"} type
 */

/** The return value of `fl.agent_wait`. The status `pending` is never final: wait again.
 * @typedef {object} Waited
 * @property {"error"|"ok"|"pending"|"timeout"} status
 * @property {string} runId
 * @property {number|null} [startedAt]
 * @property {number|null} [endedAt]
 * @property {string|null} [error]
 */

/** This process gets the live events of the session, whichever process drives its turns.
 * @typedef {object} Watching
 * @property {number} againS
 * @property {Live|null} [soFar]
 */

/** A git worktree of a child's own.
 * @typedef {object} Worktree
 * @property {string} path
 * @property {string} branch
 * @property {number|null} [commits]
 * @property {(string)[]} [changed]
 * @property {number} [moreChanged]
 */

/** Something that went wrong.
 * @typedef {object} Wrong
 * @property {number} at
 * @property {"crashed"|"failed"|"model"|"stuck"|"turn"|"undelivered"} kind
 * @property {string} sessionKey
 * @property {string} words
 */

export {};
