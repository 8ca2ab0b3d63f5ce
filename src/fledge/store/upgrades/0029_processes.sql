-- fledge schema 29: which process of which machine an engine is, so that its death can be proved there.
ALTER TABLE engines ADD COLUMN name TEXT NOT NULL DEFAULT '';     -- for people: the command
ALTER TABLE engines ADD COLUMN version TEXT NOT NULL DEFAULT '';  -- of fledge
ALTER TABLE engines ADD COLUMN machine TEXT NOT NULL DEFAULT '';  -- where its pid means a process; empty: not known
ALTER TABLE engines ADD COLUMN born TEXT NOT NULL DEFAULT '';     -- when the process began, as its machine counts
