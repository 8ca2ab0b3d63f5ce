"""Settings of OpenClaw that fledge knows and does not use, so that a pasted file is read with warnings, not refused.

One table, by the block that has the key. If ignoring a key makes something less strict, the advice names the setting to
use instead.
"""

_AGENT = (
    "models contextTokens contextLimits contextInjection contextPruning bootstrapMaxChars bootstrapTotalMaxChars "
    "thinkingDefault verboseDefault reasoningDefault fastModeDefault elevatedDefault toolProgressDetail memorySearch "
    "humanDelay typingMode typingIntervalSeconds blockStreamingDefault blockStreamingBreak blockStreamingChunk "
    "blockStreamingCoalesce params skills skillsLimits tts embeddedPi embeddedAgent experimental agentRuntime "
    "utilityModel modelPolicy systemPromptOverride"
)
_EXEC = (
    "host mode security ask node pathPrepend safeBins safeBinTrustedDirs safeBinProfiles strictInlineEval "
    "commandHighlighting reviewer backgroundMs timeoutSec timeoutSeconds cleanupMs notifyOnExit "
    "notifyOnExitEmptySuccess approvalRunningNoticeMs applyPatch"
)
_POLICY = "profile alsoAllow byProvider toolsBySender codeMode swarm elevated fs loopDetection message sandbox"
_SANDBOX = "backend workspaceAccess scope perSession workspaceRoot docker ssh browser prune"
_SUBAGENTS = "announceTimeoutMs requireAgentId delegationMode"

_BLOCKS = {
    "": "$schema $include accessGroups acp approvals audio audit auth bindings broadcast browser canvasHost "
    "cli commands crestodian cron diagnostics discovery env logging mcp media memory meta "
    "nodeHost proxy secrets skills surfaces talk ui update web wizard",
    "agents.defaults": f"{_AGENT} imageModel imageGenerationModel videoGenerationModel musicGenerationModel pdfModel "
    "pdfMaxBytesMb pdfMaxPages repoRoot skipBootstrap bootstrapPromptTruncationWarning userTimezone timeFormat "
    "envelopeTimezone envelopeTimestamp envelopeElapsed cliBackends compaction timeoutSeconds mediaMaxMb "
    "imageMaxDimensionPx additionalSystemPrompt",
    "agents.defaults.subagents": _SUBAGENTS,
    "agents.defaults.heartbeat": "session directPolicy accountId timeoutSeconds lightContext "
    "isolatedSession includeReasoning includeSystemPromptSection suppressToolErrorWarnings",
    "agents.defaults.sandbox": _SANDBOX,
    "agents.list[]": f"{_AGENT} default name agentDir heartbeat groupChat memory plugins runtime",
    "agents.list[].subagents": _SUBAGENTS,
    "agents.list[].sandbox": _SANDBOX,
    "agents.list[].identity": "avatar",
    "agents.list[].tools": _POLICY,
    "agents.list[].tools.exec": _EXEC,
    "tools": f"{_POLICY} media links toolSearch experimental",
    "tools.web": "fetch x_search",
    "tools.web.search": "maxResults timeoutSeconds cacheTtlMinutes brave perplexity grok gemini kimi openaiCodex",
    "tools.exec": _EXEC,
    "models": "mode pricing bedrockDiscovery ollama",
    "models.providers.<name>": "auth authHeader contextTokens contextWindow maxTokens params region request "
    "injectNumCtxForOpenAICompat localService agentRuntime",
    "models.providers.<name>.models[]": "name api baseUrl headers compat contextTokens params thinkingLevelMap "
    "agentRuntime mediaInput metadataSource",
    "models.providers.<name>.models[].cost": "tieredPricing",
    "messages": "messagePrefix responsePrefix groupChat inbound ackReaction ackReactionScope removeAckAfterReply "
    "statusReactions suppressToolErrors tts visibleReplies usageTemplate",
    "channels": "defaults modelByChannel whatsapp telegram discord irc googlechat slack mattermost signal imessage "
    "bluebubbles msteams matrix line nostr tlon twitch zalo zalouser feishu nextcloud-talk synology-chat webchat",
    "hooks": "enabled path token defaultSessionKey allowRequestSessionKey allowedSessionKeyPrefixes allowedAgentIds "
    "maxBodyBytes presets transformsDir mappings gmail internal",
    "plugins": "enabled allow deny load entries installs bundledDiscovery",
    "plugins.slots": "memory",
    "gateway": "mode bind customBindHost auth tailscale remote reload tls controlUi trustedProxies http nodes push "
    "tools webchat channelHealthCheckMinutes handshakeTimeoutMs allowRealIpFallback",
    "session": "scope dmScope identityLinks resetTriggers idleMinutes reset resetByType resetByChannel store mainKey "
    "sendPolicy maintenance writeLock typingMode typingIntervalSeconds transcriptRetentionDays maxRecentTurns",
    "session.threadBindings": "spawnSessions spawnSubagentSessions spawnAcpSessions defaultSpawnContext",
}

UNUSED: dict[str, tuple[str, ...]] = {block: tuple(sorted(keys.split())) for block, keys in _BLOCKS.items()}
"""By block (`agents.list[]` is any agent): the keys that are ignored with a warning."""

_DENY = "to keep a tool away use deny, to be asked first tools.<tool>.approval"
ADVICE: dict[str, str] = {
    "$include": "put the included settings into this file",
    "profile": _DENY,
    "byProvider": _DENY,
    "toolsBySender": _DENY,
    "elevated": _DENY,
    "sandbox": _DENY,
    "security": _DENY,
    "mode": _DENY,
    "ask": _DENY,
    "approvals": _DENY,
    "requireAgentId": "an omitted agentId is always the own agent",
    "models.mode": "built-in providers and models are always there",
    "heartbeat": "set agents.defaults.heartbeat",
    "compaction": "history is compacted when it nears the model's window",
}
"""By key, or by path where the same key means something else: advice on what to do instead, for keys that have one."""


def is_unused(block: str, key: str) -> bool:
    """True for a key of OpenClaw in this block that fledge does not use."""
    return key in UNUSED.get(block, ())


def warning(path: str, key: str) -> str:
    """The warning that the key at this path has no effect, with advice if there is any."""
    advice = ADVICE.get(path, ADVICE.get(key))
    return f"{path}: ignored, a key of OpenClaw that fledge does not use" + (f"; {advice}" if advice else "")
