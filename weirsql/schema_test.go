package weirsql

import (
	"strings"
	"testing"
)

// TestScript: the settings of a schema change nothing but what they name.
func TestScript(t *testing.T) {
	plain, err := Schema{}.Script()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(plain, "\n")
	differ := func(s Schema) (all []string) {
		t.Helper()
		text, err := s.Script()
		if err != nil {
			t.Fatal(err)
		}
		others := strings.Split(text, "\n")
		if len(others) != len(lines) {
			t.Fatalf("%+v: %d lines and %d", s, len(others), len(lines))
		}
		for i := range lines {
			if lines[i] != others[i] {
				all = append(all, lines[i])
			}
		}
		return all
	}
	for _, line := range differ(Schema{Clock: "(SELECT us FROM clock)"}) {
		if strings.Count(line, "clock_timestamp()") != 1 {
			t.Errorf("with a test's clock this line differs: %s", line)
		}
	}
	if text, _ := (Schema{Clock: "x"}).Script(); strings.Contains(text, "clock_timestamp") {
		t.Error("a line still reads the server's clock")
	}
	for _, line := range differ(Schema{Unlogged: true}) {
		if !strings.HasPrefix(line, "CREATE TABLE") {
			t.Errorf("with unlogged tables this line differs: %s", line)
		}
	}
	if text, _ := (Schema{Name: "limits_eu"}).Script(); schemaWord.MatchString(text) {
		t.Error("another schema's script names this one")
	}
	if text, _ := (Schema{Name: "user"}).Script(); strings.Contains(text, " user.") || !strings.Contains(text, `"user".ask(`) {
		t.Error("a name that is a word of SQL is not quoted")
	}
	for _, name := range []string{"Weir", "a b", "a;b", `a"b`, "1a", strings.Repeat("a", 64), "pg_weir"} {
		if _, err := (Schema{Name: name}).Script(); err == nil {
			t.Errorf("%q is taken for a name", name)
		}
	}
}
