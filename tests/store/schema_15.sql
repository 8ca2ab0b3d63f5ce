-- fledge schema 1. One file per version; applied in order, in one transaction, after a backup.
-- Times are seconds since the epoch (REAL). JSON texts are written and read by msgspec only.
-- Checks and partial indexes compare with `=` and CASE, never IN: SQLite builds a temporary table for each list each
-- time, which made the update of a run three times as slow.

-- A durable conversation. `epoch` fences its driver's writes; `generation` is raised by every kill or stop.
CREATE TABLE sessions (
  key         TEXT PRIMARY KEY,
  kind        TEXT NOT NULL CHECK (kind = 'main' OR kind = 'named' OR kind = 'subagent' OR kind = 'acp' OR kind = 'program'),
  parent      TEXT,
  depth       INTEGER NOT NULL CHECK (depth >= 0),
  facts       TEXT NOT NULL,
  state       TEXT NOT NULL DEFAULT 'open' CHECK (state = 'open' OR state = 'deleted'),
  epoch       INTEGER NOT NULL DEFAULT 0,
  generation  INTEGER NOT NULL DEFAULT 0,
  last_entry  INTEGER NOT NULL DEFAULT 0,
  last_turn   INTEGER NOT NULL DEFAULT 0,
  created_at  REAL NOT NULL,
  CHECK ((parent IS NULL) = (depth = 0))
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_parent ON sessions (parent) WHERE parent IS NOT NULL;

-- Children of a session: how many were ever admitted, how many are unsettled now.
CREATE TABLE children (
  session     TEXT PRIMARY KEY,
  spawned     INTEGER NOT NULL DEFAULT 0,
  unsettled   INTEGER NOT NULL DEFAULT 0 CHECK (unsettled >= 0 AND unsettled <= spawned)
) STRICT, WITHOUT ROWID;

-- The transcript: appended, never changed.
CREATE TABLE entries (
  session     TEXT NOT NULL,
  seq         INTEGER NOT NULL,
  at          REAL NOT NULL,
  kind        TEXT NOT NULL
              CHECK (kind = 'user' OR kind = 'assistant' OR kind = 'tool' OR kind = 'event' OR kind = 'note'),
  body        TEXT NOT NULL,
  PRIMARY KEY (session, seq)
) STRICT, WITHOUT ROWID;

-- What waits to enter a session. `session` is null while nobody is left to be told; a completion's words are in `texts`.
-- `path` is how it was to be delivered when it arrived.
-- unread -> consumed | suppressed | void | undelivered;  undelivered -> unread (retried) | dismissed
CREATE TABLE inbox (
  seq         INTEGER PRIMARY KEY,
  key         TEXT NOT NULL UNIQUE,
  session     TEXT,
  kind        TEXT NOT NULL,
  source      TEXT,
  origin      TEXT NOT NULL DEFAULT '',
  state       TEXT NOT NULL DEFAULT 'unread',
  path        TEXT NOT NULL DEFAULT 'direct' CHECK (path = 'direct' OR path = 'queued' OR path = 'steered'),
  body        TEXT NOT NULL,
  text        TEXT,
  arrived_at  REAL NOT NULL,
  closed_at   REAL,
  -- A completion says whose it is; a message says to whom.
  CHECK (CASE kind
    WHEN 'outcome' THEN source IS NOT NULL
    WHEN 'plan'    THEN source IS NOT NULL
    WHEN 'expired' THEN source IS NOT NULL
    WHEN 'late'    THEN source IS NOT NULL
    WHEN 'task'    THEN session IS NOT NULL
    WHEN 'steer'   THEN session IS NOT NULL
    WHEN 'wake'    THEN session IS NOT NULL
    WHEN 'approval' THEN session IS NOT NULL
    WHEN 'send'    THEN session IS NOT NULL
    WHEN 'notice'  THEN session IS NOT NULL
    ELSE 0 END),
  CHECK (CASE state
    WHEN 'unread'      THEN closed_at IS NULL
    WHEN 'consumed'    THEN closed_at IS NOT NULL AND session IS NOT NULL
    WHEN 'suppressed'  THEN closed_at IS NOT NULL
    WHEN 'void'        THEN closed_at IS NOT NULL
    WHEN 'undelivered' THEN closed_at IS NOT NULL
    WHEN 'dismissed'   THEN closed_at IS NOT NULL
    ELSE 0 END)
) STRICT;
CREATE INDEX inbox_unread ON inbox (session, seq) WHERE state = 'unread';
CREATE INDEX inbox_open ON inbox (source) WHERE state = 'unread' OR state = 'undelivered';
CREATE INDEX inbox_undelivered ON inbox (seq) WHERE state = 'undelivered';

-- One drive of the loop over a session; at most one is open. `generations` is what stops were known when it opened.
CREATE TABLE turns (
  session     TEXT NOT NULL,
  turn        INTEGER NOT NULL,
  state       TEXT NOT NULL CHECK (state = 'open' OR state = 'closed'),
  generations TEXT NOT NULL,
  drained     INTEGER NOT NULL DEFAULT 0,
  failures    INTEGER NOT NULL DEFAULT 0,
  crashes     INTEGER NOT NULL DEFAULT 0,
  opened_at   REAL NOT NULL,
  closed_at   REAL,
  ended       TEXT,
  PRIMARY KEY (session, turn),
  CHECK ((state = 'open') = (closed_at IS NULL))
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX turns_open ON turns (session) WHERE state = 'open';

-- A run is its row: `state` is the whole value, the columns beside it are read out of it for indexes and checks.
CREATE TABLE runs (
  id          INTEGER PRIMARY KEY,
  key         TEXT NOT NULL UNIQUE,
  parent      TEXT NOT NULL,
  phase       TEXT NOT NULL,
  version     INTEGER NOT NULL CHECK (version >= 1),
  due_at      REAL,
  outcome     TEXT CHECK (outcome IS NULL OR outcome = 'ok' OR outcome = 'error' OR outcome = 'timeout'
                          OR outcome = 'killed' OR outcome = 'unknown'),
  delivery    TEXT CHECK (delivery IS NULL OR delivery = 'delivered' OR delivery = 'skipped' OR delivery = 'undelivered'),
  until_settled INTEGER CHECK (until_settled IS NULL OR phase = 'waiting'),
  spec        TEXT NOT NULL,
  state       TEXT NOT NULL,
  -- What is true in each phase. A reservation that is gone has no row.
  CHECK (CASE phase
    WHEN 'spawning'          THEN outcome IS NULL AND delivery IS NULL AND due_at IS NOT NULL
    WHEN 'queued'            THEN outcome IS NULL AND delivery IS NULL
    WHEN 'running'           THEN outcome IS NULL AND delivery IS NULL
    WHEN 'waiting'           THEN outcome IS NULL AND delivery IS NULL
    WHEN 'ending'            THEN outcome IS NULL AND delivery IS NULL AND due_at IS NOT NULL
    WHEN 'awaiting_approval' THEN outcome IS NULL AND delivery IS NULL AND due_at IS NOT NULL
    WHEN 'announcing'        THEN outcome IS NOT NULL AND delivery IS NULL
    WHEN 'announce_deferred' THEN outcome IS NOT NULL AND delivery IS NULL
    WHEN 'cleanup_pending'   THEN outcome IS NOT NULL AND delivery IS NOT NULL AND due_at IS NOT NULL
    WHEN 'completed'         THEN outcome IS NOT NULL AND delivery IS NOT NULL
    WHEN 'completed_giveup'  THEN outcome IS NOT NULL AND delivery IS 'undelivered' AND due_at IS NOT NULL
    WHEN 'archived'          THEN outcome IS NOT NULL AND delivery IS NOT NULL
    ELSE 0 END)
) STRICT;
CREATE INDEX runs_due ON runs (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX runs_parent ON runs (parent);
CREATE INDEX runs_places ON runs (parent) WHERE phase = 'spawning' OR phase = 'awaiting_approval';

-- Every name an attempt ever had still finds its run.
CREATE TABLE attempts (
  run_id      TEXT PRIMARY KEY,
  run         INTEGER NOT NULL,
  attempt     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX attempts_run ON attempts (run);

-- The timeline: a run is the fold of its events. Appended at the end of the table, whatever run they belong to: kept
-- together by run, each event would dirty a page of its own.
CREATE TABLE run_events (
  seq         INTEGER PRIMARY KEY,
  run         INTEGER NOT NULL,
  version     INTEGER NOT NULL,
  event       TEXT NOT NULL
) STRICT;
CREATE INDEX run_events_run ON run_events (run);

-- Results, plans and partials, kept once; they belong to a run and go with it.
CREATE TABLE texts (
  id          TEXT PRIMARY KEY,
  owner       TEXT NOT NULL,
  body        TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX texts_owner ON texts (owner);

-- Sessions that may be claimed (from `due_at` on, where that is set), by lane, fair rank and order of arrival.
CREATE TABLE queue (
  session     TEXT PRIMARY KEY,
  lane        TEXT NOT NULL,
  spawner     TEXT NOT NULL,
  rank        INTEGER NOT NULL,
  seq         INTEGER NOT NULL,
  suspect     INTEGER NOT NULL DEFAULT 0 CHECK (suspect = 0 OR suspect = 1),
  due_at      REAL
) STRICT, WITHOUT ROWID;
CREATE INDEX queue_order ON queue (lane, rank, seq);
CREATE INDEX queue_spawner ON queue (lane, spawner, rank);
CREATE INDEX queue_due ON queue (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE lanes (
  lane        TEXT PRIMARY KEY,
  rank        INTEGER NOT NULL DEFAULT 0,
  last_seq    INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- Who drives a session now. The row is the slot: it goes when the driver exits, or at `release_at`.
CREATE TABLE drivers (
  session     TEXT PRIMARY KEY,
  epoch       INTEGER NOT NULL,
  owner       TEXT NOT NULL,
  lane        TEXT NOT NULL,
  suspect     INTEGER NOT NULL DEFAULT 0,
  claimed_at  REAL NOT NULL,
  progress_at REAL NOT NULL,
  steps       INTEGER NOT NULL DEFAULT 0,
  step_open   INTEGER NOT NULL DEFAULT 0,
  release_at  REAL
) STRICT, WITHOUT ROWID;
CREATE INDEX drivers_lane ON drivers (lane);
CREATE INDEX drivers_release ON drivers (release_at) WHERE release_at IS NOT NULL;

-- What must reach the outside world, at least once, under a stable key.
CREATE TABLE outbox (
  seq         INTEGER PRIMARY KEY,
  key         TEXT NOT NULL UNIQUE,
  kind        TEXT NOT NULL,
  run         TEXT,
  body        TEXT NOT NULL,
  tries       INTEGER NOT NULL DEFAULT 0,
  due_at      REAL,
  done_at     REAL,
  error       TEXT,
  CHECK ((due_at IS NULL) = (done_at IS NOT NULL))
) STRICT;
CREATE INDEX outbox_due ON outbox (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX outbox_run ON outbox (run);

-- Every attempt to deliver a row, with its trace.
CREATE TABLE deliveries (
  seq         INTEGER PRIMARY KEY,
  row_key     TEXT NOT NULL,
  run         TEXT NOT NULL,
  at          REAL NOT NULL,
  trace       TEXT NOT NULL
) STRICT;
CREATE INDEX deliveries_run ON deliveries (run);
-- fledge schema 2: what thinking sessions need besides: notes that stand for older entries, questions to a person, budgets.

-- Entries up to `covered` are summed up in a later note, and no model sees them any more.
ALTER TABLE sessions ADD COLUMN covered INTEGER NOT NULL DEFAULT 0;

-- A tool call that needs a person. Bound to its place in the transcript and to a digest of tool and arguments.
-- waiting -> allowed | denied | expired | void;  allowed -> started
CREATE TABLE approvals (
  id          TEXT PRIMARY KEY,
  session     TEXT NOT NULL,
  entry       INTEGER NOT NULL,
  idx         INTEGER NOT NULL,
  tool        TEXT NOT NULL,
  arguments   TEXT NOT NULL,
  digest      TEXT NOT NULL,
  state       TEXT NOT NULL CHECK (state = 'waiting' OR state = 'allowed' OR state = 'denied' OR state = 'expired'
                                   OR state = 'void' OR state = 'started'),
  asked_at    REAL NOT NULL,
  expires_at  REAL NOT NULL,
  answered_by TEXT NOT NULL DEFAULT '',
  UNIQUE (session, entry, idx)
) STRICT, WITHOUT ROWID;
CREATE INDEX approvals_waiting ON approvals (asked_at) WHERE state = 'waiting';

-- Spawns by the key their caller gave them: the same key finds the same run, whoever repeats the call.
CREATE TABLE spawns (
  requester   TEXT NOT NULL,
  key         TEXT NOT NULL,
  run         TEXT NOT NULL,
  digest      TEXT NOT NULL,
  PRIMARY KEY (requester, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX spawns_run ON spawns (run);

-- What a session and everything below it may use, has used, and has set aside for steps under way.
CREATE TABLE purses (
  session     TEXT PRIMARY KEY,
  budget      TEXT NOT NULL,
  used        TEXT NOT NULL,
  reserved    TEXT NOT NULL,
  warned      INTEGER NOT NULL DEFAULT 0 CHECK (warned = 0 OR warned = 1)
) STRICT, WITHOUT ROWID;

-- What one session's open model step has set aside, in its own purse and those above.
CREATE TABLE reserves (
  session     TEXT PRIMARY KEY,
  step        TEXT NOT NULL
) STRICT, WITHOUT ROWID;
-- fledge schema 3: a step can be called off while its driver goes on.

-- How many of the driver's steps were called off; what it writes for an older one is refused.
ALTER TABLE drivers ADD COLUMN interrupts INTEGER NOT NULL DEFAULT 0;
-- fledge schema 4: messages that gave way to newer ones stay visible; what a turn was told whole is counted.

-- How many bytes of completions the turn was told whole.
ALTER TABLE turns ADD COLUMN told_bytes INTEGER NOT NULL DEFAULT 0;

-- The inbox again, with one more state. A dropped row is closed once its line was told, or at once if none will be.
-- unread -> consumed | suppressed | void | undelivered | dropped;  undelivered -> unread (retried) | dismissed
CREATE TABLE inbox_4 (
  seq         INTEGER PRIMARY KEY,
  key         TEXT NOT NULL UNIQUE,
  session     TEXT,
  kind        TEXT NOT NULL,
  source      TEXT,
  origin      TEXT NOT NULL DEFAULT '',
  state       TEXT NOT NULL DEFAULT 'unread',
  path        TEXT NOT NULL DEFAULT 'direct' CHECK (path = 'direct' OR path = 'queued' OR path = 'steered'),
  body        TEXT NOT NULL,
  text        TEXT,
  arrived_at  REAL NOT NULL,
  closed_at   REAL,
  -- A completion says whose it is; a message says to whom.
  CHECK (CASE kind
    WHEN 'outcome' THEN source IS NOT NULL
    WHEN 'plan'    THEN source IS NOT NULL
    WHEN 'expired' THEN source IS NOT NULL
    WHEN 'late'    THEN source IS NOT NULL
    WHEN 'task'    THEN session IS NOT NULL
    WHEN 'steer'   THEN session IS NOT NULL
    WHEN 'wake'    THEN session IS NOT NULL
    WHEN 'approval' THEN session IS NOT NULL
    WHEN 'send'    THEN session IS NOT NULL
    WHEN 'notice'  THEN session IS NOT NULL
    ELSE 0 END),
  CHECK (CASE state
    WHEN 'unread'      THEN closed_at IS NULL
    WHEN 'consumed'    THEN closed_at IS NOT NULL AND session IS NOT NULL
    WHEN 'suppressed'  THEN closed_at IS NOT NULL
    WHEN 'void'        THEN closed_at IS NOT NULL
    WHEN 'undelivered' THEN closed_at IS NOT NULL
    WHEN 'dismissed'   THEN closed_at IS NOT NULL
    WHEN 'dropped'     THEN session IS NOT NULL AND (kind = 'send' OR kind = 'notice')
    ELSE 0 END)
) STRICT;
INSERT INTO inbox_4 (seq, key, session, kind, source, origin, state, path, body, text, arrived_at, closed_at)
  SELECT seq, key, session, kind, source, origin, state, path, body, text, arrived_at, closed_at FROM inbox;
DROP TABLE inbox;
ALTER TABLE inbox_4 RENAME TO inbox;
CREATE INDEX inbox_session ON inbox (session, state, seq);
CREATE INDEX inbox_lines ON inbox (session, seq) WHERE state = 'dropped' AND closed_at IS NULL;
CREATE INDEX inbox_open ON inbox (source) WHERE state = 'unread' OR state = 'undelivered';
CREATE INDEX inbox_undelivered ON inbox (seq) WHERE state = 'undelivered';
-- fledge schema 5: what each turn really ran with (model, tools, sandbox), for those who look afterwards.

ALTER TABLE turns ADD COLUMN ran TEXT;
-- fledge schema 6: messages that are waited for by name.

-- What somebody asked of a session and waits for under a run id: the row that carries the words, what was wished for the
-- turn that reads them, and what became of that turn.
CREATE TABLE commissions (
  run_id      TEXT PRIMARY KEY,
  session     TEXT NOT NULL,
  row         TEXT NOT NULL UNIQUE,
  wishes      TEXT NOT NULL,
  key         TEXT,
  digest      TEXT NOT NULL,
  accepted_at REAL NOT NULL,
  turn        INTEGER,
  started_at  REAL,
  deadline_at REAL,
  ended_at    REAL,
  ended       TEXT,
  entry       INTEGER,
  CHECK ((turn IS NULL) = (started_at IS NULL)),
  CHECK ((ended_at IS NULL) = (ended IS NULL))
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX commissions_key ON commissions (key) WHERE key IS NOT NULL;
CREATE INDEX commissions_open ON commissions (session) WHERE ended_at IS NULL;
CREATE INDEX commissions_due ON commissions (deadline_at) WHERE deadline_at IS NOT NULL AND ended_at IS NULL;
-- fledge schema 7: what leaves. Where a session's words go, lanes in the outbox, and what could not be sent.

-- Where the words of an open turn came from (an address, or 'internal'), and so where its reply goes.
ALTER TABLE turns ADD COLUMN origin TEXT NOT NULL DEFAULT '';

-- How the origin of a completion was found, and until when it is held for somebody who may name another.
ALTER TABLE inbox ADD COLUMN route TEXT NOT NULL DEFAULT 'fallback'
  CHECK (route = 'fallback' OR route = 'bound' OR route = 'hook');
ALTER TABLE inbox ADD COLUMN held_until REAL;

-- A session's route. 'last': where somebody last spoke to it. 'bound': it belongs to that place until `due_at`, and
-- what is said there is said to it. `place` is the thread, else the one spoken to.
CREATE TABLE routes (
  session     TEXT PRIMARY KEY,
  kind        TEXT NOT NULL CHECK (kind = 'last' OR kind = 'bound'),
  channel     TEXT NOT NULL,
  recipient   TEXT NOT NULL,
  thread      TEXT NOT NULL,
  place       TEXT NOT NULL,
  owner       TEXT NOT NULL DEFAULT '',
  idle_s      REAL NOT NULL DEFAULT 0,
  ends_at     REAL,
  used_at     REAL NOT NULL,
  due_at      REAL CHECK (due_at IS NULL OR kind = 'bound')
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX routes_bound ON routes (channel, place) WHERE kind = 'bound';
CREATE INDEX routes_due ON routes (due_at) WHERE due_at IS NOT NULL;

-- The outbox again, with lanes (posts of one are sent one after the other, in order; '' is none) and states:
-- waiting -> sent | undelivered;  undelivered -> waiting (retried) | dismissed
-- `due_at` is when it is sent, or taken off the undelivered list.
CREATE TABLE outbox_7 (
  seq         INTEGER PRIMARY KEY,
  key         TEXT NOT NULL UNIQUE,
  kind        TEXT NOT NULL,
  lane        TEXT NOT NULL DEFAULT '',
  run         TEXT,
  body        TEXT NOT NULL,
  state       TEXT NOT NULL DEFAULT 'waiting',
  tries       INTEGER NOT NULL DEFAULT 0,
  retries     INTEGER NOT NULL DEFAULT 3 CHECK (retries >= 0),
  due_at      REAL,
  expires_at  REAL,
  closed_at   REAL,
  error       TEXT,
  CHECK (CASE state
    WHEN 'waiting'     THEN due_at IS NOT NULL AND closed_at IS NULL
    WHEN 'undelivered' THEN due_at IS NOT NULL AND closed_at IS NOT NULL AND error IS NOT NULL
    WHEN 'sent'        THEN due_at IS NULL AND closed_at IS NOT NULL
    WHEN 'dismissed'   THEN due_at IS NULL AND closed_at IS NOT NULL
    ELSE 0 END)
) STRICT;
INSERT INTO outbox_7 (seq, key, kind, run, body, state, tries, due_at, closed_at, error)
  SELECT seq, key, kind, run, body,
    CASE WHEN done_at IS NULL THEN 'waiting' WHEN error IS NULL THEN 'sent' ELSE 'dismissed' END,
    tries, due_at, done_at, error FROM outbox;
DROP TABLE outbox;
ALTER TABLE outbox_7 RENAME TO outbox;
CREATE INDEX outbox_due ON outbox (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX outbox_loose ON outbox (due_at, seq) WHERE due_at IS NOT NULL AND (lane = '' OR state = 'undelivered');
CREATE INDEX outbox_lane ON outbox (lane, seq) WHERE state = 'waiting';
CREATE INDEX outbox_undelivered ON outbox (seq) WHERE state = 'undelivered';
CREATE INDEX outbox_run ON outbox (run);
-- fledge schema 4: messages from one session to another, and what becomes of the answer.

-- `state` is the whole value; the columns beside it are read out of it for indexes. `speaker` is whose answer to the
-- message `row` is awaited, null once nothing more will come of it; `waits_until` is how long the sender waits for it.
CREATE TABLE exchanges (
  id          TEXT PRIMARY KEY,
  root        TEXT NOT NULL,
  requester   TEXT NOT NULL,
  target      TEXT NOT NULL,
  row         TEXT NOT NULL UNIQUE,
  speaker     TEXT,
  waits_until REAL,
  hops        INTEGER NOT NULL CHECK (hops >= 0),
  state       TEXT NOT NULL,
  CHECK (speaker IS NOT NULL OR waits_until IS NULL)
) STRICT, WITHOUT ROWID;
CREATE INDEX exchanges_speaker ON exchanges (speaker) WHERE speaker IS NOT NULL;
CREATE INDEX exchanges_open ON exchanges (requester) WHERE speaker IS NOT NULL;
CREATE INDEX exchanges_root ON exchanges (root);
CREATE INDEX exchanges_requester ON exchanges (requester);
CREATE INDEX exchanges_target ON exchanges (target);
-- fledge schema 9: a driver whose tools may take long is not stuck meanwhile.
ALTER TABLE drivers ADD COLUMN patient_until REAL;
-- fledge schema 10: an answer whose target is still being asked for is in nobody's inbox, so no row is held in one.

ALTER TABLE inbox DROP COLUMN held_until;
-- fledge schema 11: what would otherwise be read from every entry, or searched through every queued session.

-- What a session's replies used, counted as they are appended: a completion need not read a whole transcript to say so.
-- NULL: no provider has said anything.

ALTER TABLE sessions ADD COLUMN tokens_in INTEGER;
ALTER TABLE sessions ADD COLUMN tokens_out INTEGER;
ALTER TABLE sessions ADD COLUMN cost_usd REAL;

UPDATE sessions SET (tokens_in, tokens_out, cost_usd) = (
  SELECT sum((SELECT coalesce(sum(u.value), 0) FROM json_each(e.body, '$.usage') u WHERE u.key <> 'output')),
         sum(coalesce(json_extract(e.body, '$.usage.output'), 0)),
         sum(json_extract(e.body, '$.cost_usd'))
  FROM entries e
  WHERE e.session = sessions.key AND e.kind = 'assistant' AND json_extract(e.body, '$.usage') IS NOT NULL
);

-- Sound and suspect sessions wait in one queue and are looked for apart: neither may be searched through the other.
DROP INDEX queue_order;
CREATE INDEX queue_sound ON queue (lane, rank, seq) WHERE suspect = 0;
CREATE INDEX queue_suspect ON queue (lane, rank, seq) WHERE suspect = 1;
-- fledge schema 12: what a session hands over besides its words, as far as its driver saw it.

ALTER TABLE sessions ADD COLUMN goods TEXT;
-- fledge schema 13: who made a binding. One that a spawn made ends with a run of one task, one that somebody chose stays.

ALTER TABLE routes ADD COLUMN made_by TEXT NOT NULL DEFAULT 'spawn' CHECK (made_by = 'spawn' OR made_by = 'focus');
-- fledge schema 14: turns that nobody spoke for.

-- What was wanted of a conversation by itself: the wake that waits (`cause`, `reason`; `due_at` is when it is looked at,
-- null once its turn is queued or if its hours never come; `held` is why it was not a turn yet), when the periodic one
-- is due next, and what such a turn last said aloud.
CREATE TABLE heartbeats (
  session     TEXT PRIMARY KEY,
  cause       TEXT NOT NULL DEFAULT '' CHECK (cause = '' OR cause = 'action' OR cause = 'default' OR cause = 'interval'
                                              OR cause = 'retry'),
  reason      TEXT NOT NULL DEFAULT '',
  due_at      REAL,
  held        TEXT NOT NULL DEFAULT '' CHECK (held = '' OR held = 'busy' OR held = 'quiet-hours'),
  beat_at     REAL,
  said        TEXT NOT NULL DEFAULT '',
  said_at     REAL,
  CHECK (due_at IS NULL OR cause <> '')
) STRICT, WITHOUT ROWID;
CREATE INDEX heartbeats_due ON heartbeats (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX heartbeats_beat ON heartbeats (beat_at) WHERE beat_at IS NOT NULL;

-- Why nobody spoke for this turn; empty for one that somebody did.
ALTER TABLE turns ADD COLUMN heartbeat TEXT NOT NULL DEFAULT '';
-- fledge schema 15: exchanges that are over are not kept for ever.

-- Since when nothing more will come of it; null while something may. What was over before this was known counts from now.
ALTER TABLE exchanges ADD COLUMN over_at REAL;
UPDATE exchanges SET over_at = CAST(strftime('%s', 'now') AS REAL) WHERE speaker IS NULL;
CREATE INDEX exchanges_over ON exchanges (over_at) WHERE over_at IS NOT NULL;

-- Few exchanges of one requester are kept, so the index on all of them finds the open ones as well.
DROP INDEX exchanges_open;
