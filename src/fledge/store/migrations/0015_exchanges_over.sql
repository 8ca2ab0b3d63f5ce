-- fledge schema 15: exchanges that are over are not kept for ever.

-- Since when nothing more will come of it; null while something may. What was over before this was known counts from now.
ALTER TABLE exchanges ADD COLUMN over_at REAL;
UPDATE exchanges SET over_at = CAST(strftime('%s', 'now') AS REAL) WHERE speaker IS NULL;
CREATE INDEX exchanges_over ON exchanges (over_at) WHERE over_at IS NOT NULL;

-- Few exchanges of one requester are kept, so the index on all of them finds the open ones as well.
DROP INDEX exchanges_open;
