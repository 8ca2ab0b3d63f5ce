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
