-- fledge schema 20: which transcripts hold which images. The bytes are files beside the database, named by their digest.

-- One row for each session that holds the image, in its transcript or in a message that it has not read yet.
CREATE TABLE images (
  session TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  PRIMARY KEY (session, sha256)
) WITHOUT ROWID;

-- Images that came with a message, as a JSON array of entries; empty if none did.
ALTER TABLE inbox ADD COLUMN images TEXT NOT NULL DEFAULT '';
