-- fledge schema 11: what would otherwise be read from every entry, or searched through every queued session.

-- What a session's replies used, counted as they are appended: a completion need not read a whole transcript to say so.
-- NULL: no provider has said anything.

ALTER TABLE sessions ADD COLUMN tokens_in INTEGER;
ALTER TABLE sessions ADD COLUMN tokens_out INTEGER;
ALTER TABLE sessions ADD COLUMN cost_usd REAL;

UPDATE sessions SET (tokens_in, tokens_out, cost_usd) = (
  SELECT sum((SELECT coalesce(sum(u.value), 0) FROM json_each(e.body, '$.usage') u WHERE u.key <> 'output')),
         sum(coalesce(json_extract(e.body, '$.usage.output'), 0)),
         sum(json_extract(e.body, '$.cost_usd'))
  FROM entries e
  WHERE e.session = sessions.key AND e.kind = 'assistant' AND json_extract(e.body, '$.usage') IS NOT NULL
);

-- Sound and suspect sessions wait in one queue and are looked for apart: neither may be searched through the other.
DROP INDEX queue_order;
CREATE INDEX queue_sound ON queue (lane, rank, seq) WHERE suspect = 0;
CREATE INDEX queue_suspect ON queue (lane, rank, seq) WHERE suspect = 1;
