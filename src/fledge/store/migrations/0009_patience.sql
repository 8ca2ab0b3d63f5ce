-- fledge schema 9: a driver whose tools may take long is not stuck meanwhile.
ALTER TABLE drivers ADD COLUMN patient_until REAL;
