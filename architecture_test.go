package weir_test

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// inside has the folders of the sections of ARCHITECTURE.md that name files without their folder.
// In other sections a name may be that of any file.
var inside = map[string][]string{
	"Inside internal/rules":       {"internal/rules"},
	"Inside the root":             {"."},
	"Inside keyed":                {"keyed"},
	"Inside weirredis":            {"weirredis", "weirredis/lua"},
	"Inside weirkv":               {"weirkv", "internal/rules"},
	"Inside weirsql":              {"weirsql", "weirsql/postgres"},
	"Inside failover":             {"failover"},
	"Inside lease":                {"lease"},
	"Inside regions":              {"regions"},
	"Inside weirhttp":             {"weirhttp", "."},
	"Inside server/listen":        {"server/listen"},
	"Inside server/plain":         {"server/plain", "server"},
	"Inside server/eventloop":     {"server/eventloop"},
	"Inside server/room":          {"server/room"},
	"Inside weircaddy":            {"weircaddy"},
	"How to add":                  {".", "weirtest", "weirredis/lua"},
	"Inside server: the active":   {"server", "server/active", "server/gateway"},
	"Inside the gateway, towards": {"server", "server/upstream", "server/gateway"},
	"What changes while it runs":  {".", "server/nginx", "server/admin"},
	"Where to find what":          {".", "internal/rules"},
	"Decisions worth knowing":     {"."},
	"Shared states":               {"."},
	"Which package imports which": {".", "internal", "server", "server/stores"},
	"From a policy to Redis":      {"."},
}

// code matches text in backquotes.
var code = regexp.MustCompile("`([^`\n]+)`")

// TestArchitectureNamesWhatExists: each file and folder that ARCHITECTURE.md names exists where the
// page says, and the page names each package.
func TestArchitectureNamesWhatExists(t *testing.T) {
	page, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	wrong, unnamed := checkArchitecture(os.DirFS("."), string(page))
	for _, name := range wrong {
		t.Errorf("ARCHITECTURE.md names %s, which is not there", name)
	}
	for _, name := range unnamed {
		t.Errorf("ARCHITECTURE.md does not name the package %s", name)
	}
	if wrong, unnamed := checkArchitecture(os.DirFS("."), "## Inside keyed\n`limiter.go` is of the root, `keyed.go` is not.\n"); len(wrong) != 1 || len(unnamed) < 20 {
		t.Errorf("a page with one wrong name and few packages: %q, %q", wrong, unnamed)
	}
}

func checkArchitecture(tree fs.FS, page string) (wrong, unnamed []string) {
	folders, named := []string{"."}, map[string]bool{}
	for line := range strings.Lines(page) {
		if heading, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "##") {
			folders = []string{"."}
			for begin, where := range inside {
				if strings.HasPrefix(heading, begin) {
					folders = where
				}
			}
		}
		for _, found := range code.FindAllStringSubmatch(line, -1) {
			name := found[1]
			named[strings.TrimSuffix(name, "/")] = true
			isFile := strings.HasSuffix(name, ".go") || strings.HasSuffix(name, ".lua") || strings.HasSuffix(name, "/")
			if !isFile || strings.ContainsAny(name, " *") || strings.Contains(name, "NAME") {
				continue
			}
			exists, from := false, folders
			if strings.Contains(strings.TrimSuffix(name, "/"), "/") {
				from = append([]string{"."}, folders...)
			}
			for _, folder := range from {
				_, err := fs.Stat(tree, path.Join(folder, name))
				exists = exists || err == nil
			}
			if !exists {
				wrong = append(wrong, name)
			}
		}
	}
	for name := range floors {
		if short := path.Base(name); name != "." && short != "..." && !named[name] && !named[short] {
			unnamed = append(unnamed, name)
		}
	}
	return wrong, unnamed
}
