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
