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
