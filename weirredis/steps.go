package weirredis

import "time"

func (s *Store) stepped(keys int64, behind time.Duration) {}
