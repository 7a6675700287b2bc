package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/policyfile"
)

// state is what a state file holds: bans and grants, as JSON.
type state struct {
	Version    int         `json:"version"`
	Exceptions []exception `json:"exceptions"`
}

type exception struct {
	Limit string            `json:"limit"`
	Key   []string          `json:"key"`
	Ban   bool              `json:"ban,omitempty"`
	Set   map[string]string `json:"set,omitempty"`
	Until time.Time         `json:"until"`
}

const (
	stateVersion = 1
	maxState     = 64 << 20 // bytes: as many exceptions as there may be, with keys as long as they may be, and more
)

// encodeState writes exceptions. When they end is rounded, so that the same ones are written the same.
func encodeState(all []policy.Exception, now time.Time) ([]byte, error) {
	s := state{Version: stateVersion, Exceptions: []exception{}}
	for _, ex := range all {
		s.Exceptions = append(s.Exceptions, exception{ex.Limit, ex.Key, ex.Ban, ex.Set, now.Add(ex.For).UTC().Round(time.Second)})
	}
	data, err := json.MarshalIndent(s, "", "  ")
	return append(data, '\n'), err
}

// decodeState reads what encodeState wrote.
func decodeState(data []byte) (s state, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, err
	}
	if _, err := d.Token(); err != io.EOF {
		return s, errors.New("there is more behind the JSON")
	}
	if s.Version != stateVersion {
		return s, fmt.Errorf("it is of version %d, and this is a weir for version %d", s.Version, stateVersion)
	}
	return s, nil
}

// restore puts the bans and grants of the state file in force, but for those that have ended, and those of limits that are not there any more.
func (c *control) restore(file *policyfile.File) error {
	if file.Policy.Admin.StateFile == "" {
		return nil
	}
	path := beside(file, file.Policy.Admin.StateFile)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c.Keep() // now it is known whether it can be written
	}
	if err != nil {
		return fmt.Errorf("admin.state_file: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxState+1))
	if err == nil && len(data) > maxState {
		err = fmt.Errorf("it is larger than %d bytes", maxState)
	}
	var s state
	if err == nil {
		s, err = decodeState(data)
	}
	if err != nil {
		return fmt.Errorf("admin.state_file: %s cannot be read: %w: bring back an older one, or move it away to begin without bans and grants", path, err)
	}
	kept, lost := 0, 0
	for _, ex := range s.Exceptions {
		left := time.Until(ex.Until)
		if left <= 0 {
			continue
		}
		if c.Engine().Except(policy.Exception{Limit: ex.Limit, Key: ex.Key, Ban: ex.Ban, Set: ex.Set, For: left}) != nil {
			lost++
			continue
		}
		kept++
	}
	c.s.Log.Info("bans and grants", "file", path, "in_force", kept, "not_for_these_limits", lost)
	return nil
}
