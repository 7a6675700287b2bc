package main

import (
	"strings"
	"testing"
)

// TestLimitUsage: wrong usage is an error before any call of Redis, and no message contains a
// password. proof/redis tests the commands on a real Redis.
func TestLimitUsage(t *testing.T) {
	const nobody = "127.0.0.1:1"
	const url = "redis://weir:s3cret@127.0.0.1:1"
	for _, c := range []struct {
		args, env string
		code      int
		want      string
	}{
		{"limit list", "", 2, "which Redis? Write --redis URL, or put the URL into $WEIR_REDIS"},
		{"limit lst", url, 2, `unknown command "lst"`},
		{"limit " + url, "", 2, "goes behind --redis"},
		{"limit list " + url, "", 2, "goes behind --redis"},
		{"limit take " + url, "", 2, "goes behind --redis"},
		{"limit list --timeout " + url, "", 2, "invalid argument"},
		{"limit list --redis=redis://weir:s3cret/x@127.0.0.1", "", 2, "write / ? # and @"},
		{"limit list --redis=rdis://weir:s3cret@127.0.0.1", "", 2, `did you mean "redis"?`},
		{"limit list", "redis://weir:s3cret", 2, "the port of host"},
		{"limit list --redis redis://weir:s3cret@" + nobody + " --timeout 50ms", "", 1, "not connected to redis://" + nobody},
		{"limit list --timeout 0s", url, 2, "must be positive, like 3s"},
		{"limit list --prefix weir:limit:", url, 2, "end it with another word"},
		{"limit list --redis redis://127.0.0.1:1?password_file=/nowhere", "", 2, "no such file"},
		{"limit take api --redis redis://weir:s3cret@" + nobody + " --timeout 50ms", "", 3, "not connected to redis://" + nobody},
		{"limit take", url, 2, "NAME is missing: write weir limit take NAME [COST]"},
		{"limit take API", url, 2, `"API" is no name of a limit`},
		{"limit take api 1.5", url, 2, `"1.5" is not a cost`},
		{"limit take api -- -1", url, 2, `"-1" is not a cost`},
		{"limit take api 9223372036854775808", url, 2, "is not a cost"},
		{"limit init api", url, 2, "ALGORITHM is missing: write weir limit init NAME ALGORITHM FIELD=VALUE..."},
		{"limit init api token_bucket rate", url, 2, `"rate" is not of the form FIELD=VALUE`},
		{"limit init api token_bucket rate=1/s rate=2/s", url, 2, "rate is given twice"},
		{"limit init api token_bucket rate=1/s brust=2", url, 2, `did you mean "burst"?`},
		{"limit init api tokn_bucket", url, 2, `there is no algorithm "tokn_bucket" (did you mean "token_bucket"?)`},
		{"limit init api token_bucket rate=0/s burst=1", url, 2, "lets nothing pass"},
		{"limit init api fixed_window limit=3 align=day", url, 2, "know no calendars"},
		{"limit init api concurrency limit=3", url, 2, "entered and left"},
		{"limit init api nginx_bucket rate=1/s", url, 2, "cannot be kept in Redis"},
		{"limit inspect api --client ann --clients", url, 2, "exclude each other"},
		{"limit init api token_bucket rate=10 burst=2", url, 2, "rate=10 is a rate without its duration: write rate=10/s"},
		{"limit delete", url, 2, "NAME is missing"},
	} {
		t.Setenv(redisVariable, c.env)
		code, out, errs := weir(t, "", strings.Fields(c.args)...)
		if code != c.code || out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("weir %s: %d %q %q, want %q", c.args, code, out, errs, c.want)
		}
		if strings.Contains(errs, "s3cret") {
			t.Errorf("weir %s: the password is repeated: %q", c.args, errs)
		}
	}
}

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{"ann": "ann", "10.0.0.1": "10.0.0.1", "\x1b[2J": `"\x1b[2J"`, "a\nb": `"a\nb"`, "ünïcode": "ünïcode", "\xff": `"\xff"`} {
		if got := printable(text); got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
}
