-- fledge schema 5: what each turn really ran with (model, tools, sandbox), for those who look afterwards.

ALTER TABLE turns ADD COLUMN ran TEXT;
