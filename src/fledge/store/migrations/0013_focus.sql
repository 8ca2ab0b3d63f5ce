-- fledge schema 13: who made a binding. One that a spawn made ends with a run of one task, one that somebody chose stays.

ALTER TABLE routes ADD COLUMN made_by TEXT NOT NULL DEFAULT 'spawn' CHECK (made_by = 'spawn' OR made_by = 'focus');
