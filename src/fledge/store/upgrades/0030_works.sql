-- fledge schema 30: where a driver may write stands in the row of its session, which changes with it anyway.
ALTER TABLE active ADD COLUMN works_in TEXT CHECK (works_in IS NULL OR epoch IS NOT NULL);
ALTER TABLE active ADD COLUMN works_since REAL;
UPDATE active SET
  works_in = (SELECT workspace FROM workers WHERE workers.session = active.session),
  works_since = (SELECT since FROM workers WHERE workers.session = active.session)
WHERE epoch IS NOT NULL;
DROP TABLE workers;
