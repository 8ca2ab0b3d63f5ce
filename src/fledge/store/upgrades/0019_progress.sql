-- fledge schema 16: whether a turn still gets anywhere; which silent children their parent was told of.

-- Steps of the turn, and how many of them in a row repeated earlier ones. NULL before its first step is complete.
ALTER TABLE turns ADD COLUMN progress TEXT;

-- 1 once the parent was told that this child ended without anything to tell.
ALTER TABLE runs ADD COLUMN silence_told INTEGER NOT NULL DEFAULT 0 CHECK (silence_told = 0 OR silence_told = 1);
CREATE INDEX runs_silent ON runs (parent) WHERE delivery = 'skipped' AND silence_told = 0;
