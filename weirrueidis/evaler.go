package weirrueidis

import "github.com/weirflow/weir/weirredis"

// Evaler runs scripts of others over the Store's client, until Close. It waits for the client to be connected, for as long as a call's context
// lasts. Nobody may be in it when Close is called.
func (s *Store) Evaler() weirredis.Evaler { return s.link }
