-- "clnc": tells a clinic's database from any other SQLite file.
PRAGMA application_id = 1668050531;
PRAGMA user_version = 1;

-- One row, written when the seed is in: whose silo this is.
CREATE TABLE clinic (
  id TEXT NOT NULL,
  specialty TEXT NOT NULL
) STRICT;

CREATE TABLE patient (
  patient_id TEXT NOT NULL PRIMARY KEY COLLATE NOCASE,
  condition TEXT NOT NULL,
  name TEXT NOT NULL,
  birth_date TEXT NOT NULL,
  government_id_scheme TEXT NOT NULL,
  government_id TEXT NOT NULL,
  address TEXT NOT NULL,
  phone TEXT NOT NULL,
  notes TEXT NOT NULL
) STRICT;

CREATE TABLE medication (
  patient_id TEXT NOT NULL COLLATE NOCASE REFERENCES patient (patient_id),
  position INTEGER NOT NULL,
  name TEXT NOT NULL,
  dose TEXT NOT NULL, -- the number as JSON writes it: 0.125 stays 0.125
  unit TEXT NOT NULL,
  frequency TEXT NOT NULL,
  route TEXT NOT NULL,
  PRIMARY KEY (patient_id, position)
) STRICT;

-- Folded phrases that stand for each other: one with `finds_group` in a query finds every phrase of its group.
CREATE TABLE synonym (
  group_number INTEGER NOT NULL,
  phrase TEXT NOT NULL,
  finds_group INTEGER NOT NULL
) STRICT;

-- Folded words of what may be searched. No identifying field is ever in here.
CREATE VIRTUAL TABLE search USING fts5 (patient_id UNINDEXED, condition, medications, notes);
