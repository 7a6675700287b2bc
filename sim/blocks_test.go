package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// TestMemoryIsUsedAgain: no report has texts of memory that was given back to be read into again.
func TestMemoryIsUsedAgain(t *testing.T) {
	const lines = 30_000 // more than a window
	common := bytes.Split(bytes.TrimSpace(accessLog(lines, false)), []byte("\n"))
	late := slices.Clone(common)
	for i := 0; i+50 < lines; i += 97 {
		late[i], late[i+50] = late[i+50], late[i]
	}
	object := make([][]byte, lines)
	for i := range object {
		object[i] = fmt.Appendf(nil, `{"time":"%s","client_ip":"10.0.%d.%d","method":"GET","uri":"/a/%d\u00e9?q=%d","status":%d,"headers":{"User-Agent":"agent \"%d\"","X-User":"u%d"}}`,
			time.Unix(1_700_000_000+int64(i)/100, 0).UTC().Format(time.RFC3339), i%7, i%113, i%31, i, 200+i%300, i%19, i%53)
	}
	limits := []policy.Limit{
		{Name: "client", Key: []string{"client.ip"}, Limit: weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 3}},
		{Name: "agent", Key: []string{"header.User-Agent", "path"}, Limit: weir.FixedWindow{Limit: 40, Window: time.Minute}},
		{Name: "user", Key: []string{"header.X-User"}, Limit: weir.SlidingLog{Limit: 9, Window: time.Minute}, Shadow: true},
	}
	p := policy.Policy{Limits: limits, Routes: []policy.Route{{Match: "/", Limits: []string{"client", "agent", "user"}}}}
	for name, log := range map[string][][]byte{"in order": common, "a little late": late, "JSON": object} {
		t.Run(name, func(t *testing.T) {
			text := bytes.Join(log, []byte("\n"))
			run := func(poison bool) string {
				o := Options{Policy: p, Inputs: []Input{{"log", bytes.NewReader(text)}}, Profiles: true, poison: poison}
				r, err := Replay(t.Context(), o)
				if err != nil {
					t.Fatal(err)
				}
				report, err := json.Marshal(r)
				if err != nil {
					t.Fatal(err)
				}
				o.Inputs[0].R = bytes.NewReader(text)
				compared, err := Compare(t.Context(), o, policy.Policy{Limits: limits[:1], Routes: []policy.Route{{Match: "/", Limits: []string{"client"}}}})
				if err != nil {
					t.Fatal(err)
				}
				o.Inputs[0].R = bytes.NewReader(text)
				suggested, err := Suggest(t.Context(), o, []float64{90})
				if err != nil {
					t.Fatal(err)
				}
				return fmt.Sprintf("%s\n%+v\n%+v\n%+v", report, r.Doing, *compared, *suggested)
			}
			got, want := run(true), run(false)
			if got != want {
				t.Errorf("with memory that is overwritten:\n%.2000s\nwithout:\n%.2000s", got, want)
			}
			if strings.Contains(got, "!!!") || !strings.Contains(want, `"limited"`) {
				t.Errorf("%.2000s", got)
			}
		})
	}
}
