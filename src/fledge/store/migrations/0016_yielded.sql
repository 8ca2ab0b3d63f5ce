-- fledge schema 16: turns that yield answer later.

-- The newest entry when the turn opened: the turn's own entries come behind it. Unknown (0) of turns from before.
ALTER TABLE turns ADD COLUMN opened_after INTEGER NOT NULL DEFAULT 0;

-- Turns that yielded, as long as no later turn has answered what they read.
CREATE INDEX turns_yielded ON turns (session, turn) WHERE ended = 'yielded';
