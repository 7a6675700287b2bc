package active

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weirflow/weir/server/policyfile"
	"github.com/weirflow/weir/server/stores"
)

// Check returns what keeps a policy from becoming active: stores that cannot even be tried,
// as a file with a password is missing, and a state file that cannot be read. Whether a store
// answers is not asked: limits go on without it.
func Check(file *policyfile.File) (wrong []policyfile.Problem) {
	if file.Untrusted {
		return nil
	}
	for _, def := range file.Policy.Stores {
		if file.HasErrorIn("stores", def.Name) {
			continue
		}
		if err := stores.Try(def, file.Policy.Tags(def.Name)); err != nil {
			wrong = append(wrong, file.Wrong(err.Error(), "", "stores", def.Name))
		}
	}
	if _, err := decisionLog(file); err != nil {
		wrong = append(wrong, file.Wrong(err.Error(), "create the file with: head -c 32 /dev/urandom | base64 > "+file.Policy.DecisionLog.SecretFile, "decision_log", "secret_file"))
	}
	if err := checkState(file); err != nil {
		wrong = append(wrong, file.Wrong("admin.state_file: "+err.Error(), "", "admin", "state_file"))
	}
	if name := file.Policy.SnapshotFile; name != "" {
		dir := filepath.Dir(file.Beside(name))
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			wrong = append(wrong, file.Wrong(fmt.Sprintf("snapshot_file: %s is not a directory", dir), "create it, or name another file", "snapshot_file"))
		}
	}
	return wrong
}

// Warnings returns what is unwise about a policy, and does not keep it from becoming active.
func Warnings(file *policyfile.File) (all []policyfile.Problem) {
	if file.Untrusted {
		return nil
	}
	for _, def := range file.Policy.Stores {
		for _, p := range stores.Warn(def) {
			warning := file.Wrong(p.Message, p.Fix, "stores", def.Name, p.Field)
			warning.Warning = true
			all = append(all, warning)
		}
	}
	return all
}

// checkState returns why the state file could be neither read nor created.
func checkState(file *policyfile.File) error {
	if file.Policy.Admin.StateFile == "" {
		return nil
	}
	path := file.Beside(file.Policy.Admin.StateFile)
	_, err := readState(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return fmt.Errorf("%s is not a directory: create it", filepath.Dir(path))
	}
	return nil
}
