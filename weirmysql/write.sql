CREATE PROCEDURE weir_write_1(id_ VARBINARY(255), revision_ BIGINT, ttl_ BIGINT, state_ MEDIUMBLOB)
MODIFIES SQL DATA
SQL SECURITY INVOKER
COMMENT 'Weir: writes the row that weir_lock_1 has locked, and ends the transaction'
BEGIN
  UPDATE weir_states SET revision = revision_, expires = /*clock*/ + ttl_, state = state_ WHERE id = id_;
  COMMIT;
END
