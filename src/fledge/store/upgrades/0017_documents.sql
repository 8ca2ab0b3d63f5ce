-- fledge schema 16: documents of workspaces that speak in prompts, and when agents that can write were at work there.

-- By real path: digests of the accepted versions, versions that were left out, and times of work that are over.
CREATE TABLE workspaces (
  path        TEXT PRIMARY KEY,
  state       TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Sessions whose drive may write in a workspace now; the row goes with the drive.
CREATE TABLE workers (
  session     TEXT PRIMARY KEY,
  workspace   TEXT NOT NULL,
  since       REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- What the turn read first was said by a person or a program, not by another session.
ALTER TABLE turns ADD COLUMN by_person INTEGER NOT NULL DEFAULT 0 CHECK (by_person = 0 OR by_person = 1);
