-- fledge schema 21: answers to a question with more than yes or no.

-- The rule that an *always* makes of it, as JSON; empty if none can be made.
ALTER TABLE approvals ADD COLUMN offer TEXT NOT NULL DEFAULT '';

-- What the person said with a no, for the model.
ALTER TABLE approvals ADD COLUMN words TEXT NOT NULL DEFAULT '';

-- The id of the rule by which it was allowed without asking, or which was made with the answer.
ALTER TABLE approvals ADD COLUMN rule TEXT NOT NULL DEFAULT '';
