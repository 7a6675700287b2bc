-- The states of keys. Ids and states are bytes: text would be compared without its case and its trailing blanks.
-- Times are microseconds since 1970, by the server's clock.
CREATE TABLE IF NOT EXISTS weir_states (
  id VARBINARY(255) NOT NULL PRIMARY KEY,
  revision BIGINT NOT NULL,
  expires BIGINT NOT NULL,
  state MEDIUMBLOB NOT NULL
) ENGINE=InnoDB;
