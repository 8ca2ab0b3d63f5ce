-- fledge schema 28: which rows the last commits of a shared store have changed.

CREATE TABLE fledge_commits (
  number      INTEGER PRIMARY KEY,        -- one after the other, in the order of commits
  writer      TEXT NOT NULL,              -- the process, by the name in fledge_store.writer
  changed     TEXT NOT NULL               -- as JSON, see store/changes.py
);
