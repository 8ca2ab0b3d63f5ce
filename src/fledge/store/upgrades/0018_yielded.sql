-- fledge schema 17: what ends of turns are decided by. Turns that yield answer later.

-- The newest entry when the turn opened: the turn's own entries come behind it. Unknown (0) of turns from before.
ALTER TABLE turns ADD COLUMN opened_after INTEGER NOT NULL DEFAULT 0;

-- How the origin of the turn was found: what it reads says so.
ALTER TABLE turns ADD COLUMN route TEXT NOT NULL DEFAULT 'fallback'
  CHECK (route = 'fallback' OR route = 'bound' OR route = 'hook');

-- Turns that yielded, as long as no later turn has answered what they read.
CREATE INDEX turns_yielded ON turns (session, turn) WHERE ended = 'yielded';
