-- Lists of runs and sessions that cost the same however many are finished: what they are ordered and narrowed by stands
-- in columns with indexes, and how many there are is counted by triggers, in the commit that changes it.

-- When it was admitted; the conversation or program at the top; whether children of its own are unsettled.
ALTER TABLE runs ADD COLUMN created_at REAL NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN root TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN busy INTEGER NOT NULL DEFAULT 0 CHECK (busy = 0 OR busy = 1);

UPDATE runs SET
  created_at = coalesce(
    (SELECT json_extract(e.event, '$.at') FROM run_events e WHERE e.run = runs.id ORDER BY e.seq LIMIT 1), 0),
  root = (WITH RECURSIVE above(key, height) AS (
      SELECT runs.parent, 0
      UNION SELECT s.parent, height + 1 FROM above JOIN sessions s ON s.key = above.key
        WHERE s.parent IS NOT NULL AND height < 100)
    SELECT key FROM above ORDER BY height DESC LIMIT 1),
  busy = EXISTS (SELECT 1 FROM children c WHERE c.session = runs.key AND c.unsettled > 0);

CREATE INDEX runs_listed ON runs (created_at, id) WHERE phase <> 'archived';
CREATE INDEX runs_tree ON runs (root, created_at, id) WHERE phase <> 'archived';
CREATE INDEX runs_children ON runs (parent, created_at, id) WHERE phase <> 'archived';
CREATE INDEX runs_active ON runs (parent, created_at, id) WHERE outcome IS NULL OR busy = 1;
CREATE INDEX runs_failed ON runs (created_at, id)
  WHERE phase <> 'archived' AND (outcome = 'error' OR outcome = 'timeout' OR outcome = 'unknown');

CREATE TRIGGER children_began AFTER INSERT ON children WHEN NEW.unsettled > 0 BEGIN
  UPDATE runs SET busy = 1 WHERE key = NEW.session;
END;
CREATE TRIGGER children_changed AFTER UPDATE OF unsettled ON children
WHEN (NEW.unsettled > 0) <> (OLD.unsettled > 0) BEGIN
  UPDATE runs SET busy = NEW.unsettled > 0 WHERE key = NEW.session;
END;

-- How many runs are in lists, and how many of them failed: of the folder, of each tree, of each parent.
CREATE TABLE tallies (
  scope       TEXT NOT NULL CHECK (scope = 'folder' OR scope = 'tree' OR scope = 'parent'),
  session     TEXT NOT NULL,
  listed      INTEGER NOT NULL CHECK (listed >= 0),
  failed      INTEGER NOT NULL CHECK (failed >= 0 AND failed <= listed),
  PRIMARY KEY (scope, session)
) STRICT, WITHOUT ROWID;
CREATE INDEX tallies_parents ON tallies (session) WHERE scope = 'parent' AND listed > 0;

INSERT INTO tallies
  SELECT 'folder', '', count(*), coalesce(sum(outcome IN ('error', 'timeout', 'unknown')), 0)
  FROM runs WHERE phase <> 'archived' HAVING count(*) > 0
  UNION ALL SELECT 'tree', root, count(*), coalesce(sum(outcome IN ('error', 'timeout', 'unknown')), 0)
  FROM runs WHERE phase <> 'archived' GROUP BY root
  UNION ALL SELECT 'parent', parent, count(*), coalesce(sum(outcome IN ('error', 'timeout', 'unknown')), 0)
  FROM runs WHERE phase <> 'archived' GROUP BY parent;

CREATE TRIGGER runs_began AFTER INSERT ON runs WHEN NEW.phase <> 'archived' BEGIN
  INSERT INTO tallies
    SELECT column1, column2, 1, coalesce(NEW.outcome IN ('error', 'timeout', 'unknown'), 0)
    FROM (VALUES ('folder', ''), ('tree', NEW.root), ('parent', NEW.parent)) WHERE true
  ON CONFLICT DO UPDATE SET listed = listed + 1, failed = failed + excluded.failed;
END;
CREATE TRIGGER runs_changed AFTER UPDATE OF phase, outcome ON runs
WHEN (NEW.phase = 'archived') <> (OLD.phase = 'archived') OR NEW.outcome IS NOT OLD.outcome BEGIN
  UPDATE tallies SET
    listed = listed + (NEW.phase <> 'archived') - (OLD.phase <> 'archived'),
    failed = failed
      + (NEW.phase <> 'archived' AND coalesce(NEW.outcome IN ('error', 'timeout', 'unknown'), 0))
      - (OLD.phase <> 'archived' AND coalesce(OLD.outcome IN ('error', 'timeout', 'unknown'), 0))
  WHERE (scope, session) IN (VALUES ('folder', ''), ('tree', NEW.root), ('parent', NEW.parent));
END;
CREATE TRIGGER runs_gone AFTER DELETE ON runs BEGIN
  UPDATE tallies SET
    listed = listed - (OLD.phase <> 'archived'),
    failed = failed - (OLD.phase <> 'archived' AND coalesce(OLD.outcome IN ('error', 'timeout', 'unknown'), 0))
  WHERE (scope, session) IN (VALUES ('folder', ''), ('tree', OLD.root), ('parent', OLD.parent));
  DELETE FROM tallies
  WHERE (scope, session) IN (VALUES ('folder', ''), ('tree', OLD.root), ('parent', OLD.parent)) AND listed = 0;
END;

-- When something was last said in it; what everything below it has cost, deleted sessions included.
ALTER TABLE sessions ADD COLUMN last_at REAL NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN below_usd REAL;

UPDATE sessions SET
  last_at = coalesce(
    (SELECT e.at FROM entries e WHERE e.session = sessions.key ORDER BY e.seq DESC LIMIT 1), created_at),
  below_usd = (WITH RECURSIVE below(key) AS (
      SELECT s.key FROM sessions s WHERE s.parent = sessions.key
      UNION SELECT s.key FROM below JOIN sessions s ON s.parent = below.key)
    SELECT sum(s.cost_usd) FROM below JOIN sessions s ON s.key = below.key);

CREATE INDEX sessions_last ON sessions (last_at, key) WHERE state = 'open';
CREATE INDEX sessions_roots ON sessions (last_at, key) WHERE state = 'open' AND depth = 0;
