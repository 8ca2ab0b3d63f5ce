-- fledge schema 10: an answer whose target is still being asked for is in nobody's inbox, so no row is held in one.

ALTER TABLE inbox DROP COLUMN held_until;
