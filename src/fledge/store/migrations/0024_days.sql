-- What each agent began and spent, by day (UTC), counted by triggers in the commit that changes it: a week's figures
-- cost the same however many runs it had.

CREATE TABLE agent_days (
  day         INTEGER NOT NULL,
  agent       TEXT NOT NULL,
  runs        INTEGER NOT NULL,
  cost_usd    REAL,
  PRIMARY KEY (day, agent)
) STRICT, WITHOUT ROWID;

-- Of earlier days, those of the week that was last used.
INSERT INTO agent_days
  SELECT CAST(created_at / 86400 AS INTEGER), substr(key, 7, instr(substr(key, 7), ':') - 1), count(*), NULL
  FROM runs WHERE created_at >= (SELECT max(created_at) FROM runs) - 8 * 86400 GROUP BY 1, 2;
INSERT INTO agent_days
  SELECT CAST(e.at / 86400 AS INTEGER), substr(e.session, 7, instr(substr(e.session, 7), ':') - 1), 0,
         sum(json_extract(e.body, '$.cost_usd'))
  FROM sessions s JOIN entries e ON e.session = s.key
  WHERE s.last_at >= (SELECT max(last_at) FROM sessions) - 8 * 86400 AND e.kind = 'assistant'
    AND e.at >= (SELECT max(last_at) FROM sessions) - 8 * 86400 AND json_extract(e.body, '$.cost_usd') IS NOT NULL
  GROUP BY 1, 2
  ON CONFLICT DO UPDATE SET cost_usd = excluded.cost_usd;

CREATE TRIGGER runs_counted AFTER INSERT ON runs BEGIN
  INSERT INTO agent_days
    VALUES (CAST(NEW.created_at / 86400 AS INTEGER), substr(NEW.key, 7, instr(substr(NEW.key, 7), ':') - 1), 1, NULL)
  ON CONFLICT DO UPDATE SET runs = runs + 1;
END;
CREATE TRIGGER sessions_spent AFTER UPDATE OF cost_usd ON sessions
WHEN NEW.cost_usd > coalesce(OLD.cost_usd, 0) BEGIN
  INSERT INTO agent_days
    VALUES (CAST(NEW.last_at / 86400 AS INTEGER), substr(NEW.key, 7, instr(substr(NEW.key, 7), ':') - 1), 0,
            NEW.cost_usd - coalesce(OLD.cost_usd, 0))
  ON CONFLICT DO UPDATE SET cost_usd = coalesce(cost_usd, 0) + excluded.cost_usd;
END;
