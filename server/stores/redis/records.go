package redis

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// recordWord begins the names of records, after the prefix. States begin with a brace there.
const recordWord = "apikey:"

// records are the texts of a product.RecordKeeper: each is a string of Redis, so that other programs
// can read and write them.
type records struct {
	store             *weirrueidis.Store
	prefix            string
	get, set, removal *weirredis.Script

	mu       sync.Mutex
	closed   bool
	inFlight sync.WaitGroup
}

// getRecord returns a record after an equals sign: another program may have written an empty one. It returns
// an empty text without a record, and an exclamation mark for what is no string.
const getRecord = `
local said = redis.pcall('GET', KEYS[1])
if type(said) == 'string' then return '=' .. said end
if said and said.err and string.find(said.err, 'WRONGTYPE', 1, true) then return '!' end
return said or ''
`

func newRecords(s *weirrueidis.Store, prefix string) *records {
	if prefix == "" {
		prefix = "weir:"
	}
	return &records{
		store: s, prefix: prefix + recordWord,
		get:     script(getRecord),
		set:     script("if ARGV[2] == '0' then redis.call('SET', KEYS[1], ARGV[1]) else redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end return 'ok'"),
		removal: script("return tostring(redis.call('DEL', KEYS[1]))"),
	}
}

func script(source string) *weirredis.Script {
	sum := sha1.Sum([]byte(source))
	return &weirredis.Script{Source: source, SHA: hex.EncodeToString(sum[:])}
}

var errNoString = errors.New("redis: the entry is not a string")

var errRecordsClosed = errors.New("redis: the store is closed")

// begin counts a call, which close waits for.
func (r *records) begin() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errRecordsClosed
	}
	r.inFlight.Add(1)
	return nil
}

func (r *records) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.inFlight.Wait()
}

// run runs a script about a record.
func (r *records) run(ctx context.Context, s *weirredis.Script, name string, args ...string) (string, error) {
	if err := r.begin(); err != nil {
		return "", err
	}
	defer r.inFlight.Done()
	c := weirredis.Call{Script: s, Keys: []string{r.prefix + name}, Args: args}
	text, err := r.store.Evaler().Eval(ctx, c)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		c.Send = true
		text, err = r.store.Evaler().Eval(ctx, c)
	}
	if err != nil {
		return "", fmt.Errorf("redis: %w", err)
	}
	return text, nil
}

// Record implements product.RecordKeeper.
func (s *store) Record(ctx context.Context, name string) (text string, found bool, err error) {
	said, err := s.records.run(ctx, s.records.get, name)
	if said == "!" {
		return "", true, errNoString
	}
	text, found = strings.CutPrefix(said, "=")
	return text, found, err
}

// SetRecord implements product.RecordKeeper.
func (s *store) SetRecord(ctx context.Context, name, text string, expires time.Duration) error {
	if expires > 0 && expires < time.Millisecond {
		expires = time.Millisecond // 0 is for ever
	}
	_, err := s.records.run(ctx, s.records.set, name, text, strconv.FormatInt(expires.Milliseconds(), 10))
	return err
}

// RemoveRecord implements product.RecordKeeper.
func (s *store) RemoveRecord(ctx context.Context, name string) (found bool, err error) {
	text, err := s.records.run(ctx, s.records.removal, name)
	return text == "1", err
}

// Records implements product.RecordKeeper.
func (s *store) Records(ctx context.Context, prefix string, each func(name string) error) error {
	if err := s.records.begin(); err != nil {
		return err
	}
	defer s.records.inFlight.Done()
	begin := s.records.prefix + prefix
	return s.Scan(ctx, glob(begin)+"*", func(keys []string) error {
		for _, key := range keys {
			if err := each(strings.TrimPrefix(key, s.records.prefix)); err != nil {
				return err
			}
		}
		return nil
	})
}

// glob escapes a text for a pattern of Redis.
func glob(text string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`).Replace(text)
}

// StateKeys implements policy.StateLister.
func (s *store) StateKeys(ctx context.Context, name string, of []weir.Limit, each func(key string, under int) error) error {
	if err := s.records.begin(); err != nil {
		return err
	}
	defer s.records.inFlight.Done()
	return s.Store.StateKeys(ctx, name, of, each)
}
