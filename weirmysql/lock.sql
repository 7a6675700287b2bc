CREATE PROCEDURE weir_lock_1(id_ VARBINARY(255))
MODIFIES SQL DATA
SQL SECURITY INVOKER
COMMENT 'Weir: begins a transaction, and locks the row of a key'
BEGIN
  START TRANSACTION;
  SELECT state, revision FROM weir_states WHERE id = id_ FOR UPDATE;
END
