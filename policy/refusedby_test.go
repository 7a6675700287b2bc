package policy

import (
	"reflect"
	"testing"
)

// TestRefusedBy: a limit's status replaces that of its routes and their redirect, and nothing else.
func TestRefusedBy(t *testing.T) {
	p := &Policy{Limits: []Limit{{Name: "plain"}, {Name: "busy", Status: 503}, {Name: "elsewhere", Status: 503}}}
	for name, c := range map[string]struct {
		limits []string
		of     Refused
		want   map[string]Refused
	}{
		"no status of its own": {[]string{"plain"}, Refused{Status: 403}, nil},
		"a status":             {[]string{"plain", "busy"}, Refused{Status: 403, Body: "wait", Type: "text/plain"}, map[string]Refused{"busy": {Status: 503, Body: "wait", Type: "text/plain"}}},
		"a redirect":           {[]string{"busy"}, Refused{Redirect: "/queue"}, map[string]Refused{"busy": {Status: 503}}},
	} {
		if got := p.RefusedBy(&Route{Limits: c.limits, Refused: c.of}); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
