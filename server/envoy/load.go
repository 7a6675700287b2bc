package envoy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weirflow/weir/internal/regular"
)

// Bounds of the files of one configuration.
const (
	maxFiles = 10_000
	maxBytes = 1 << 20  // of one file
	maxTotal = 64 << 20 // of all of them
)

// Load reads a configuration: a file, or a folder whose .yaml and .yml files belong to it. A folder may
// be the mount of a Kubernetes ConfigMap, whose files change all at once. Files whose name begins with
// a dot, and folders, are left out.
func Load(path string) ([]File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		data, err := regular.Read(path, maxBytes)
		return []File{{path, data}}, err
	}
	// The mount has a symbolic link to the folder of the moment. While it changes, files of two folders
	// would be read.
	for range 10 {
		before := target(path)
		files, err := folder(before, path)
		if after := target(path); after == before {
			return files, err
		}
	}
	return nil, errors.New("the files changed again and again while they were read")
}

// target returns the folder that the data of a ConfigMap mount is in, or the path without symbolic
// links: deployments for envoyproxy/ratelimit change the link RUNTIME_ROOT.
func target(path string) string {
	for _, link := range []string{filepath.Join(path, "..data"), path} {
		if to, err := filepath.EvalSymlinks(link); err == nil {
			return to
		}
	}
	return path
}

// folder reads the files of a folder. shown is its name for errors.
func folder(path, shown string) (all []File, err error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	total := 0
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") || !slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(name)) {
			continue
		}
		info, err := os.Stat(filepath.Join(path, name)) // a link counts as what it leads to
		if err != nil {
			return nil, err
		}
		if info.IsDir() {
			continue
		}
		data, err := regular.Read(filepath.Join(path, name), maxBytes)
		if err != nil {
			return nil, err
		}
		if total += len(data); total > maxTotal || len(all) == maxFiles {
			return nil, fmt.Errorf("%s: more than %d files or %d bytes", shown, maxFiles, maxTotal)
		}
		all = append(all, File{filepath.Join(shown, name), data})
	}
	if len(all) == 0 {
		hint := ""
		if below, err := folder(filepath.Join(path, "config"), ""); err == nil && len(below) > 0 { // as RUNTIME_ROOT/RUNTIME_SUBDIRECTORY has it
			hint = ", and there are some in " + filepath.Join(shown, "config") + ": name that folder"
		}
		return nil, fmt.Errorf("%w: there is no .yaml or .yml file in the folder %s%s", fs.ErrNotExist, shown, hint)
	}
	return all, nil
}
