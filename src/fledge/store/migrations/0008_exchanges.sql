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
