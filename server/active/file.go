package active

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/weirflow/weir/internal/regular"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/policyfile"
)

// ErrConflict is found by errors.Is in an error about something that cannot be done as things are.
var ErrConflict = errors.New("conflict")

// Status says which policy is active.
type Status struct {
	File    *policyfile.File
	FromAPI bool      // it was sent, and is not what the policy file holds
	Since   time.Time // of the last update
}

// Status returns which policy is active.
// It waits for no update.
func (p *Policy) Status() Status { return *p.status.Load() }

// publish sets what Status returns. The lock is held.
func (p *Policy) publish(fromAPI bool) { p.status.Store(&Status{p.File(), fromAPI, p.since}) }

// A Plan is what an update changes, or would change.
type Plan struct {
	Changes  []policy.Change
	Warnings []policyfile.Problem
}

// Plan compares the policy file with the active policy. Like PlanFor it takes no lock, so that no
// update and no signal waits for it. For a caller who is not trusted it opens none of the files that
// the policy names.
func (p *Policy) Plan(trusted bool) (Plan, error) {
	load := policyfile.LoadRegular
	if !trusted {
		load = policyfile.LoadText
	}
	file, err := p.load(load)
	if err != nil {
		return Plan{}, err
	}
	return p.planned(file)
}

// PlanFor compares a policy that was sent with the active one.
func (p *Policy) PlanFor(data []byte, trusted bool) (Plan, error) {
	parse := policyfile.Parse
	if !trusted {
		parse = policyfile.ParseText
	}
	now := p.File()
	file, err := parse(now.Path, now.Reveal(data))
	if err != nil {
		return Plan{}, err
	}
	return p.planned(file)
}

// planned is what an acceptable policy changes.
func (p *Policy) planned(file *policyfile.File) (Plan, error) {
	file, err := p.completed(p.File(), file)
	if err != nil {
		return Plan{}, err
	}
	return p.plan(file), nil
}

func (p *Policy) plan(file *policyfile.File) Plan {
	return Plan{Changes: policy.Diff(&p.File().Policy, &file.Policy), Warnings: file.Problems}
}

// load reads the policy file.
func (p *Policy) load(load func(path string) (*policyfile.File, error)) (*policyfile.File, error) {
	if p.path == "" {
		return nil, fmt.Errorf("%w: the demo has no policy file: start weir serve with a policy file", ErrConflict)
	}
	return load(p.path)
}

// Apply makes a policy active that was sent. check is given the data of the active policy, and may
// refuse to replace it. With save the data becomes the content of the policy file, too.
func (p *Policy) Apply(ctx context.Context, data []byte, save bool, check func(active []byte) error) (Plan, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := check(p.File().Data); err != nil {
		return Plan{}, err
	}
	return p.apply(ctx, data, save)
}

// apply is Apply while the lock is held, without a check.
func (p *Policy) apply(ctx context.Context, data []byte, save bool) (Plan, error) {
	file, err := policyfile.Parse(p.File().Path, p.File().Reveal(data))
	if err != nil {
		return Plan{}, err
	}
	if file, err = p.completed(p.File(), file); err != nil {
		return Plan{}, err
	}
	commit, undo := func() error { return nil }, func() {}
	if save {
		if commit, undo, err = p.prepareSave(file.Data); err != nil {
			return Plan{}, err
		}
	}
	defer undo()
	plan := p.plan(file)
	if err := p.update(context.WithoutCancel(ctx), file); err != nil {
		return Plan{}, err
	}
	p.publish(true)
	p.keepAfterUpdate()
	if err := commit(); err != nil {
		return Plan{}, fmt.Errorf("the policy is active, but was not saved: %w", err)
	}
	p.publish(!save)
	return plan, nil
}

// prepareSave writes a policy beside the policy file; commit puts it in the file's place.
func (p *Policy) prepareSave(data []byte) (commit func() error, undo func(), err error) {
	switch {
	case p.path == "":
		return nil, nil, fmt.Errorf("%w: the demo has no policy file to save to", ErrConflict)
	case readVersion(p.path) != p.read:
		return nil, nil, fmt.Errorf("%w: the policy file has changed since it was read, and would be lost: reload it first", ErrConflict)
	}
	// a link stays, and the file that it names is replaced
	path, err := filepath.EvalSymlinks(p.path)
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
		p.read = versionOf(data)
		return nil
	}
	return commit, func() { os.Remove(next) }, nil // after the rename there is nothing to remove
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

// Reload reads the policy file again and makes it the active policy, all or nothing. why is for the
// log.
func (p *Policy) Reload(ctx context.Context, why string) (plan Plan, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.path != "" {
		p.read = readVersion(p.path) // first: a change from now on counts as one
		defer func() { p.logReload(why, err) }()
	}
	file, err := p.load(policyfile.LoadRegular)
	if err != nil {
		return plan, err
	}
	if file, err = p.completed(p.File(), file); err != nil {
		return plan, err
	}
	plan = p.plan(file)
	if err := p.update(context.WithoutCancel(ctx), file); err != nil {
		return plan, err
	}
	p.publish(false)
	p.keepAfterUpdate()
	return plan, nil
}

// logReload logs and counts what became of a reload.
func (p *Policy) logReload(why string, err error) {
	if err == nil {
		p.reloaded.Add(1)
		p.log.Info("policy reloaded", "file", p.path, "why", why)
		return
	}
	p.failed.Add(1)
	var invalid *policyfile.InvalidError
	if !errors.As(err, &invalid) {
		p.log.Error("policy not reloaded: the running policy stays active", "file", p.path, "why", why, "error", err)
		return
	}
	p.log.Error("policy not reloaded: the running policy stays active", "file", p.path, "why", why, "problems", len(invalid.Problems))
	for _, problem := range invalid.Problems {
		level := slog.LevelError
		if problem.Warning {
			level = slog.LevelWarn
		}
		p.log.Log(context.Background(), level, "policy", "file", problem.File, "line", problem.Line, "column", problem.Col, "message", problem.Message, "fix", problem.Fix)
	}
}

// Reloads returns how many reloads succeeded, and how many failed.
func (p *Policy) Reloads() (succeeded, failed uint64) { return p.reloaded.Load(), p.failed.Load() }

// Changed reports whether the policy file differs from what it held when it was last read.
func (p *Policy) Changed() bool {
	if p.path == "" {
		return false
	}
	now := readVersion(p.path)
	p.mu.Lock()
	defer p.mu.Unlock()
	return now != p.read
}

// A version tells two contents of a file apart. Times and sizes would miss a change within the same
// second, and links that are moved, as Kubernetes moves them. A policy file is small.
type version [sha256.Size]byte

func versionOf(data []byte) version { return sha256.Sum256(data) }

// readVersion is the version of a file. A file that cannot be read has a version of its own.
func readVersion(path string) version {
	f, err := regular.Open(path)
	if err != nil {
		return version{}
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, 4<<20)); err != nil {
		return version{}
	}
	return version(h.Sum(nil))
}
