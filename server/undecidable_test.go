package server

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite"
)

// TestDamagedValue: a key whose value in the store is damaged is refused, whatever on_failure says, and
// operators and clients learn why. The other keys are not affected.
func TestDamagedValue(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "limits.db")
	path := filepath.Join(dir, "policy.yaml")
	write(t, path, strings.ReplaceAll(`
listen: { http: "127.0.0.1:0", admin: "127.0.0.1:0" }
stores:
  shared: { url: "sqlite:FILE", on_failure: allow }
limits:
  per-user: { key: header.x-user, token_bucket: { rate: 6/d, burst: 6 }, store: shared }
`, "FILE", file))
	r := serve(t, Options{Path: path})
	at := "http://" + r.ByFace["http"][0]
	type taken struct {
		Allowed bool   `json:"allowed"`
		Problem string `json:"store_problem"`
		Text    string `json:"text"`
		Usage   []struct {
			Problem string `json:"store_problem"`
		} `json:"usage"`
	}
	decode := func(res *http.Response, err error) (a taken) {
		t.Helper()
		if err == nil {
			defer res.Body.Close()
			err = json.NewDecoder(res.Body).Decode(&a)
		}
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	take := func(key string) taken {
		t.Helper()
		return decode(http.Post(at+"/v1/take", "application/json", bytes.NewBufferString(`{"limit":"per-user","key":["`+key+`"]}`)))
	}
	if a := take("anna"); !a.Allowed || a.Problem != "" {
		t.Fatalf("%+v", a)
	}
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(`UPDATE states SET value = x'776B09FF', revision = revision + 1 WHERE key LIKE '%anna%'`); err != nil {
		t.Fatal(err)
	}
	const why = "the store works, but cannot decide about the key"
	for range 3 {
		if a := take("anna"); a.Allowed || !strings.Contains(a.Problem, why) {
			t.Errorf("%+v", a)
		}
	}
	if a := take("bert"); !a.Allowed || a.Problem != "" {
		t.Errorf("another key: %+v", a)
	}
	if a := decode(http.Get(at + "/v1/explain?limit=per-user&key=anna")); a.Allowed || !strings.Contains(a.Text, why) || !strings.Contains(a.Problem, why) {
		t.Errorf("explain: %+v", a)
	}
	if a := decode(http.Get(at + "/v1/usage?key=anna")); len(a.Usage) != 1 || !strings.Contains(a.Usage[0].Problem, why) {
		t.Errorf("usage: %+v", a)
	}
	_, text := fetch(t, "http://"+r.Admin+"/metrics")
	for _, want := range []string{
		`weir_limit_store_undecidable_total{limit="per-user"} 3`,
		`weir_limit_store_errors_total{limit="per-user"} 0`,
		`weir_store_up{store="shared"} 1`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if log := r.log.String(); strings.Count(log, "cannot decide about their key") != 1 || strings.Contains(log, "anna") {
		t.Errorf("the log: %s", log)
	}
}
