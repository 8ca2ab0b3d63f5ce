-- The whole schema, by noun. A change here is a step in `upgrades/` too: a test compares what both make.
-- What is true of a row in each of its states stands in CHECKs, so that no bug can store anything else. They use `=` and
-- `CASE`, never `IN`: for a list SQLite makes a table at each execution. Names of columns that stand in a partial index's
-- condition change rarely: an update that names such a column touches the index, whether or not the value is new.

-- ---- runs

CREATE TABLE runs (
  id          INTEGER PRIMARY KEY,
  key         TEXT NOT NULL UNIQUE,
  parent      TEXT NOT NULL,
  root        TEXT NOT NULL,              -- the conversation or program at the top
  created_at  REAL NOT NULL,
  phase       TEXT NOT NULL,
  version     INTEGER NOT NULL CHECK (version >= 1),
  due_at      REAL,
  outcome     TEXT CHECK (outcome IS NULL OR outcome = 'ok' OR outcome = 'error' OR outcome = 'timeout'
                          OR outcome = 'killed' OR outcome = 'unknown'),
  delivery    TEXT CHECK (delivery IS NULL OR delivery = 'delivered' OR delivery = 'skipped' OR delivery = 'undelivered'),
  held        TEXT,                       -- the phase, where the run takes a place without working: for an index
  listed      INTEGER NOT NULL DEFAULT 1, -- 0 once it is archived
  failed      INTEGER NOT NULL DEFAULT 0, -- with an error, a timeout or an unknown outcome
  busy        INTEGER NOT NULL DEFAULT 0 CHECK (busy = 0 OR busy = 1), -- children of its own are unsettled
  silence_told INTEGER NOT NULL DEFAULT 0 CHECK (silence_told = 0 OR silence_told = 1),
                                          -- 1 once its parent knows that it ended without anything to tell
  spec        TEXT NOT NULL,
  state       TEXT NOT NULL,              -- the whole value; the columns above are read out of it for indexes
  number      INTEGER NOT NULL DEFAULT 0, -- among the runs that its parent has spawned, from 1 on
  -- A reservation that is gone has no row.
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
    WHEN 'completed_giveup'  THEN outcome IS NOT NULL AND delivery IS NOT NULL AND delivery = 'undelivered'
                                  AND due_at IS NOT NULL
    WHEN 'archived'          THEN outcome IS NOT NULL AND delivery IS NOT NULL
    ELSE 0 END),
  CHECK (listed = CASE phase WHEN 'archived' THEN 0 ELSE 1 END),
  CHECK (failed = CASE outcome WHEN 'error' THEN 1 WHEN 'timeout' THEN 1 WHEN 'unknown' THEN 1 ELSE 0 END),
  CHECK (CASE phase WHEN 'spawning' THEN held IS NOT NULL AND held = phase
                    WHEN 'awaiting_approval' THEN held IS NOT NULL AND held = phase ELSE held IS NULL END)
) STRICT;
CREATE UNIQUE INDEX runs_parent ON runs (parent, number);
CREATE INDEX runs_children ON runs (parent, created_at, id) WHERE listed = 1;
CREATE INDEX runs_active ON runs (parent, created_at, id) WHERE outcome IS NULL OR busy = 1;
CREATE INDEX runs_listed ON runs (created_at, id) WHERE listed = 1;
CREATE INDEX runs_tree ON runs (root, created_at, id) WHERE listed = 1;
CREATE INDEX runs_failed ON runs (created_at, id) WHERE listed = 1 AND failed = 1;
CREATE INDEX runs_held ON runs (parent) WHERE held IS NOT NULL;
CREATE INDEX runs_silent ON runs (parent) WHERE delivery = 'skipped' AND silence_told = 0;
CREATE INDEX runs_due ON runs (due_at) WHERE due_at IS NOT NULL;

-- Run ids of all attempts, however old.
CREATE TABLE attempts (
  run_id      TEXT PRIMARY KEY,
  run         INTEGER NOT NULL,
  attempt     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX attempts_run ON attempts (run);

-- The timelines of all runs, in the order of commits.
CREATE TABLE run_events (
  seq         INTEGER PRIMARY KEY,
  run         INTEGER NOT NULL,
  version     INTEGER NOT NULL,
  event       TEXT NOT NULL
) STRICT;
CREATE INDEX run_events_run ON run_events (run);

-- Tries at delivering rows of runs.
CREATE TABLE deliveries (
  seq         INTEGER PRIMARY KEY,
  row_key     TEXT NOT NULL,
  run         TEXT NOT NULL,
  at          REAL NOT NULL,
  trace       TEXT NOT NULL
) STRICT;
CREATE INDEX deliveries_run ON deliveries (run);

-- How many runs are in lists, and how many of them failed: of the folder, of each tree, of each parent.
CREATE TABLE tallies (
  scope       TEXT NOT NULL CHECK (scope = 'folder' OR scope = 'tree' OR scope = 'parent'),
  session     TEXT NOT NULL,
  listed      INTEGER NOT NULL CHECK (listed > 0),
  failed      INTEGER NOT NULL CHECK (failed >= 0 AND failed <= listed),
  PRIMARY KEY (scope, session)
) STRICT, WITHOUT ROWID;
CREATE INDEX tallies_parents ON tallies (session) WHERE scope = 'parent';

-- What each agent began and spent, by day (UTC).
CREATE TABLE agent_days (
  day         INTEGER NOT NULL,
  agent       TEXT NOT NULL,
  runs        INTEGER NOT NULL,
  cost_usd    REAL,
  PRIMARY KEY (day, agent)
) STRICT, WITHOUT ROWID;

-- Long texts that rows and runs refer to.
CREATE TABLE texts (
  id          TEXT PRIMARY KEY,
  owner       TEXT NOT NULL,
  body        TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX texts_owner ON texts (owner);

-- ---- sessions

CREATE TABLE sessions (
  key         TEXT PRIMARY KEY,
  kind        TEXT NOT NULL CHECK (kind = 'main' OR kind = 'named' OR kind = 'subagent' OR kind = 'acp' OR kind = 'program'),
  parent      TEXT,
  depth       INTEGER NOT NULL CHECK (depth >= 0),
  facts       TEXT NOT NULL,
  state       TEXT NOT NULL DEFAULT 'open' CHECK (state = 'open' OR state = 'deleted'),
  created_at  REAL NOT NULL,
  epoch       INTEGER NOT NULL DEFAULT 0,
  generation  INTEGER NOT NULL DEFAULT 0,
  last_at     REAL NOT NULL,              -- when something was last said in it
  last_entry  INTEGER NOT NULL DEFAULT 0,
  last_turn   INTEGER NOT NULL DEFAULT 0,
  covered     INTEGER NOT NULL DEFAULT 0, -- the last entry that a note stands for
  tokens_in   INTEGER,                    -- what its replies used; NULL: no provider has said anything
  tokens_out  INTEGER,
  tokens_cached INTEGER,
  cost_usd    REAL,
  below_usd   REAL,                       -- what everything below it has cost, deleted sessions included
  spawned     INTEGER NOT NULL DEFAULT 0, -- its children: all, and those not settled
  unsettled   INTEGER NOT NULL DEFAULT 0 CHECK (unsettled >= 0 AND unsettled <= spawned),
  goods       TEXT,                       -- what it hands over besides its words, as far as its driver saw it
  ran         TEXT,                       -- what its newest turn that ran with anything ran with
  wait        TEXT,                       -- what it waits for, if it takes turns and has yielded
  ended       TEXT,                       -- how its newest closed turn ended: for whoever looks into the file
  wait_at     REAL,                       -- when that ends by time alone
  CHECK ((parent IS NULL) = (depth = 0))
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_parent ON sessions (parent) WHERE parent IS NOT NULL;
CREATE INDEX sessions_last ON sessions (last_at, key) WHERE state = 'open';
CREATE INDEX sessions_wait ON sessions (wait_at) WHERE wait_at IS NOT NULL;
CREATE INDEX sessions_roots ON sessions (last_at, key) WHERE state = 'open' AND depth = 0;

CREATE TABLE entries (
  session     TEXT NOT NULL,
  seq         INTEGER NOT NULL,
  at          REAL NOT NULL,
  kind        TEXT NOT NULL
              CHECK (kind = 'user' OR kind = 'assistant' OR kind = 'tool' OR kind = 'event' OR kind = 'note'),
  body        TEXT NOT NULL,
  PRIMARY KEY (session, seq)
) STRICT, WITHOUT ROWID;

-- Which sessions hold which files beside the database (images by their digest, attached files by folder and name), in their
-- transcript or in a message they have not read yet.
CREATE TABLE files (
  session     TEXT NOT NULL,
  file        TEXT NOT NULL,
  PRIMARY KEY (session, file)
) STRICT, WITHOUT ROWID;

-- ---- sessions at work: queued, driven, with an open turn, or several of these. Others have no row.

CREATE TABLE active (
  session     TEXT PRIMARY KEY,
  -- its place in a queue
  queue_lane  TEXT,
  spawner     TEXT,
  rank        INTEGER,
  seq         INTEGER,
  is_suspect  INTEGER,
  due_at      REAL,
  -- its driver: the lease and the slot
  epoch       INTEGER,
  owner       TEXT,
  lane        TEXT,
  suspect     INTEGER,
  claimed_at  REAL,
  progress_at REAL,
  step_open   INTEGER,
  release_at  REAL,
  interrupts  INTEGER,
  patient_until REAL,
  -- its open turn, as JSON; 1 if that has taken rows and was driven in vain
  turn        TEXT,
  failing     INTEGER NOT NULL DEFAULT 0,
  -- of its driver: the workspace in which its tools may write, and since when
  works_in    TEXT CHECK (works_in IS NULL OR epoch IS NOT NULL),
  works_since REAL,
  CHECK (queue_lane IS NOT NULL OR epoch IS NOT NULL OR turn IS NOT NULL),
  CHECK (CASE WHEN queue_lane IS NULL THEN spawner IS NULL AND rank IS NULL AND seq IS NULL AND is_suspect IS NULL AND due_at IS NULL
    ELSE spawner IS NOT NULL AND rank IS NOT NULL AND seq IS NOT NULL AND (is_suspect = 0 OR is_suspect = 1) END),
  CHECK (CASE WHEN epoch IS NULL THEN owner IS NULL AND lane IS NULL AND suspect IS NULL AND release_at IS NULL
    ELSE owner IS NOT NULL AND lane IS NOT NULL AND (suspect = 0 OR suspect = 1) AND claimed_at IS NOT NULL
      AND progress_at IS NOT NULL AND (step_open = 0 OR step_open = 1) AND interrupts IS NOT NULL END),
  CHECK (turn IS NOT NULL OR failing = 0)
) STRICT, WITHOUT ROWID;
-- Sound and suspect sessions wait in one queue and are looked for apart: neither may be searched through the other.
CREATE INDEX active_sound ON active (queue_lane, rank, seq) WHERE is_suspect = 0;
CREATE INDEX active_suspect ON active (queue_lane, rank, seq) WHERE is_suspect = 1;
CREATE INDEX active_spawner ON active (queue_lane, spawner, rank) WHERE queue_lane IS NOT NULL;
CREATE INDEX active_due ON active (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX active_lane ON active (lane) WHERE lane IS NOT NULL;
CREATE INDEX active_release ON active (release_at) WHERE release_at IS NOT NULL;
CREATE INDEX active_failing ON active (session) WHERE failing = 1;

CREATE TABLE lanes (
  lane        TEXT PRIMARY KEY,
  rank        INTEGER NOT NULL,
  last_seq    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- By real path: digests of the accepted versions of documents that speak in prompts, versions that were left out, and
-- times of work that are over.
CREATE TABLE workspaces (
  path        TEXT PRIMARY KEY,
  state       TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- ---- engines that share a store on a server; a store that one process holds has no row here

CREATE TABLE engines (
  id          TEXT PRIMARY KEY,           -- the owner of drivers, errands and reservations
  host        TEXT NOT NULL,
  pid         INTEGER NOT NULL,
  started_at  REAL NOT NULL,
  seen_at     REAL NOT NULL,              -- by the clock of the database, like all times of these rows
  lease_s     REAL NOT NULL CHECK (lease_s > 0),
  drives      INTEGER NOT NULL CHECK (drives = 0 OR drives = 1),
  drains      INTEGER NOT NULL DEFAULT 0 CHECK (drains = 0 OR drains = 1),
  settings    TEXT NOT NULL,              -- digests by section, as JSON
  limits      TEXT NOT NULL,              -- what all engines must have in common, as JSON
  name        TEXT NOT NULL DEFAULT '',   -- for people: the command
  version     TEXT NOT NULL DEFAULT '',   -- of fledge
  machine     TEXT NOT NULL DEFAULT '',   -- where its pid means a process; empty: not known
  born        TEXT NOT NULL DEFAULT ''    -- when the process began, as its machine counts
) STRICT, WITHOUT ROWID;

-- What an engine does outside the database now: a post that it sends, files that it removes.
CREATE TABLE errands (
  name        TEXT PRIMARY KEY,
  owner       TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- ---- inboxes
-- unread -> consumed | suppressed | void | dropped | undelivered;  undelivered -> unread (tried again) | dismissed | void
-- suppressed -> unread (its run was resumed)

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
  route       TEXT NOT NULL DEFAULT 'fallback' CHECK (route = 'fallback' OR route = 'bound' OR route = 'hook'),
  carried     TEXT NOT NULL DEFAULT '',   -- images and files that came with a message, as JSON
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
CREATE INDEX inbox_session ON inbox (session, state, seq);
CREATE INDEX inbox_open ON inbox (source) WHERE state = 'unread' OR state = 'undelivered';
CREATE INDEX inbox_lines ON inbox (session, seq) WHERE state = 'dropped' AND closed_at IS NULL;
CREATE INDEX inbox_undelivered ON inbox (seq) WHERE state = 'undelivered';

-- ---- what leaves
-- waiting -> sent | undelivered;  undelivered -> waiting (retried) | dismissed
-- `due_at` is when it is sent, or taken off the undelivered list. Posts of one lane are sent one after the other; '' is none.

CREATE TABLE outbox (
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
CREATE INDEX outbox_due ON outbox (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX outbox_loose ON outbox (due_at, seq) WHERE due_at IS NOT NULL AND (lane = '' OR state = 'undelivered');
CREATE INDEX outbox_lane ON outbox (lane, seq) WHERE state = 'waiting';
CREATE INDEX outbox_undelivered ON outbox (seq) WHERE state = 'undelivered';
CREATE INDEX outbox_run ON outbox (run);

-- Where sessions' words go: where somebody last spoke, or a place that is the session's own.
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
  due_at      REAL CHECK (due_at IS NULL OR kind = 'bound'),
  made_by     TEXT NOT NULL DEFAULT 'spawn' CHECK (made_by = 'spawn' OR made_by = 'focus')
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX routes_bound ON routes (channel, place) WHERE kind = 'bound';
CREATE INDEX routes_due ON routes (due_at) WHERE due_at IS NOT NULL;

-- ---- people

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
  offer       TEXT NOT NULL DEFAULT '',   -- the rule that an *always* makes of it, as JSON; empty if none can be made
  words       TEXT NOT NULL DEFAULT '',   -- what the person said with a no, for the model
  rule        TEXT NOT NULL DEFAULT '',   -- by which it was allowed without asking, or which was made with the answer
  why         TEXT NOT NULL DEFAULT '',   -- why a person is asked, in words for that person
  UNIQUE (session, entry, idx)
) STRICT, WITHOUT ROWID;
CREATE INDEX approvals_waiting ON approvals (asked_at) WHERE state = 'waiting';

-- Words to a session that somebody waits for under a run id.
CREATE TABLE commissions (
  run_id      TEXT PRIMARY KEY,
  session     TEXT NOT NULL,
  row         TEXT NOT NULL UNIQUE,
  wishes      TEXT NOT NULL,
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
CREATE INDEX commissions_open ON commissions (session) WHERE ended_at IS NULL;
CREATE INDEX commissions_due ON commissions (deadline_at) WHERE deadline_at IS NOT NULL AND ended_at IS NULL;

-- What was asked under a key of the asker's: asking again finds what came of it. `owner` is the session whose end forgets it.
CREATE TABLE asks (
  asker       TEXT NOT NULL,
  key         TEXT NOT NULL,
  digest      TEXT NOT NULL,
  answer      TEXT NOT NULL,
  owner       TEXT NOT NULL,
  PRIMARY KEY (asker, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX asks_owner ON asks (owner);

-- ---- budgets

CREATE TABLE purses (
  session     TEXT PRIMARY KEY,
  budget      TEXT NOT NULL,
  used        TEXT NOT NULL,
  reserved    TEXT NOT NULL,
  warned      INTEGER NOT NULL DEFAULT 0 CHECK (warned = 0 OR warned = 1)
) STRICT, WITHOUT ROWID;

CREATE TABLE reserves (
  session     TEXT PRIMARY KEY,
  step        TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- ---- messages between sessions
-- `state` is the whole value; the columns beside it are read out of it for indexes. `speaker` is whose answer to the
-- message `row` is awaited, null once nothing more will come of it (since `over_at`); `waits_until` is how long the sender
-- waits for it.

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
  over_at     REAL,
  CHECK (speaker IS NOT NULL OR waits_until IS NULL)
) STRICT, WITHOUT ROWID;
CREATE INDEX exchanges_speaker ON exchanges (speaker) WHERE speaker IS NOT NULL;
CREATE INDEX exchanges_root ON exchanges (root);
CREATE INDEX exchanges_requester ON exchanges (requester);
CREATE INDEX exchanges_target ON exchanges (target);
CREATE INDEX exchanges_over ON exchanges (over_at) WHERE over_at IS NOT NULL;

-- ---- turns that nobody spoke for: the wake that waits (`due_at` is when it is looked at, null once its turn is queued or if
-- its hours never come; `held` is why it was not a turn yet), when the periodic one is due, what such a turn last said.

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
