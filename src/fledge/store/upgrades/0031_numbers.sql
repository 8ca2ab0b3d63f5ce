-- fledge schema 31: a run has a number among the runs of its parent, in the order in which these were spawned.
ALTER TABLE runs ADD COLUMN number INTEGER NOT NULL DEFAULT 0;
UPDATE runs SET number = spawned.place
FROM (SELECT id, row_number() OVER (PARTITION BY parent ORDER BY created_at, id) AS place FROM runs) AS spawned
WHERE spawned.id = runs.id;
DROP INDEX runs_parent;
CREATE UNIQUE INDEX runs_parent ON runs (parent, number);
