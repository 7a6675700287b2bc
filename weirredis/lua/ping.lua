-- A probe: whether the server would carry out a charge. SET is what charges write with, and is
-- refused in the same states: by a replica, and by a server whose disk or memory is full. No key has
-- the name in KEYS[1], and XX makes none.
redis.call('SET', KEYS[1], '', 'XX')
return 'pong'
