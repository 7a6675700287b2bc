package weirredis_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirredis"
)

func TestParseURL(t *testing.T) {
	for text, want := range map[string]weirredis.Address{
		"redis://127.0.0.1":            {Hosts: []string{"127.0.0.1:6379"}},
		"redis://localhost:7000/3":     {Hosts: []string{"localhost:7000"}, DB: 3},
		"REDIS://[::1]/":               {Hosts: []string{"[::1]:6379"}},
		"redis://[::1]:7000":           {Hosts: []string{"[::1]:7000"}},
		"redis://:secret@h":            {Hosts: []string{"h:6379"}, Password: "secret"},
		"redis://weir:p%40%2Fs@h/1":    {Hosts: []string{"h:6379"}, User: "weir", Password: "p@/s", DB: 1},
		"redis://weir:p@ss:w@h":        {Hosts: []string{"h:6379"}, User: "weir", Password: "p@ss:w"},
		"unix:///run/redis/redis.sock": {Socket: "/run/redis/redis.sock"},
		"unix://weir:pw@/r.sock?db=2":  {Socket: "/r.sock", User: "weir", Password: "pw", DB: 2},
		"rediss://h?ca_file=%2Fca.pem&server_name=redis.example&cert_file=/c&key_file=/k": {
			Hosts: []string{"h:6379"}, TLS: true, CAFile: "/ca.pem", ServerName: "redis.example", CertFile: "/c", KeyFile: "/k"},
		"redis://weir@h?password_file=/run/secrets/redis&client_name=shop&dial_timeout=500ms": {
			Hosts: []string{"h:6379"}, User: "weir", PasswordFile: "/run/secrets/redis", ClientName: "shop", DialTimeout: 500 * time.Millisecond},
		"redis+sentinel://weir:pw@a,b:1,[::1]:2/primary/4?sentinel_user=s&sentinel_password=q%26": {
			Mode: weirredis.Sentinel, Hosts: []string{"a:26379", "b:1", "[::1]:2"}, Master: "primary", DB: 4,
			User: "weir", Password: "pw", SentinelUser: "s", SentinelPassword: "q&"},
		"rediss+sentinel://a/primary": {Mode: weirredis.Sentinel, Hosts: []string{"a:26379"}, Master: "primary", TLS: true},
		"redis+cluster://a,b:7001/0":  {Mode: weirredis.Cluster, Hosts: []string{"a:6379", "b:7001"}},
		"rediss+cluster://:pw@a:7000": {Mode: weirredis.Cluster, Hosts: []string{"a:7000"}, TLS: true, Password: "pw"},
	} {
		if got, err := weirredis.ParseURL(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v", text, fields(got), err)
		}
	}
}

// fields prints an address with all that it hides.
func fields(a weirredis.Address) string {
	type bare weirredis.Address
	return fmt.Sprintf("%+v", bare(a))
}

// TestWrongURLs: the error says what is wrong, and never contains what could be a password.
func TestWrongURLs(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "no scheme",
		"127.0.0.1:6379":                        "no scheme",
		"http://secret@h":                       `"http" is not the scheme`,
		"redi://h":                              `did you mean "redis"?`,
		"redis://":                              "empty host",
		"redis://:secret@":                      "empty host",
		"redis://a,b":                           "2 hosts",
		"redis+sentinel://a":                    "does not name the master",
		"redis+cluster://a,,b":                  "empty host",
		"redis+cluster://a/1":                   "has one, 0",
		"redis://weir:secret":                   `port of host "weir"`,
		"redis://h:0":                           "not a number from 1 to 65535",
		"redis://h:70000":                       "not a number from 1 to 65535",
		"redis://::1":                           "write it like [::1]:6379",
		"redis://h/secret":                      "not a number",
		"redis://h/-1":                          "not a number",
		"redis://weir:sec/secret@h":             "%2F",
		"redis://weir:sec?secret@h":             "%3F",
		"redis://weir:sec#secret@h":             "%23",
		"redis://weir:sec%secret@h":             "%25",
		"redis://h?ca_file=x":                   "begin the URL with rediss",
		"rediss://h?skip_verify=true":           "a server is always verified",
		"rediss://h?ca_fil=x":                   `did you mean "ca_file"?`,
		"rediss://h?cert_file=x":                "without the other",
		"redis://h?client_name=a&client_name=b": "2 times",
		"redis://h?client_name=":                "or empty",
		"redis://h?client_name=a+b":             "has a space",
		"redis://h?dial_timeout=5":              "not a duration",
		"redis://h?dial_timeout=-5s":            "not a duration",
		"redis://:secret@h?password_file=x":     "a password and a file with one",
		"redis+sentinel://h/m?sentinel_password=%secret": "%25",
		"unix://h/x":          "has a host",
		"unix://":             "names no socket",
		"unix:///x?db=secret": "not a number",
	} {
		_, err := weirredis.ParseURL(text)
		var wrong *weirredis.URLError
		if !errors.As(err, &wrong) || wrong.Fix == "" || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestAddressesHidePasswords: however an address is printed.
func TestAddressesHidePasswords(t *testing.T) {
	for text, want := range map[string]string{
		"rediss://weir:secret@h:7/2?client_name=x":                          "rediss://h:7/2",
		"redis+sentinel://weir:secret@a,b/primary?sentinel_password=secret": "redis+sentinel://a:26379,b:26379/primary/0",
		"redis+cluster://weir:secret@a,b":                                   "redis+cluster://a:6379,b:6379",
		"unix://weir:secret@/r.sock":                                        "unix:///r.sock",
	} {
		a, err := weirredis.ParseURL(text)
		if err != nil {
			t.Error(err)
		}
		for _, verb := range []string{"%v", "%s", "%+v", "%#v"} {
			if got := fmt.Sprintf(verb, a); got != want {
				t.Errorf("%s: %s", verb, got)
			}
			if got := fmt.Sprintf(verb, &a); got != want {
				t.Errorf("%s of a pointer: %s", verb, got)
			}
		}
	}
}

// FuzzParseURL: no text makes it panic, and no error contains text from where a password may be.
func FuzzParseURL(f *testing.F) {
	for _, seed := range []string{"redis://u:p@h:1/2?client_name=x", "redis+sentinel://:p@a,[::1]:2/m/1", "unix://:p@/x?db=1", "rediss+cluster://a,b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := weirredis.ParseURL(text)
		if err == nil && len(a.Hosts) == 0 && a.Socket == "" {
			t.Errorf("%q goes nowhere", text)
		}
		const secret = "Xy7-secret-9zQ"
		for _, url := range []string{"redis://u:" + secret + text + "@h", "redis+sentinel://u:" + text + secret + "@h/m" + text} {
			if a, err := weirredis.ParseURL(url); err != nil && strings.Contains(err.Error(), secret) || strings.Contains(a.String(), secret) {
				t.Errorf("%q: %v, %v", url, a, err)
			}
		}
	})
}

func TestCheck(t *testing.T) {
	if err := weirredis.Check(weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}); err != nil {
		t.Error(err)
	}
	if err := weirredis.Check(weir.TokenBucket{Rate: weir.PerSecond(1e9), Burst: 1 << 54}); err == nil || !strings.Contains(err.Error(), "more than Redis can count") {
		t.Error(err)
	}
}
