package weirhttp

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/policy"
)

// FuzzReport: whatever a server writes into its fields, what is read of it is within bounds.
func FuzzReport(f *testing.F) {
	f.Add(429, "Retry-After", "120", "Date", "Wed, 21 Oct 2015 07:28:00 GMT")
	f.Add(429, "Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT", "Date", "Wed, 21 Oct 2015 07:27:00 GMT")
	f.Add(200, "Ratelimit", `"a\"b";r=1;t=2, c;r=3`, "Ratelimit-Policy", `"a\"b";q=10;w=60`)
	f.Add(200, "Ratelimit", "limit=100, remaining=50, reset=5", "", "")
	f.Add(403, "X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", "1445412480")
	f.Add(200, "X-Ratelimit-Remaining-Tokens", "0", "X-Ratelimit-Reset-Tokens", "6m0s")
	f.Add(529, "Anthropic-Ratelimit-Tokens-Remaining", "1e400", "Anthropic-Ratelimit-Tokens-Reset", "2015-10-21T07:28:00Z")
	f.Fuzz(func(t *testing.T, status int, name1, value1, name2, value2 string) {
		h := http.Header{http.CanonicalHeaderKey(name1): {value1}}
		h[http.CanonicalHeaderKey(name2)] = append(h[http.CanonicalHeaderKey(name2)], value2)
		r := reportOf(&http.Response{StatusCode: status, Header: h})
		if r.Pause < 0 || r.Pause > 0 && !r.Refused || len(r.Quotas) > mostFields+1+len(triples) {
			t.Fatalf("%+v", r)
		}
		for _, q := range r.Quotas {
			if q.Limit < 0 || q.Remaining < 0 || q.Reset < 0 {
				t.Fatalf("%+v", q)
			}
		}
	})
}

// TestOwnFieldsAreRead: what our middleware writes, the Transport reads, for names with any bytes.
func TestOwnFieldsAreRead(t *testing.T) {
	rng := seeds.Of(t.Name())
	const letters = `ab",;=\ r0`
	for range 5000 {
		var asked []policy.Evaluated
		for i := range 1 + rng.IntN(4) {
			var name strings.Builder
			name.WriteString(strconv.Itoa(i)) // a limit has one name
			for range rng.IntN(8) {
				name.WriteByte(letters[rng.IntN(len(letters))])
			}
			name.WriteByte('.')
			asked = append(asked, policy.Evaluated{Name: name.String(), Limit: 1 + rng.Int64N(1000), Window: time.Duration(rng.IntN(100)) * time.Second,
				Decision: weir.Decision{Allowed: true, Remaining: rng.Int64N(1000), ResetAfter: time.Duration(rng.IntN(100)) * time.Second}})
		}
		h := http.Header{}
		SetRateLimit(h, asked)
		read := quotasOf(h, time.Now())
		if len(read) != len(asked) {
			t.Fatalf("%v: %+v", h, read)
		}
		for i, q := range read {
			a := asked[i]
			if q.Name != a.Name || q.Limit != a.Limit || q.Remaining != a.Decision.Remaining || q.Reset != a.Decision.ResetAfter {
				t.Fatalf("%v: %+v is read as %+v", h, a, q)
			}
		}
	}
}
