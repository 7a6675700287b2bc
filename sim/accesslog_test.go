package sim

import (
	"maps"
	"net/http"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/policy"
)

func at(text string) int64 {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	return t.UnixNano()
}

func TestParseLine(t *testing.T) {
	combined := http.Header{"Referer": {"http://a/b"}, "User-Agent": {"Agent/1 (x)"}}
	for line, want := range map[string]Entry{
		`host.example - - [01/Aug/1995:06:00:00 +0000] "GET /a/b.gif HTTP/1.0" 200 1713`: {
			at("1995-08-01T06:00:00Z"), "host.example", "GET", "/a/b.gif", "", -1, nil, Response{}},
		`10.0.0.1 - frank [17/May/2015:12:05:17 -0330] "POST /x?a=b HTTP/1.1" 404 - "http://a/b" "Agent/1 (x)"`: {
			at("2015-05-17T15:35:17Z"), "10.0.0.1", "POST", "/x?a=b", "", -1, combined, Response{}},
		`10.0.0.1 - - [17/May/2015:12:05:17 +0000] "GET /x HTTP/1.1" 200 5 "http://a/b" "cut off`: {
			at("2015-05-17T12:05:17Z"), "10.0.0.1", "GET", "/x", "", -1, http.Header{"Referer": {"http://a/b"}, "User-Agent": {"cut off"}}, Response{}},
		`::1 - - [29/Feb/2024:23:59:60 +0000] "GET / with spaces HTTP/1.1" 200 5`: {
			at("2024-03-01T00:00:00Z"), "::1", "GET", "/ with spaces", "", -1, nil, Response{}},
		`[::1] - some body [01/Jan/2024:00:00:00 +0100] "GET http://shop.example/a?b#c HTTP/1.1" 200 5`: {
			at("2023-12-31T23:00:00Z"), "[::1]", "GET", "/a?b", "shop.example", -1, nil, Response{}},
		`h - - [01/Jan/2024:00:00:00 +0000] "GET /old" 200 5`: {
			at("2024-01-01T00:00:00Z"), "h", "GET", "/old", "", -1, nil, Response{}},
		`h - - [01/Jan/2024:00:00:00 +0000] "GET /a\"b HTTP/1.1" 200 5`: {
			at("2024-01-01T00:00:00Z"), "h", "GET", `/a\"b`, "", -1, nil, Response{}},
		`{"time":"2024-01-01T00:00:00.5Z","client":"10.0.0.1","method":"GET","path":"/x","query":"a=1","host":"h","headers":{"user-id":"7","x":["1","2"]}}`: {
			at("2024-01-01T00:00:00.5Z"), "10.0.0.1", "GET", "/x?a=1", "h", -1, http.Header{"User-Id": {"7"}, "X": {"1", "2"}}, Response{}},
		` {"msec":"1704067200.123","remote_addr":"::1","request":"PUT /x HTTP/1.1","http_user_agent":"a","http_referer":"-","request_length":"42","status":200}`: {
			at("2024-01-01T00:00:00.123Z"), "::1", "PUT", "/x", "", 42, http.Header{"User-Agent": {"a"}}, Response{}},
		`{"ts":1704067200.1234567,"request":{"remote_ip":"10.0.0.9","method":"GET","host":"h","uri":"/x?y","headers":{"A":["b"]}},"status":200}`: {
			at("2024-01-01T00:00:00.1234567Z"), "10.0.0.9", "GET", "/x?y", "h", -1, http.Header{"A": {"b"}}, Response{}},
		`{"@timestamp":1704067200123,"clientip":"c","verb":"GET","request_uri":"/"}`: {
			at("2024-01-01T00:00:00.123Z"), "c", "GET", "/", "", -1, http.Header{}, Response{}},
		`{"time_local":"01/Jan/2024:00:00:00 +0000","client":"c","method":"GET","url":"https://h:8080/a"}`: {
			at("2024-01-01T00:00:00Z"), "c", "GET", "/a", "h:8080", -1, http.Header{}, Response{}},
		`{"ts":1704067200123456789,"client":"c","method":"GET","url":"/"}`: {1704067200123456789, "c", "GET", "/", "", -1, http.Header{}, Response{}},
	} {
		got, err := ParseLine(line)
		got.Response = Response{} // TestResponses
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s\ngot  %+v, %v\nwant %+v", line, got, err, want)
		}
	}
}

func TestInvalidLines(t *testing.T) {
	const head = `h - - [01/Jan/2024:00:00:00 +0000] `
	for line, want := range map[string]string{
		"":                                       "no first field",
		"word":                                   "no first field",
		"h - - \"GET / HTTP/1.0\" 200 5":         "no valid time",
		"h - - [":                                "no valid time",
		"h - - [01/Jan/2024:00:00:00 +0000":      "no valid time",
		"h - - [01/Jan/2024:00:00:00] \"GET /\"": "no valid time",
		strings.Replace(head, "01/Jan", "31/Feb", 1) + `"GET / HTTP/1.0" 200 5`: "no valid time",
		strings.Replace(head, "01/Jan", "00/Jan", 1) + `"GET / HTTP/1.0" 200 5`: "no valid time",
		strings.Replace(head, "Jan", "Foo", 1) + `"GET / HTTP/1.0" 200 5`:       "no valid time",
		strings.Replace(head, "2024", "-024", 1) + `"GET / HTTP/1.0" 200 5`:     "no valid time",
		strings.Replace(head, "2024", "9999", 1) + `"GET / HTTP/1.0" 200 5`:     "year 9999",
		strings.Replace(head, "+0000", "+9900", 1) + `"GET / HTTP/1.0" 200 5`:   "no valid time",
		head:                              "no \"REQUEST\"",
		head + "GET / HTTP/1.0 200":       "no \"REQUEST\"",
		head + `"-" 408 0`:                "not METHOD TARGET",
		head + `"\x16\x03\x01" 400 0`:     "not METHOD TARGET",
		head + `"\x16 \x03" 400 0`:        "not METHOD TARGET",
		head + `"GET  HTTP/1.1" 400 0`:    "no target",
		head + `"GET / HTTP/1.1"`:         "no status",
		head + `"GET / HTTP/1.1" OK 0`:    "no status",
		"{":                               "is not",
		"{}":                              "no time",
		`{"time":true}`:                   "no time",
		`{"time":"yesterday"}`:            "neither RFC 3339",
		`{"time":1e400}`:                  "neither RFC 3339",
		`{"time":99999999999999999999}`:   "out of range",
		`{"time":"9999-01-01T00:00:00Z"}`: "year 9999",
		`{"time":1}`:                      "no client",
		`{"time":1,"client":5,"method":"GET","path":"/"}`:      "no client",
		`{"time":1,"client":"c"}`:                              "no method",
		`{"time":1,"client":"c","method":"GET"}`:               "no target",
		`{"time":1,"client":"c","request":"-"}`:                "not METHOD TARGET",
		`{"time":1,"client":"c","method":"GET","path":["/x"]}`: "no target",
		"{\"time\":1" + strings.Repeat(`,"a":{"b":[`, 100_000): "is not",
	} {
		e, err := ParseLine(line)
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 200 {
			t.Errorf("%.100s: %+v, %v, want one with %q", line, e, err, want)
		}
	}
}

// TestHugeNumbersAreNoTimes: a number with a million digits is not computed before it is refused.
func TestHugeNumbersAreNoTimes(t *testing.T) {
	for _, text := range []string{"1e999999", "1e-999999", "0x1p999999", strings.Repeat("9", 250_000)} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := numberTime(text); err == nil {
			t.Errorf("%.20s is a time", text)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 100_000 {
			t.Errorf("%.20s takes %d bytes", text, n)
		}
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add(`host.example - - [01/Aug/1995:06:00:00 +0000] "GET /a/b.gif HTTP/1.0" 200 1713`)
	f.Add(`10.0.0.1 - frank [17/May/2015:12:05:17 -0330] "POST /x?a=b HTTP/1.1" 404 - "http://a/b" "Agent/1 (x)"`)
	f.Add(`{"ts":1704067200.1234567,"request":{"remote_ip":"10.0.0.9","method":"GET","host":"h","uri":"/x?y","headers":{"A":["b"]}},"status":200}`)
	f.Add(`{"msec":"-1.5","remote_addr":"::1","request":"PUT http://h HTTP/1.1","http_user_agent":"a"}`)
	f.Fuzz(func(t *testing.T, line string) {
		e, err := ParseLine(line)
		if err != nil {
			return
		}
		if e.Client == "" || e.Method == "" || e.Target == "" {
			t.Errorf("%q is read as %+v", line, e)
		}
		p := parser{headers: true, responses: true}
		var it item
		for _, before := range []string{line, `h - - [01/Aug/1995:06:00:00 -0100] "GET / HTTP/1.0" 200 5`} {
			p.parse(before, &it)
			if err := p.parse(line, &it); err != nil || it.at != e.Time || it.client != e.Client || it.target != e.Target {
				t.Errorf("%q after %q: %+v, %v; alone %+v", line, before, it, err, e)
			}
		}
		l := layout{fields: slices.Sorted(maps.Keys(e.Header)), responses: true}
		path, query1, _ := strings.Cut(e.Target, "?")
		want := policy.Request{Method: e.Method, Host: e.Host, Path: path, Query: query1, Client: policy.ClientKeyOf(e.Client), Length: e.Length, Estimate: max(e.Response.Estimate, -1)}
		if l.headers() {
			want.Header = e.Header
		}
		var kept, direct query
		l.read(string(l.append(nil, 300, &it)), &kept)
		l.query(&it, &direct)
		for _, q := range []query{kept, direct} {
			if !reflect.DeepEqual(q.req, want) || q.res != e.Response {
				t.Errorf("%q is kept as %+v, %+v, want %+v, %+v", line, q.req, q.res, want, e.Response)
			}
		}
		if kept.line != 300 {
			t.Errorf("line %d", kept.line)
		}
	})
}
