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
