package active

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/weirflow/weir/internal/regular"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/policyfile"
)

const (
	snapshotEvery = time.Minute
	maxSnapshot   = 1 << 30 // bytes

	snapshotBegins = `{"weir":"quotas",`
)

// snapshots is when the counts of quotas were last written.
type snapshots struct {
	wrote  time.Time
	passed bool // to another process, which writes them from now on
}

// restoreQuotas reads the snapshot of quotas. A file that is broken, or no snapshot, is moved aside
// and named in the log: quotas then start unused.
func (p *Policy) restoreQuotas(file *policyfile.File) error {
	p.snapshots.wrote = time.Now()
	name := file.Policy.SnapshotFile
	if name == "" {
		return nil
	}
	path := file.Beside(name)
	data, err := readSnapshot(path)
	if errors.Is(err, fs.ErrNotExist) {
		return p.writeQuotas() // a file that cannot be written is noticed now
	}
	if err != nil {
		return fmt.Errorf("snapshot_file: %w", err)
	}
	restored, err := p.Engine().ReadSnapshot(data)
	if errors.Is(err, policy.ErrSnapshot) {
		aside := path + ".broken-" + time.Now().UTC().Format("20060102T150405")
		if moved := os.Rename(path, aside); moved != nil {
			return fmt.Errorf("snapshot_file: %s: %w; it cannot be moved aside: %w", path, err, moved)
		}
		p.log.Error("snapshot not restored: quotas start unused", "file", path, "error", err, "kept_as", aside)
		return nil
	}
	p.log.Info("quotas restored", "file", path, "keys", restored)
	return err
}

func readSnapshot(path string) ([]byte, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSnapshot+1))
	if err == nil && len(data) > maxSnapshot {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxSnapshot)
	}
	return data, err
}

// writeQuotas writes the snapshot of quotas, if the policy names a file. A reader finds the one of
// before or the new one, and never a part.
func (p *Policy) writeQuotas() (err error) {
	file := p.File()
	name := file.Policy.SnapshotFile
	if name == "" || p.snapshots.passed {
		return nil
	}
	path := file.Beside(name)
	if err := replaceable(path); err != nil {
		return fmt.Errorf("snapshot_file: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("snapshot_file: %w", err)
	}
	_, err = p.Engine().WriteSnapshot(f)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("snapshot_file: %w", err)
	}
	return nil
}

// replaceable returns why a snapshot may not replace a file: it is something else, which an update of
// the policy has named.
func replaceable(path string) error {
	f, err := regular.Open(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	defer f.Close()
	begin := make([]byte, len(snapshotBegins))
	if n, err := io.ReadFull(f, begin); n > 0 && (err != nil || string(begin) != snapshotBegins) {
		return fmt.Errorf("%s is no snapshot, and is left as it is: name another file", path)
	}
	return nil
}

// tickQuotas writes the snapshot each minute.
func (p *Policy) tickQuotas() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.snapshots.wrote) < snapshotEvery {
		return
	}
	p.snapshots.wrote = time.Now()
	if err := p.writeQuotas(); err != nil {
		p.log.Error("the counts of quotas would not survive a restart", "error", err)
	}
}

// SaveQuotas writes the snapshot of quotas now, before another process takes over.
func (p *Policy) SaveQuotas() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.writeQuotas()
}

// PassQuotas leaves the snapshot to another process, which has taken over.
func (p *Policy) PassQuotas() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.snapshots.passed = true
}
