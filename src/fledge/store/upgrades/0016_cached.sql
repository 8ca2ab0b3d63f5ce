-- fledge schema 16: tokens that a provider's cache served or stored are counted apart from other input.

ALTER TABLE sessions ADD COLUMN tokens_cached INTEGER;

UPDATE sessions SET tokens_cached = (
  SELECT coalesce(sum(u.value), 0)
  FROM entries e, json_each(e.body, '$.usage') u
  WHERE e.session = sessions.key AND e.kind = 'assistant' AND u.key LIKE 'cache%'
) WHERE tokens_in IS NOT NULL;
UPDATE sessions SET tokens_in = tokens_in - tokens_cached WHERE tokens_in IS NOT NULL;
