package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/weirflow/weir"
)

// TestRollOutInReports: the report has both groups, and JSON has them under one name.
func TestRollOutInReports(t *testing.T) {
	p := perClient(weir.TokenBucket{Rate: weir.PerDay(1), Burst: 1})
	p.Limits[0].RollOut = "40%"
	var log strings.Builder
	for second := range 2 {
		for i := range 200 {
			log.WriteString(logLine(fmt.Sprintf("10.0.0.%d", i), second, "/"))
		}
	}
	r, decisions := run1(t, Options{Policy: p}, log.String())
	refused := int64(strings.Count(decisions, "deny"))
	if len(r.Limits) != 2 || r.Limits[0].Rest || !r.Limits[1].Rest || r.Limits[0].Limited != refused || r.Limited != refused || r.Limits[1].Limited != 200-refused || r.Limits[0].ClientsLimited != refused || r.Limits[1].ClientsLimited != 200-refused || r.Clients.Limited != refused || refused < 40 || refused > 120 {
		t.Errorf("%d were refused: %+v", refused, r.Limits)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	type group struct{ Allowed, Limited int64 }
	var got struct {
		Limits map[string]struct {
			group
			Rest group
		}
	}
	if err := json.Unmarshal(text, &got); err != nil || bytes.Count(text, []byte(`"per-client":{`)) != 1 {
		t.Fatalf("%v: %s", err, text)
	}
	if l := got.Limits["per-client"]; l.Rest.Limited != 200-refused || l.Rest.Allowed != 200-refused {
		t.Errorf("%s", text)
	}
	var b strings.Builder
	if err := r.WriteText(&b); err != nil || !strings.Contains(b.String(), "shadow, beyond its roll_out") {
		t.Errorf("%v: %s", err, b.String())
	}
}
