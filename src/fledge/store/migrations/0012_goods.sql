-- fledge schema 12: what a session hands over besides its words, as far as its driver saw it.

ALTER TABLE sessions ADD COLUMN goods TEXT;
