package nginx

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/weirflow/weir/server/policyfile"
)

var update = flag.Bool("update", false, "rewrite what the golden files expect")

// TestImport compares the policy of a large configuration, and its notes, with golden files. The
// policy is valid.
func TestImport(t *testing.T) {
	for name, o := range map[string]Options{"shop": {}, "shop-arithmetic": {Arithmetic: true, Gateway: "127.0.0.1:0", Admin: "127.0.0.1:0"}} {
		result, err := Import(Disk(), "testdata/shop.conf", o)
		if err != nil {
			t.Fatal(err)
		}
		notes := ""
		for _, n := range result.Notes {
			notes += n.String() + "\n"
		}
		golden(t, "testdata/"+name+".yaml", string(result.Policy))
		golden(t, "testdata/"+name+".notes", notes)
		if _, err := policyfile.Parse("policy.yaml", result.Policy); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}

// TestImportErrors: what nginx would refuse is refused, with its position.
func TestImportErrors(t *testing.T) {
	for text, want := range map[string]string{
		"http { limit_req_zone $uri rate=1r/s; }":                                                                      `f:1:8: error: limit_req_zone: the zone is missing`,
		"http { limit_req_zone $uri zone=a rate=1r/s; }":                                                               `"zone=a" has no name or no size`,
		"http { limit_req_zone $uri zone=a:1m rate=1r/h; }":                                                            `"1r/h" is not a rate`,
		"http { limit_req_zone $uri zone=a:1m rate=0r/s; }":                                                            `"0r/s" is not a rate`,
		"http { limit_req_zone $uri zone=a:1m burst=3; }":                                                              `there is no parameter "burst=3"`,
		"http { limit_req_zone $uri zone=a:1m; }":                                                                      `the rate is missing`,
		"http { limit_req_zone $uri zone=a:1m rate=1r/s rate=2r/s; }":                                                  `a parameter is there twice`,
		"http { limit_req_zone $uri zone=a:1m rate=1r/s; limit_req zone=a burst=1 burst=2 nodelay; }":                  `it has 4 arguments`,
		"http { limit_conn_zone $uri zone=a:1m rate=1r/s; }":                                                           `there is no parameter "rate=1r/s"`,
		"http { limit_conn_zone $uri zone=a:1m;\n limit_conn_zone $uri zone=a:1m; }":                                   `f:2:2: error: limit_conn_zone: the zone "a" is there already, in f:1:8`,
		"http { limit_req zone=a; }":                                                                                   `there is no zone "a"`,
		"http { limit_req_zone $uri zone=a:1m rate=1r/s; limit_conn a 1; }":                                            `there is no zone "a"`,
		"http { limit_req_zone $uri zone=a:1m rate=1r/s; server { location / { limit_req zone=a burst=0; } } }":        `"0" is not a number of requests`,
		"http { limit_req_zone $uri zone=a:1m rate=1r/s; server { location / { limit_req zone=a x=0; } } }":            `there is no parameter "x=0"`,
		"http { limit_req_zone $uri zone=a:1m rate=1r/s; server { limit_req zone=a; limit_req zone=a burst=1; } }":     `the zone "a" is there twice`,
		"http { limit_conn_zone $uri zone=a:1m; server { limit_conn a 0; } }":                                          `"0" is not a number of connections`,
		"http { limit_conn_zone $uri zone=a:1m; server { limit_conn a; } }":                                            `it has 1 arguments`,
		"http { limit_req_status 200; }":                                                                               `"200" is not a status`,
		"http { server { limit_conn_status many; } }":                                                                  `"many" is not a status`,
		"http { limit_req_log_level debug; }":                                                                          `"debug" is not known`,
		"http { server { location / { limit_conn_dry_run yes; } } }":                                                   `"yes" is not known`,
		"http { upstream { server a; } }":                                                                              `it has no name, or no block`,
		"http {\n limit_req_zone $uri zone=a:1m rate=1r/s;\n server {\n  location / { limit_req zone=b burst=1; } } }": `f:4:16: error: limit_req: there is no zone "b"`,
	} {
		_, err := Import(memory{"f": text}, "f", Options{})
		var wrong *Error
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n got %v\nwant %s", text, err, want)
		}
	}
}

// TestKeys: nginx's keys as key parts of a policy.
func TestKeys(t *testing.T) {
	for _, c := range []struct {
		text, want string
		mayEmpty   bool
	}{
		{"$binary_remote_addr", "client.ip", false},
		{"$remote_addr$server_name", "client.ip const.s.example", false},
		{"$server_name", "const.s.example", false},
		{"${host}:$uri/$request_method", "host path method", false},
		{"$request_uri", "uri", false},
		{"$http_user_agent", "header.user-agent", true},
		{"$arg_a$cookie_b", "query.a cookie.b", true},
		{"x$arg_a", "const.x query.a", false},
		{"x$arg_a$host", "query.a host", false},
		{"all of them", "const.all of them", false},
		{"", "", true},
		{"$nothing", "!a key cannot be $nothing", false},
		{"$http_", "!a key cannot be $http_", false},
		{"$", `!"$" has a $ without a variable`, false},
		{"a${b", `!"a${b" has a ${ without its }`, false},
		{"${a-b}", `!"${a-b}" has a $ without a variable`, false},
	} {
		k := parseKey(c.text, "s.example")
		got := strings.Join(k.parts, " ")
		if why, ok := strings.CutPrefix(c.want, "!"); ok {
			if !strings.HasPrefix(k.why, why) {
				t.Errorf("%q: %+v, want %s", c.text, k, why)
			}
			continue
		}
		if k.why != "" || got != c.want || k.mayEmpty != c.mayEmpty || k.empty != (c.want == "") {
			t.Errorf("%q: %+v, want %q", c.text, k, c.want)
		}
	}
	if k := parseKey("$server_name", ""); !k.empty {
		t.Errorf("a server without a name: %+v", k)
	}
}

// TestInheritance: limits are inherited only by a level that has none; other directives one by one.
func TestInheritance(t *testing.T) {
	const text = `http {
	limit_req_zone $uri zone=a:1m rate=1r/s; limit_req_zone $uri zone=b:1m rate=1r/s; limit_conn_zone $uri zone=c:1m;
	limit_req zone=a; limit_conn c 1; limit_req_status 444; limit_req_log_level info;
	server {
		limit_req_status 455;
		location /inherits/ { proxy_pass http://u; }
		location /own/ { limit_req zone=b; proxy_pass http://u; location /own/inner/ { proxy_pass http://u; } }
		location /conns/ { limit_conn c 2; limit_req_status 466; proxy_pass http://u; }
	} }`
	result, err := Import(memory{"f": text}, "f", Options{})
	if err != nil {
		t.Fatal(err)
	}
	file, err := policyfile.Parse("p", result.Policy)
	if err != nil {
		t.Fatalf("%v\n%s", err, result.Policy)
	}
	var got []string
	for _, r := range file.Policy.Routes {
		if r.Respond.Redirect != "" {
			continue
		}
		got = append(got, fmt.Sprint(r.Match, r.Limits, r.Refused.Status))
	}
	if want := []string{"/own/inner/[b c] 455", "/inherits/[a c] 455", "/conns/[a c-2] 466", "/own/[b c] 455", "/[a c] 455"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// FuzzImport: a configuration is either refused with a position, or becomes a valid policy.
func FuzzImport(f *testing.F) {
	for _, name := range []string{"testdata/shop.conf", "testdata/conf.d/api.conf"} {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
		f.Add("http {" + string(text) + "}")
	}
	f.Add("http{limit_req_zone a zone=1:1 ;server{limit_req zone=1 burst=2147483648;location \"/\\\"\"{proxy_pass http://true;}}}")
	f.Fuzz(func(t *testing.T, text string) {
		result, err := Import(memory{"f": text, "conf.d/x.conf": "server { }"}, "f", Options{Arithmetic: len(text)%2 == 0})
		var wrong *Error
		switch {
		case err == nil:
			if _, err := policyfile.Parse("policy.yaml", result.Policy); err != nil && !strings.Contains(string(result.Policy), "gateway") {
				t.Errorf("%v\n%s", err, result.Policy)
			}
		case !errors.As(err, &wrong) || wrong.Line < 1:
			t.Error(err)
		}
	})
}
