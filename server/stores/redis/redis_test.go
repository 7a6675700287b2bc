package redis

import (
	"slices"
	"strings"
	"testing"

	"github.com/weirflow/weir/policy"
)

// TestLocate: which URLs locate the same states.
func TestLocate(t *testing.T) {
	for _, c := range []struct {
		from, to string
		same     bool
	}{
		{"redis://h", "rediss://user:pass@h/0?ca_file=x", true},
		{"redis://h", "redis://h:6379", true},
		{"redis://h", "redis://h:6380", false},
		{"redis://h", "redis://h/1", false},
		{"redis://h", "redis://g", false},
		{"redis://h", "redis+cluster://h", false},
		{"redis+sentinel://a,b/main", "redis+sentinel://b,c/main", true},
		{"redis+sentinel://a,b/main", "redis+sentinel://a,b/other", false},
		{"redis+cluster://a,b", "redis+cluster://c", false},
		{"redis+cluster://127.0.0.1", "rediss+cluster://user:a%2Fb@10.0.0.1,127.0.0.1?client_name=x", true},
		{"unix:///run/a?db=1", "unix:///run/a?db=2", false},
		{"unix:///run/a", "unix://u:p@/run/a", true},
	} {
		from, to := locate(c.from), locate(c.to)
		shared := slices.ContainsFunc(strings.Split(from.Hosts, ","), func(h string) bool { return slices.Contains(strings.Split(to.Hosts, ","), h) })
		if got := from.Rest == to.Rest && shared; got != c.same {
			t.Errorf("%s leads to %+v, %s to %+v: the same is %v", c.from, from, c.to, to, got)
		}
		if from.Slots != strings.Contains(c.from, "+cluster") {
			t.Errorf("%s: %+v", c.from, from)
		}
	}
}

// TestCheck: an invalid URL, and a prefix whose keys would collide with those of something else.
func TestCheck(t *testing.T) {
	for def, want := range map[policy.Store]string{
		{URL: "redis://h"}:                             "",
		{URL: "redis://h/x"}:                           "url",
		{URL: "redis://h", Prefix: "shop:limit:"}:      "prefix",
		{URL: "redis://h?insecure=1", Prefix: "hold:"}: "url prefix",
	} {
		var fields []string
		for _, p := range check(def) {
			fields = append(fields, p.Field)
		}
		if got := strings.Join(fields, " "); got != want {
			t.Errorf("%+v: %q, want %q", def, got, want)
		}
	}
}
