// Package weirsqlite keeps limits in a file that several processes of one machine share, through SQLite
// (modernc.org/sqlite, which needs no C compiler). See package weirkv for what such a store guarantees.
//
// A decision that charges is a transaction on the file, in which nobody else writes: it reads the state of the
// key, decides, and writes it. Decisions that are due at the same time, about one key or several, share a
// transaction. All processes have the clock of the machine.
//
// A process that is killed loses nothing that was decided, and leaves no lock. A crash of the machine loses the
// decisions of the last moments, unless the file is durable.
package weirsqlite

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/weirflow/weir/weirkv"
)

// A Store is a weir.Store in a file.
type Store struct {
	*weirkv.Store
	kv *KV
}

// Close ends the Store and closes the file.
func (s *Store) Close() error {
	err := s.Store.Close()
	return errors.Join(err, s.kv.Close())
}

// Open opens a Store at a URL such as sqlite:/var/lib/weir/limits.db. It opens the file with the first call, and
// makes it if it is not there. A file that cannot be used is the error of each call, until it can.
func Open(address string, o weirkv.Options) (*Store, error) {
	config, err := ParseURL(address)
	if err != nil {
		return nil, err
	}
	kv := NewKV(config)
	s, err := weirkv.New(kv, o)
	if err != nil {
		return nil, errors.Join(err, kv.Close())
	}
	return &Store{s, kv}, nil
}

// A Config says which file is used, and how.
type Config struct {
	Path    string // absolute
	Durable bool   // each transaction waits for the disk, so that a crash of the machine loses nothing

	pages int // for tests: the file is full with so many
}

// errURL says how a URL is written.
var errURL = errors.New("weirsqlite: write the URL like sqlite:/var/lib/weir/limits.db, with an absolute path; ?durable=true makes each decision wait for the disk")

// ParseURL returns the configuration of a URL: sqlite:/PATH or sqlite:///PATH, with durable=true as its only
// parameter.
func ParseURL(address string) (c Config, err error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "sqlite" || u.Host != "" || u.User != nil || u.Fragment != "" || !strings.HasPrefix(u.Path, "/") || strings.HasSuffix(u.Path, "/") || strings.ContainsRune(u.Path, 0) {
		return c, errURL
	}
	c.Path = filepath.Clean(filepath.FromSlash(u.Path))
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return c, errURL
	}
	for name, values := range query {
		switch value := values[len(values)-1]; {
		case name != "durable":
			return c, fmt.Errorf("weirsqlite: the URL has the parameter %.40q: durable=true is the only one", name)
		case value != "true" && value != "false":
			return c, fmt.Errorf("weirsqlite: durable is %.40q: write true or false", value)
		default:
			c.Durable = value == "true"
		}
	}
	return c, nil
}
