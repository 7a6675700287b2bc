package signals

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// groups are the cgroups that this process is in: for each controller the folders from its own
// cgroup up to the top of what is mounted. Each of them may have a limit.
type groups struct {
	v1  map[string][]string // by controller
	v2  []string
	err error // why there are none
}

// findGroups reads where the process is (/proc/self/cgroup) and where that is mounted
// (/proc/self/mountinfo).
func (l *linux) findGroups() groups {
	g := groups{v1: map[string][]string{}}
	b, err := l.read("/proc/self/cgroup")
	if err != nil {
		g.err = err
		return g
	}
	own := string(b)
	b, err = l.read("/proc/self/mountinfo")
	if err != nil {
		g.err = err
		return g
	}
	mounts := parseMounts(string(b))
	for line := range strings.Lines(own) {
		// 4:memory:/user.slice, and 0::/user.slice for version 2
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		if parts[0] == "0" && parts[1] == "" {
			g.v2 = l.folders(mounts, "", parts[2])
			continue
		}
		for controller := range strings.SplitSeq(parts[1], ",") {
			if folders := l.folders(mounts, controller, parts[2]); folders != nil {
				g.v1[controller] = folders
			}
		}
	}
	if g.v2 == nil && len(g.v1) == 0 {
		g.err = fmt.Errorf("/proc/self/cgroup, /proc/self/mountinfo: no cgroup of this process is mounted")
	}
	return g
}

// A mount is a hierarchy of cgroups that is mounted.
type mount struct {
	version     int
	controllers []string
	root, at    string // which cgroup is mounted, and where
}

// parseMounts returns the cgroups of /proc/self/mountinfo.
func parseMounts(text string) (all []mount) {
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(line, " - ")
		fields, rest := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(rest) < 1 {
			continue
		}
		m := mount{root: unescape(fields[3]), at: unescape(fields[4])}
		switch rest[0] {
		case "cgroup2":
			m.version = 2
		case "cgroup":
			m.version = 1
			if len(rest) >= 3 {
				m.controllers = strings.Split(rest[2], ",")
			}
		default:
			continue
		}
		all = append(all, m)
	}
	return all
}

// unescape replaces what mountinfo writes for spaces, tabs, newlines and backslashes.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// folders returns the folders of a cgroup and those above it, innermost first. A container may see
// its own cgroup as the top, while /proc/self/cgroup still names it as the machine does: then the
// top of the mount is its cgroup.
func (l *linux) folders(mounts []mount, controller, group string) []string {
	for _, m := range mounts {
		if (controller == "") != (m.version == 2) || controller != "" && !slices.Contains(m.controllers, controller) {
			continue
		}
		inside := "/"
		if rest, ok := strings.CutPrefix(group, strings.TrimSuffix(m.root, "/")); ok && (rest == "" || rest[0] == '/') && !strings.Contains(rest, "/..") {
			inside = path.Clean("/" + rest)
		}
		if !l.isFolder(path.Join(m.at, inside)) {
			if inside = "/"; !l.isFolder(m.at) {
				continue
			}
		}
		var all []string
		for ; len(all) < 64; inside = path.Dir(inside) {
			all = append(all, path.Join(m.at, inside))
			if inside == "/" {
				break
			}
		}
		return all
	}
	return nil
}

func (l *linux) isFolder(name string) bool {
	info, err := os.Stat(l.name(name))
	return err == nil && info.IsDir()
}
