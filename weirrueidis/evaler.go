package weirrueidis

import "github.com/weirflow/weir/weirredis"

// Evaler runs other scripts over the Store's client, until Close. A call waits for the client to be
// connected, for as long as its context lasts. No call may be in flight when Close is called.
func (s *Store) Evaler() weirredis.Evaler { return s.link }
