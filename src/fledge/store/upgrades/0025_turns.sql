-- fledge schema 25: what a conversation waits for, with a condition and a time; ends of turns as values.
ALTER TABLE sessions RENAME COLUMN owed TO wait;
ALTER TABLE sessions ADD COLUMN wait_at REAL;
CREATE INDEX sessions_wait ON sessions (wait_at) WHERE wait_at IS NOT NULL;
-- Until now whoever yielded heard each result as it came. One with children at work goes on waiting, for all of them.
UPDATE sessions SET wait = CASE
  WHEN unsettled > 0 THEN json_object('until_settled', NULL, 'origin', wait)
  ELSE NULL END
WHERE wait IS NOT NULL;
UPDATE sessions SET ended = NULL WHERE ended IS NOT NULL;
UPDATE commissions SET ended = CASE
  WHEN ended IN ('replied', 'forwarded', 'yielded', 'over', 'stopped', 'timeout', 'dropped', 'void')
    THEN json_object('kind', ended)
  ELSE json_object('kind', 'failed', 'words', ended) END
WHERE ended IS NOT NULL;
