package active

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/weirflow/weir/internal/regular"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/policyfile"
)

// stateFile is the content of a state file: bans and grants, as JSON.
type stateFile struct {
	Version   int        `json:"version"`
	Overrides []override `json:"overrides"`
}

type override struct {
	Limit string            `json:"limit"`
	Key   []string          `json:"key"`
	Ban   bool              `json:"ban,omitempty"`
	Set   map[string]string `json:"set,omitempty"`
	Until time.Time         `json:"until"`
}

const (
	stateVersion = 1
	// bytes: room for as many overrides as there may be, with keys as long as they may be
	maxState = 64 << 20
)

// encodeState writes bans and grants. Their ends are rounded, so that the same ones give the same
// bytes.
func encodeState(all []policy.Override, now time.Time) ([]byte, error) {
	s := stateFile{Version: stateVersion, Overrides: []override{}}
	for _, ex := range all {
		s.Overrides = append(s.Overrides, override{ex.Limit, ex.Key, ex.Ban, ex.Set, now.Add(ex.For).UTC().Round(time.Second)})
	}
	data, err := json.MarshalIndent(s, "", "  ")
	return append(data, '\n'), err
}

// decodeState reads what encodeState wrote.
func decodeState(data []byte) (s stateFile, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, err
	}
	if _, err := d.Token(); err != io.EOF {
		return s, errors.New("there is text after the JSON")
	}
	if s.Version != stateVersion {
		return s, fmt.Errorf("it has version %d, and this weir reads version %d", s.Version, stateVersion)
	}
	return s, nil
}

// readState reads a state file.
func readState(path string) (s stateFile, err error) {
	f, err := regular.Open(path)
	if err != nil {
		return s, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxState+1))
	if err == nil && len(data) > maxState {
		err = fmt.Errorf("it is larger than %d bytes", maxState)
	}
	if err == nil {
		s, err = decodeState(data)
	}
	if err != nil {
		return s, fmt.Errorf("%s cannot be read: %w: restore an older copy, or move the file away to start without bans and grants", path, err)
	}
	return s, nil
}

// restore puts the bans and grants of the state file in force, except those that have expired and
// those of limits that no longer exist.
func (p *Policy) restore(file *policyfile.File) error {
	if file.Policy.Admin.StateFile == "" {
		return nil
	}
	path := file.Beside(file.Policy.Admin.StateFile)
	s, err := readState(path)
	if errors.Is(err, fs.ErrNotExist) {
		return p.Keep() // a file that cannot be written is noticed now, not with the first ban
	}
	if err != nil {
		return fmt.Errorf("admin.state_file: %w", err)
	}
	restored, dropped := 0, 0
	for _, ex := range s.Overrides {
		left := time.Until(ex.Until)
		if left <= 0 {
			continue
		}
		if p.Engine().Override(policy.Override{Limit: ex.Limit, Key: ex.Key, Ban: ex.Ban, Set: ex.Set, For: left}) != nil {
			dropped++
			continue
		}
		restored++
	}
	p.log.Info("bans and grants restored", "file", path, "restored", restored, "limit_is_gone", dropped)
	return nil
}

// Keep writes the bans and grants to the state file, if the policy names one.
func (p *Policy) Keep() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keep()
}

// keepAfterUpdate is keep for an update, which cannot fail any more.
func (p *Policy) keepAfterUpdate() {
	if err := p.keep(); err != nil {
		p.log.Error("bans and grants would not survive a restart", "error", err)
	}
}

// keep is Keep while the lock is held.
func (p *Policy) keep() error {
	path := p.File().Policy.Admin.StateFile
	if path == "" {
		return nil
	}
	data, err := encodeState(p.Engine().Overrides(), time.Now())
	if err != nil || bytes.Equal(data, p.kept) {
		return err
	}
	path = p.File().Beside(path)
	next, err := writeBeside(path, data, 0o600)
	if err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		os.Remove(next)
		return err
	}
	p.kept = data
	return nil
}
