package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/admin"
	"github.com/weirflow/weir/server/policyfile"
)

// control is what changes a server while it runs: reloads, and what the API asks for. It does one change after another.
type control struct {
	s    *server
	keys keys

	mu    sync.Mutex // of a change, and of what follows
	api   bool       // the policy in force came from the API, and is not in the file
	since time.Time
	kept  []byte // what the state file holds
}

// newControl returns what changes a server that is about to serve a file.
func newControl(s *server, file *policyfile.File) (*control, error) {
	c := &control{s: s, since: time.Now()}
	keys, err := readKeys(file)
	if err == nil {
		c.use(keys)
	}
	return c, err
}

// begin adds the API to the admin pages, and brings back bans and grants from before a restart.
func (c *control) begin(file *policyfile.File) error {
	listen := file.Policy.Listen.Admin
	if listen != "" {
		c.s.admin.Control(c, listen, !isLoopback(listen))
		c.s.admin.SetToken(c.token())
	}
	return c.restore(file)
}

// use puts a token and a certificate in force.
func (c *control) use(k held) {
	c.keys.set(k)
	if c.s.admin != nil && c.s.gateway.File().Policy.Listen.Admin != "" {
		c.s.admin.SetToken(k.token)
	}
}

func (c *control) token() string { return c.keys.get().token }

// InForce is the policy that is served.
func (c *control) InForce() admin.InForce {
	c.mu.Lock()
	defer c.mu.Unlock()
	return admin.InForce{File: c.s.gateway.File(), API: c.api, Since: c.since}
}

// Engine is the engine in force.
func (c *control) Engine() *policy.Engine { return c.s.gateway.Engine() }

// Plan says what a policy would change.
func (c *control) Plan(data []byte) (admin.Plan, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	file, err := c.read(data)
	if err != nil {
		return admin.Plan{}, err
	}
	if err := c.s.changeable(file); err != nil {
		return admin.Plan{}, err
	}
	if _, err := readKeys(file); err != nil && (data == nil || c.token() != "") { // what is wrong with a file is not for strangers
		return admin.Plan{}, err
	}
	if err := c.s.gateway.Check(file); err != nil {
		return admin.Plan{}, err
	}
	return c.plan(file), nil
}

// plan compares a policy with the one in force.
func (c *control) plan(file *policyfile.File) admin.Plan {
	return admin.Plan{Changes: policy.Diff(&c.s.gateway.File().Policy, &file.Policy), Warnings: file.Problems}
}

// read reads a policy that was sent, or the file.
func (c *control) read(data []byte) (*policyfile.File, error) {
	switch {
	case data == nil && c.s.Path == "":
		return nil, fmt.Errorf("%w: the demo has no policy file: start weir serve with --config", admin.ErrConflict)
	case data == nil:
		return policyfile.Load(c.s.Path)
	case c.token() == "":
		return policyfile.ParseInside(c.s.gateway.File().Path, c.s.gateway.File().Reveal(data))
	}
	return policyfile.Parse(c.s.gateway.File().Path, c.s.gateway.File().Reveal(data))
}

// Apply puts a policy in force that was sent. A policy can have files of this machine read, and requests sent to wherever it says: so it is taken
// only from whoever brings a token, also on this machine.
func (c *control) Apply(ctx context.Context, data []byte, save bool, check func([]byte) error) (admin.Plan, error) {
	if c.token() == "" {
		return admin.Plan{}, fmt.Errorf("%w: a policy is taken only with a token: set admin.token_file in the policy file, or change that file, and POST /v1/reload", admin.ErrForbidden)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := check(c.s.gateway.File().Data); err != nil {
		return admin.Plan{}, err
	}
	file, err := c.read(data)
	if err != nil {
		return admin.Plan{}, err
	}
	commit, undo := func() error { return nil }, func() {}
	if save {
		if commit, undo, err = c.prepare(file.Data); err != nil {
			return admin.Plan{}, err
		}
	}
	defer undo()
	plan := c.plan(file)
	if err := c.s.replace(context.WithoutCancel(ctx), file); err != nil {
		return admin.Plan{}, err
	}
	c.api, c.since = !save, time.Now()
	if err := c.keep(); err != nil {
		c.s.Log.Error("bans and grants would not survive a restart", "error", err)
	}
	if err := commit(); err != nil {
		c.api = true
		return admin.Plan{}, fmt.Errorf("the policy is in force, but was not saved: %w", err)
	}
	return plan, nil
}

// prepare writes a policy beside the policy file, which commit puts in its place.
func (c *control) prepare(data []byte) (commit func() error, undo func(), err error) {
	switch {
	case c.s.Path == "":
		return nil, nil, fmt.Errorf("%w: the demo has no policy file to save to", admin.ErrConflict)
	case look(c.s.Path) != c.s.seen:
		return nil, nil, fmt.Errorf("%w: the policy file has changed since it was read, and would be lost: reload it first", admin.ErrConflict)
	}
	path, err := filepath.EvalSymlinks(c.s.Path) // what it leads to is changed, and not the link
	if err != nil {
		return nil, nil, err
	}
	mode := os.FileMode(0o600)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	next, err := writeBeside(path, data, mode)
	if err != nil {
		return nil, nil, err
	}
	commit = func() error {
		if err := os.Rename(next, path); err != nil {
			return err
		}
		c.s.seen = version(sha256.Sum256(data))
		return nil
	}
	return commit, func() { os.Remove(next) }, nil // which is not there any more once it was renamed
}

// writeBeside writes a new file beside another one, to the disk, and returns its name.
func writeBeside(path string, data []byte, mode os.FileMode) (name string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return "", err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			os.Remove(f.Name())
		}
	}()
	if _, err := f.Write(data); err != nil {
		return "", err
	}
	if err := f.Chmod(mode); err != nil {
		return "", err
	}
	return f.Name(), f.Sync()
}

// Reload reads the policy file again.
func (c *control) Reload(ctx context.Context) (admin.Plan, error) {
	return c.reload(context.WithoutCancel(ctx), "asked to by the API")
}

func (c *control) reload(ctx context.Context, why string) (plan admin.Plan, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.s.Path != "" {
		c.s.seen = look(c.s.Path)
		defer func() { c.s.told(why, err) }()
	}
	file, err := c.read(nil)
	if err != nil {
		return plan, err
	}
	plan = c.plan(file)
	if err := c.s.replace(ctx, file); err != nil {
		return plan, err
	}
	c.api, c.since = false, time.Now()
	if err := c.keep(); err != nil {
		c.s.Log.Error("bans and grants would not survive a restart", "error", err)
	}
	return plan, nil
}

// fileChanged reports whether the policy file is another one than when it was last read.
func (c *control) fileChanged() bool {
	if c.s.Path == "" {
		return false
	}
	now := look(c.s.Path)
	c.mu.Lock()
	defer c.mu.Unlock()
	return now != c.s.seen
}

// Audit writes down what was changed through the API: what it was, and neither by whom nor whose key.
func (c *control) Audit(what string, err error) {
	if err != nil {
		var invalid *policyfile.InvalidError
		if errors.As(err, &invalid) {
			err = fmt.Errorf("the policy is not valid: %d problems", len(invalid.Problems))
		}
		c.s.Log.Warn("admin: not changed", "what", what, "error", err)
		return
	}
	c.s.Log.Info("admin: changed", "what", what)
}

// Keep writes bans and grants to the state file.
func (c *control) Keep() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keep()
}

// keep is Keep while the lock is held.
func (c *control) keep() error {
	path := c.s.gateway.File().Policy.Admin.StateFile
	if path == "" {
		return nil
	}
	data, err := encodeState(c.Engine().Exceptions(), time.Now())
	if err != nil || bytes.Equal(data, c.kept) {
		return err
	}
	path = beside(c.s.gateway.File(), path)
	next, err := writeBeside(path, data, 0o600)
	if err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		os.Remove(next)
		return err
	}
	c.kept = data
	return nil
}
