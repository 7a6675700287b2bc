CREATE PROCEDURE weir_take_1(
  id_ VARBINARY(255), limit_ VARBINARY(1100), fresh_ VARBINARY(2000),
  n_ BIGINT, full_ BIGINT, passes_ BIGINT, owing_ BOOLEAN, reach_ BIGINT, runs_ VARBINARY(1000),
  lane_ VARBINARY(64), number_ BIGINT, since_ BIGINT, revision_ BIGINT,
  locked_ BOOLEAN, skew_ BIGINT, expires_ BIGINT, least_ BIGINT, grace_ BIGINT
)
MODIFIES SQL DATA
SQL SECURITY INVOKER
COMMENT 'Weir: takes from a token bucket, a leaky bucket or a SmoothBursty'
BEGIN
  DECLARE state_ MEDIUMBLOB;       -- of the key; null: there is none
  DECLARE now_, at_ BIGINT;        -- the server's clock, and the key's
  DECLARE z_, ticks_ BIGINT;       -- when the bucket was full before the call, and the ticks beyond that
  DECLARE used_, need_, most_ BIGINT;
  DECLARE run_, outcome_ INT;      -- weirkv.Outcome; null: not decided yet
  DECLARE earlier_ BIGINT;
  DECLARE reply_ VARBINARY(100);
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;

  -- The row of a lane has the number and the reply of its latest call. Where the reply of an earlier call was lost, this
  -- one waits for it here, returns its reply if it charged, and otherwise keeps it from charging.
  IF since_ < number_ THEN
    SET locked_ = TRUE;
    START TRANSACTION;
    SELECT revision, state INTO earlier_, reply_ FROM weir_states WHERE id = lane_ FOR UPDATE;
    IF earlier_ IS NULL THEN
      SET outcome_ = 4;
    ELSEIF earlier_ >= since_ AND reply_ <> '' THEN
      SET outcome_ = 3;
    END IF;
  ELSEIF locked_ THEN
    START TRANSACTION;
  END IF;

  decision: WHILE outcome_ IS NULL DO
    SET state_ = NULL, z_ = 0, ticks_ = 0, used_ = 0, run_ = 0;
    IF locked_ THEN
      SELECT state INTO state_ FROM weir_states WHERE id = id_ FOR UPDATE;
    ELSE
      SELECT state INTO state_ FROM weir_states WHERE id = id_;
    END IF;
    SET now_ = /*clock*/;
    SET at_ = now_;
    IF state_ IS NOT NULL THEN
      -- A value of the other format is not looked at: its bytes may be no numbers.
      IF LEFT(state_, 3) <> 0x776B02 OR LENGTH(state_) < 29 OR SUBSTRING(state_, 28, LENGTH(limit_)) <> limit_ THEN
        SET outcome_ = 0;
        LEAVE decision;
      END IF;
      SET z_ = CONV(HEX(SUBSTRING(state_, 4, 8)), 16, 10), ticks_ = CONV(HEX(SUBSTRING(state_, 12, 8)), 16, 10), at_ = CONV(HEX(SUBSTRING(state_, 20, 8)), 16, 10);
      IF now_ < at_ - skew_ OR z_ - now_ > reach_ THEN
        SET outcome_ = 0;
        LEAVE decision;
      ELSEIF z_ >= now_ THEN
        SET used_ = (z_ - now_) * n_ + ticks_;
      END IF;
    END IF;
    IF now_ > expires_ THEN
      SET outcome_ = 0;
      LEAVE decision;
    END IF;

    SET outcome_ = 2;
    WHILE run_ < LENGTH(runs_) DO
      IF used_ <= passes_ THEN
        SET need_ = CONV(HEX(SUBSTRING(runs_, run_ + 1, 8)), 16, 10), most_ = CONV(HEX(SUBSTRING(runs_, run_ + 9, 4)), 16, 10);
        IF need_ > 0 THEN
          SET most_ = LEAST(most_, (passes_ - used_) DIV need_ + 1, IF(owing_, most_, GREATEST(full_ - used_, 0) DIV need_));
        END IF;
        IF most_ > 0 THEN
          SET used_ = used_ + most_ * need_, outcome_ = 1;
        END IF;
      END IF;
      SET run_ = run_ + 12;
    END WHILE;
    -- What was read without a lock counts if it refuses, as of that moment. A key that does not exist needs no lock, which
    -- would keep others from making their keys.
    IF outcome_ = 1 AND NOT locked_ THEN
      START TRANSACTION;
      IF state_ IS NOT NULL THEN
        SET locked_ = TRUE, outcome_ = NULL;
      END IF;
    END IF;
  END WHILE;

  IF outcome_ < 3 THEN
    SET reply_ = CONCAT_WS(',', now_, z_, ticks_, state_ IS NULL);
    IF outcome_ = 1 OR since_ < number_ THEN
      UPDATE weir_states SET revision = number_, expires = now_ + 600000000, state = IF(outcome_ = 1, reply_, '') WHERE id = lane_ AND revision < number_;
      IF ROW_COUNT() <> 1 THEN
        IF EXISTS (SELECT 1 FROM weir_states WHERE id = lane_) THEN
          SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'weir: this call came after a later one of its caller, which was carried out';
        END IF;
        SET outcome_ = 4;
      END IF;
    END IF;
  END IF;
  IF outcome_ = 1 THEN
    SET state_ = CONCAT(0x776B02, UNHEX(LPAD(HEX(now_ + used_ DIV n_), 16, '0')), UNHEX(LPAD(HEX(used_ MOD n_), 16, '0')),
        UNHEX(LPAD(HEX(GREATEST(at_, now_)), 16, '0')), IF(state_ IS NULL, fresh_, SUBSTRING(state_, 28))),
      at_ = now_ + GREATEST((used_ + n_ - 1) DIV n_ + grace_, least_);
    IF reply_ LIKE '%,1' THEN
      INSERT INTO weir_states (id, revision, expires, state) VALUES (id_, revision_, at_, state_);
    ELSE
      UPDATE weir_states SET revision = revision_, expires = at_, state = state_ WHERE id = id_;
    END IF;
  END IF;
  COMMIT;
  SELECT outcome_, coalesce(earlier_, 0), coalesce(reply_, '0,0,0,0'), IF(outcome_ = 1, state_, '');
END
