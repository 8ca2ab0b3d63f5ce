-- fledge schema 24: one row for each session, one for each session at work, counters that the writer keeps itself, and one
-- table of asks that may be repeated. What became of closed turns is not kept: nobody read it.

DROP TRIGGER children_began;
DROP TRIGGER children_changed;
DROP TRIGGER runs_began;
DROP TRIGGER runs_changed;
DROP TRIGGER runs_gone;

CREATE TABLE runs_24 (
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
INSERT INTO runs_24 (id, key, parent, root, created_at, phase, version, due_at, outcome, delivery, held, listed, failed, busy, silence_told, spec, state)
  SELECT id, key, parent, root, created_at, phase, version, due_at, outcome, delivery, CASE WHEN phase = 'spawning' OR phase = 'awaiting_approval' THEN phase END, phase <> 'archived',
    coalesce(outcome = 'error' OR outcome = 'timeout' OR outcome = 'unknown', 0), busy, silence_told, spec, state FROM runs;
DROP TABLE runs;
ALTER TABLE runs_24 RENAME TO runs;
CREATE INDEX runs_parent ON runs (parent, created_at, id);
CREATE INDEX runs_children ON runs (parent, created_at, id) WHERE listed = 1;
CREATE INDEX runs_active ON runs (parent, created_at, id) WHERE outcome IS NULL OR busy = 1;
CREATE INDEX runs_listed ON runs (created_at, id) WHERE listed = 1;
CREATE INDEX runs_tree ON runs (root, created_at, id) WHERE listed = 1;
CREATE INDEX runs_failed ON runs (created_at, id) WHERE listed = 1 AND failed = 1;
CREATE INDEX runs_held ON runs (parent) WHERE held IS NOT NULL;
CREATE INDEX runs_silent ON runs (parent) WHERE delivery = 'skipped' AND silence_told = 0;
CREATE INDEX runs_due ON runs (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE tallies_24 (
  scope       TEXT NOT NULL CHECK (scope = 'folder' OR scope = 'tree' OR scope = 'parent'),
  session     TEXT NOT NULL,
  listed      INTEGER NOT NULL CHECK (listed > 0),
  failed      INTEGER NOT NULL CHECK (failed >= 0 AND failed <= listed),
  PRIMARY KEY (scope, session)
) STRICT, WITHOUT ROWID;
INSERT INTO tallies_24 SELECT scope, session, listed, failed FROM tallies WHERE listed > 0;
DROP TABLE tallies;
ALTER TABLE tallies_24 RENAME TO tallies;
CREATE INDEX tallies_parents ON tallies (session) WHERE scope = 'parent';

CREATE TABLE sessions_24 (
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
  owed        TEXT,                       -- the origin of its newest turn that yielded and was not answered since
  ended       TEXT,                       -- how its newest closed turn ended: for whoever looks into the file
  CHECK ((parent IS NULL) = (depth = 0))
) STRICT, WITHOUT ROWID;
INSERT INTO sessions_24 (key, kind, parent, depth, facts, state, created_at, epoch, generation, last_at, last_entry, last_turn, covered, tokens_in,
  tokens_out, tokens_cached, cost_usd, below_usd, spawned, unsettled, goods, ran, owed, ended)
SELECT key, kind, parent, depth, facts, state, created_at, epoch, generation, last_at, last_entry, last_turn, covered, tokens_in,
  tokens_out, tokens_cached, cost_usd, below_usd, coalesce((SELECT c.spawned FROM children c WHERE c.session = sessions.key), 0),
  coalesce((SELECT c.unsettled FROM children c WHERE c.session = sessions.key), 0), goods,
  (SELECT t.ran FROM turns t WHERE t.session = sessions.key AND t.ran IS NOT NULL ORDER BY t.turn DESC LIMIT 1),
  (SELECT t.origin FROM turns t WHERE t.session = sessions.key AND t.ended = 'yielded' ORDER BY t.turn DESC LIMIT 1),
  (SELECT t.ended FROM turns t WHERE t.session = sessions.key AND t.state = 'closed' ORDER BY t.turn DESC LIMIT 1)
FROM sessions;
DROP TABLE sessions;
ALTER TABLE sessions_24 RENAME TO sessions;
CREATE INDEX sessions_parent ON sessions (parent) WHERE parent IS NOT NULL;
CREATE INDEX sessions_last ON sessions (last_at, key) WHERE state = 'open';
CREATE INDEX sessions_roots ON sessions (last_at, key) WHERE state = 'open' AND depth = 0;

CREATE TABLE files (
  session     TEXT NOT NULL,
  file        TEXT NOT NULL,
  PRIMARY KEY (session, file)
) STRICT, WITHOUT ROWID;
INSERT INTO files SELECT session, sha256 FROM images;
DROP TABLE images;
ALTER TABLE inbox RENAME COLUMN images TO carried;

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
  CHECK (queue_lane IS NOT NULL OR epoch IS NOT NULL OR turn IS NOT NULL),
  CHECK (CASE WHEN queue_lane IS NULL THEN spawner IS NULL AND rank IS NULL AND seq IS NULL AND is_suspect IS NULL AND due_at IS NULL
    ELSE spawner IS NOT NULL AND rank IS NOT NULL AND seq IS NOT NULL AND (is_suspect = 0 OR is_suspect = 1) END),
  CHECK (CASE WHEN epoch IS NULL THEN owner IS NULL AND lane IS NULL AND suspect IS NULL AND release_at IS NULL
    ELSE owner IS NOT NULL AND lane IS NOT NULL AND (suspect = 0 OR suspect = 1) AND claimed_at IS NOT NULL
      AND progress_at IS NOT NULL AND (step_open = 0 OR step_open = 1) AND interrupts IS NOT NULL END),
  CHECK (turn IS NOT NULL OR failing = 0)
) STRICT, WITHOUT ROWID;
INSERT INTO active
SELECT k.session, q.lane, q.spawner, q.rank, q.seq, q.suspect, q.due_at,
  d.epoch, d.owner, d.lane, d.suspect, d.claimed_at, d.progress_at, d.step_open, d.release_at, d.interrupts, d.patient_until,
  CASE WHEN t.session IS NOT NULL THEN json_object(
    'session', t.session, 'turn', t.turn, 'generations', json(t.generations), 'drained', t.drained, 'failures', t.failures,
    'crashes', t.crashes, 'opened_at', t.opened_at, 'told_bytes', t.told_bytes, 'origin', t.origin, 'heartbeat', t.heartbeat,
    'by_person', json(CASE t.by_person WHEN 1 THEN 'true' ELSE 'false' END), 'opened_after', t.opened_after,
    'route', t.route, 'progress', json(coalesce(t.progress, '{}'))) END,
  coalesce(t.drained > 0 AND t.failures > 0, 0)
FROM (SELECT session FROM queue UNION SELECT session FROM drivers UNION SELECT session FROM turns WHERE state = 'open') k
LEFT JOIN queue q ON q.session = k.session
LEFT JOIN drivers d ON d.session = k.session
LEFT JOIN turns t ON t.session = k.session AND t.state = 'open';
DROP TABLE queue;
DROP TABLE drivers;
DROP TABLE turns;
DROP TABLE children;
CREATE INDEX active_sound ON active (queue_lane, rank, seq) WHERE is_suspect = 0;
CREATE INDEX active_suspect ON active (queue_lane, rank, seq) WHERE is_suspect = 1;
CREATE INDEX active_spawner ON active (queue_lane, spawner, rank) WHERE queue_lane IS NOT NULL;
CREATE INDEX active_due ON active (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX active_lane ON active (lane) WHERE lane IS NOT NULL;
CREATE INDEX active_release ON active (release_at) WHERE release_at IS NOT NULL;
CREATE INDEX active_failing ON active (session) WHERE failing = 1;

CREATE TABLE lanes_24 (
  lane        TEXT PRIMARY KEY,
  rank        INTEGER NOT NULL,
  last_seq    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO lanes_24 SELECT lane, rank, last_seq FROM lanes;
DROP TABLE lanes;
ALTER TABLE lanes_24 RENAME TO lanes;

CREATE TABLE asks (
  asker       TEXT NOT NULL,
  key         TEXT NOT NULL,
  digest      TEXT NOT NULL,
  answer      TEXT NOT NULL,
  owner       TEXT NOT NULL,
  PRIMARY KEY (asker, key)
) STRICT, WITHOUT ROWID;
INSERT INTO asks SELECT requester, key, digest, run, run FROM spawns;
INSERT INTO asks SELECT '', key, digest, run_id, session FROM commissions WHERE key IS NOT NULL;
DROP TABLE spawns;
CREATE INDEX asks_owner ON asks (owner);

CREATE TABLE commissions_24 (
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
INSERT INTO commissions_24 SELECT run_id, session, row, wishes, accepted_at, turn, started_at, deadline_at, ended_at, ended, entry FROM commissions;
DROP TABLE commissions;
ALTER TABLE commissions_24 RENAME TO commissions;
CREATE INDEX commissions_open ON commissions (session) WHERE ended_at IS NULL;
CREATE INDEX commissions_due ON commissions (deadline_at) WHERE deadline_at IS NOT NULL AND ended_at IS NULL;

-- What each agent began and spent, by day (UTC).
CREATE TABLE agent_days (
  day         INTEGER NOT NULL,
  agent       TEXT NOT NULL,
  runs        INTEGER NOT NULL,
  cost_usd    REAL,
  PRIMARY KEY (day, agent)
) STRICT, WITHOUT ROWID;
-- Of earlier days, those of the week that was last used.
INSERT INTO agent_days
  SELECT CAST(created_at / 86400 AS INTEGER), substr(key, 7, instr(substr(key, 7), ':') - 1), count(*), NULL
  FROM runs WHERE created_at >= (SELECT max(created_at) FROM runs) - 8 * 86400 GROUP BY 1, 2;
INSERT INTO agent_days
  SELECT CAST(e.at / 86400 AS INTEGER), substr(e.session, 7, instr(substr(e.session, 7), ':') - 1), 0,
         sum(json_extract(e.body, '$.cost_usd'))
  FROM sessions s JOIN entries e ON e.session = s.key
  WHERE s.last_at >= (SELECT max(last_at) FROM sessions) - 8 * 86400 AND e.kind = 'assistant'
    AND e.at >= (SELECT max(last_at) FROM sessions) - 8 * 86400 AND json_extract(e.body, '$.cost_usd') IS NOT NULL
  GROUP BY 1, 2
  ON CONFLICT DO UPDATE SET cost_usd = excluded.cost_usd;
