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
