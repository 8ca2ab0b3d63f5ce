-- fledge schema 27: the folder with the files of the store.

ALTER TABLE fledge_store ADD COLUMN files TEXT NOT NULL DEFAULT '';
