package httpapi

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/weirflow/weir/internal/seeds"
)

// same reports what quickAsking reads otherwise than decode; empty for nothing.
func same(data string) string {
	got, ok := quickAsking([]byte(data))
	if !ok {
		return ""
	}
	var want asking
	if err := decode([]byte(data), &want); err != nil || !reflect.DeepEqual(got, want) {
		return fmt.Sprintf("%q: got %+v, want %+v, %v", data, got, want, err)
	}
	return ""
}

// TestQuickAsking: calls that are written plainly are read quickly, and what is read is what package json
// reads. Everything else is left to that.
func TestQuickAsking(t *testing.T) {
	for data, quick := range map[string]bool{
		`{"limit": "per-user", "key": ["ann"]}`:                                                 true,
		`{"limit":"a","key":["x","y"],"cost":-3,"plan":"pro","max_delay_ms":5,"hold_ms":6}`:     true,
		" {\"limits\" : [ {\"limit\":\"a\",\"key\":[]} ,\n\t{\"cost\": 0, \"key\":[\"\"]} ] } ": true,
		`{}`:                                 true,
		`{"limits":[]}`:                      true,
		`{"limit":"a","limit":"b"}`:          false, // twice
		`{"Limit":"a"}`:                      false, // which package json takes for limit
		`{"limit":"a","LIMIT":"b"}`:          false,
		`{"limits":[{"hold_ms":1}]}`:         false, // unknown there
		`{"limit":null}`:                     false,
		`{"limit":"\u0061"}`:                 false,
		`{"limit":"ä"}`:                      false,
		`{"cost":01}`:                        false,
		`{"cost":1.0}`:                       false,
		`{"cost":1e3}`:                       false,
		`{"cost":1E3}`:                       false,
		`{"cost":1234567890123456789}`:       false,
		`{"cost":-}`:                         false,
		`{"key":["a",]}`:                     false,
		`{"key":["a"],}`:                     false,
		`{"key":"a"}`:                        false,
		`{"limit":"a"} {}`:                   false,
		`{"limit":"a"`:                       false,
		`{"limit":"` + "\x01" + `"}`:         false,
		``:                                   false,
		`[]`:                                 false,
		strings.Repeat(" ", maxQuick) + `{}`: false,
	} {
		if _, ok := quickAsking([]byte(data)); ok != quick {
			t.Errorf("%.80q: %v", data, ok)
		}
		if wrong := same(data); wrong != "" {
			t.Error(wrong)
		}
	}
}

// FuzzQuickAsking: whatever is read quickly, package json reads the same.
func FuzzQuickAsking(f *testing.F) {
	for _, data := range []string{`{"limit": "per-user", "key": ["ann"], "cost": 12}`, `{"limits":[{"limit":"a","key":["x","y"],"plan":"p"},{}],"max_delay_ms":-1,"hold_ms":0}`, `{"key":["\u0000"],"Key":[]}`} {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data string) {
		if wrong := same(data); wrong != "" {
			t.Error(wrong)
		}
	})
}

// TestEncode: answers are written as package json writes them.
func TestEncode(t *testing.T) {
	draw := seeds.Of(t.Name())
	text := func() string {
		return []string{"", "per-user", "envoy/shop/path=%2Fa", "with \"quotes\" and \\", "a\tb\x00", "ä€", "\xff"}[draw.IntN(7)]
	}
	number := func() int64 { return []int64{0, 1, -1, 1234, math.MaxInt64, math.MinInt64}[draw.IntN(6)] }
	wait := func() *int64 {
		if draw.IntN(2) == 0 {
			return nil
		}
		n := number()
		return &n
	}
	yes := func() bool { return draw.IntN(2) == 0 }
	for range 2000 {
		d := &decision{Allowed: yes(), Limit: text(), RetryAfter: wait(), Delay: number(), Limits: []state{}, Reservation: text(), ExpiresAt: text(), Problem: text()}
		for range draw.IntN(3) {
			d.Limits = append(d.Limits, state{text(), yes(), number(), number(), wait(), number(), number(), text(), yes(), yes(), yes()})
		}
		if got, want := string(d.encode()), string(encoded(d)); got != want {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
}
