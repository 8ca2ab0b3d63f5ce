-- fledge schema 23: why a call asks a person, in words for that person.
ALTER TABLE approvals ADD COLUMN why TEXT NOT NULL DEFAULT '';
