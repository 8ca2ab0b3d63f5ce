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
