-- fledge schema 3: a step can be called off while its driver goes on.

-- How many of the driver's steps were called off; what it writes for an older one is refused.
ALTER TABLE drivers ADD COLUMN interrupts INTEGER NOT NULL DEFAULT 0;
