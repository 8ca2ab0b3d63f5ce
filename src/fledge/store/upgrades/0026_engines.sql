-- fledge schema 26: engines of several processes on one store, and what each does outside the database.
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
  limits      TEXT NOT NULL               -- what all engines must have in common, as JSON
) STRICT, WITHOUT ROWID;

-- What an engine does outside the database now: a post that it sends, files that it removes.
CREATE TABLE errands (
  name        TEXT PRIMARY KEY,
  owner       TEXT NOT NULL
) STRICT, WITHOUT ROWID;
