package policyfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
)

func TestWaitingRooms(t *testing.T) {
	f, err := Parse("p.yaml", []byte(`
stores: { shared: { url: "redis://127.0.0.1:6379/0" } }
paths: { ignore_case: false, ignore_trailing_slash: false }
waiting_rooms:
  sale: { admit: 5/2s, burst: 3, inside: 500, idle: 1m, session: 1h, enter_within: 20s, poll_timeout: 90s, max_waiting: 10, joins: 6/m, bind: address,
    secret_file: s, store: shared, on_failure: allow, status: 200, title: T, text: X, language: de,
    opens: 2027-01-15T10:00:00+01:00, pause: true, drain: true, announce: Soon }
  plain: { admit: 1/10s }
routes:
  - { match: /sale/, waiting_room: sale }
  - { match: /, waiting_room: plain }
`))
	if err != nil || len(f.Problems) > 0 {
		t.Fatalf("%v %v", err, f.Problems)
	}
	r := f.Policy.Rooms[0]
	if r.Name != "sale" || r.Admit != (weir.Rate{N: 5, Per: 2 * time.Second}) || r.Burst != 3 || r.Inside != 500 || r.Idle != time.Minute || r.Session != time.Hour ||
		r.EnterWithin != 20*time.Second || r.PollTimeout != 90*time.Second || r.MaxWaiting != 10 || r.Joins != weir.PerMinute(6) || r.Bind != "address" ||
		r.SecretFile != "s" || r.Store != "shared" || r.OnFailure != "allow" || r.Status != 200 || r.Title != "T" || r.Text != "X" || r.Language != "de" ||
		r.Opens != time.Date(2027, 1, 15, 9, 0, 0, 0, time.UTC) || !r.Pause || !r.Drain || r.Announce != "Soon" {
		t.Errorf("%+v", r)
	}
	if f.Policy.Routes[0].Room != "sale" {
		t.Errorf("%+v", f.Policy.Routes[0])
	}
	d := f.Policy.Rooms[1].WithDefaults()
	if d.Burst != 1 || d.Idle != 5*time.Minute || d.Session != 30*time.Minute || d.EnterWithin != time.Minute || d.PollTimeout != 2*time.Minute ||
		d.MaxWaiting != 100000 || d.Joins != weir.PerMinute(60) || d.Bind != "agent" || d.OnFailure != "keep" || d.Status != 503 || d.Inside != 0 {
		t.Errorf("%+v", d)
	}
	s, err := newSchema()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range s.properties([]string{"waiting_rooms", "x"}) {
		if s.describe([]string{"waiting_rooms", "x", name}) == "" {
			t.Errorf("the schema does not say what %s is", name)
		}
	}
}

// TestWrongWaitingRooms: each problem has its position and a fix.
func TestWrongWaitingRooms(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "page.html"), []byte("{{if}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"admit: 1/s, opens: tomorrow":                        `"tomorrow" is not a time with its zone`,
		"admit: 1/s, opens: 2027-01-15T10:00:00":             `is not a time with its zone`,
		"admit: 1/s, opens: 1027-01-15T10:00:00Z":            `is not a time with its zone`,
		"admit: 1/s, announce: " + strings.Repeat("x", 1001): "the announcement has 1001 bytes",
		"admit: 50":                        "fix: admit: 50/s",
		"admit: x":                         "no slash",
		"admit: 1/3ns":                     "beyond what a room counts",
		"admit: 1000000001/s":              "beyond what a room counts",
		"admit: 0/s":                       "p.yaml:3:",
		"admit: 9000000/d, burst: 9000000": "beyond what a room counts",
		"idle: 1s":                         "admit is missing",
		"admit: 1/s, inside: 0":            "0 would admit no visitor",
		"admit: 1/s, inside: 10000001":     "write at most 10000000",
		"admit: 1/s, inside: -1":           "is not how many visitors",
		"admit: 1/s, max_waiting: -1":      "is not how many visitors",
		"admit: 1/s, poll_timeout: 36s":    "write one from 37s to 24h",
		"admit: 1/s, session: 25h":         "write one from 1s to 24h",
		"admit: 1/s, idle: 1ms":            "write one from 1s to 24h",
		"admit: 1/s, joins: 0/m":           "p.yaml:3:",
		"admit: 1/s, bind: adress":         "did you mean address?",
		"admit: 1/s, language: xx":         "is not known here",
		"admit: 1/s, status: 404":          "write 503, 429, 202 or 200",
		"admit: 1/s, on_failure: keep":     "the room is in no store that could fail",
		"admit: 1/s, store: shared":        "stores: { shared: { url: redis://127.0.0.1:6379 } }",
		"admit: 1/s, titel: x":             "did you mean title?",
		"admit: 1/s, page: none.html":      "no such file",
		"admit: 1/s, page: page.html":      "missing value for if",
	} {
		text := "routes: [{ match: /, waiting_room: sale }]\nwaiting_rooms:\n  sale: { " + line + " }\n"
		f, err := Parse(filepath.Join(dir, "p.yaml"), []byte(text))
		var wrong *InvalidError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "p.yaml:3:") {
			t.Errorf("%s: %v, %v", line, err, f.Problems)
		}
	}
	_, err := Parse("p.yaml", []byte("routes: [{ match: /, waiting_room: sal }]\nwaiting_rooms: { sale: { admit: 1/s } }\n"))
	if err == nil || !strings.Contains(err.Error(), `p.yaml:1:36: error: there is no waiting room "sal"`) || !strings.Contains(err.Error(), `did you mean "sale"?`) ||
		!strings.Contains(err.Error(), `warning: no route uses the waiting room "sale"`) {
		t.Errorf("%v", err)
	}
}
