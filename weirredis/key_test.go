package weirredis

import (
	"fmt"
	"strings"
	"testing"
)

func open(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := New(nil, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestKeys(t *testing.T) {
	s := open(t, Options{})
	for key, want := range map[string]string{
		"alice":                  "weir:{alice}:api",
		"":                       "weir:{~}:api",
		"~":                      "weir:{%7E}:api",
		"a{b}c%":                 "weir:{a%7Bb%7Dc%25}:api",
		"\x00\xff":               "weir:{\x00\xff}:api",
		strings.Repeat("x", 512): "weir:{" + strings.Repeat("x", 512) + "}:api",
	} {
		if got := s.key("api", key); got != want {
			t.Errorf("%q is at %q, not at %q", key, got, want)
		}
	}
	long, longer := s.key("api", strings.Repeat("x", 513)), s.key("api", strings.Repeat("x", 1<<16))
	if len(long) != len("weir:{~}:api")+64 || len(longer) != len(long) || long == longer {
		t.Errorf("%q, %q", long, longer)
	}
	tagged := open(t, Options{Tag: func(name, key string) string { return key[:1] }})
	if a, b := tagged.key("api", "xa"), tagged.key("api", "xb"); a != "weir:{x}:api:xa" || slotOf(a) != slotOf(b) || a == b {
		t.Errorf("%q, %q", a, b)
	}
}

// TestTagsKeepKeysApart: no two states share a key in Redis, whether they are kept under their own
// keys or under tags.
func TestTagsKeepKeysApart(t *testing.T) {
	s := open(t, Options{Tag: func(name, key string) string {
		switch {
		case strings.HasPrefix(name, "x"):
			return "one"
		case strings.HasPrefix(name, "a"):
			return key + "b"
		}
		return key
	}})
	seen := map[string]string{}
	for _, name := range []string{"a", "a:b", "a%3Ab", "b", "x", "x:one", "x:", "n", "n:one", "n:x:one"} {
		for _, key := range []string{"", "~", "one", "on", "oneb", "b", ":b", "a:b", "one}:x", "x:one", "%7E", "one:one"} {
			at := s.key(name, key)
			if other, ok := seen[at]; ok {
				t.Errorf("%q of %q is where %s is: %q", name, key, other, at)
			}
			seen[at] = fmt.Sprintf("%q of %q", name, key)
		}
	}
	for _, prefix := range []string{"a{", "weir:limit:", "hold:"} {
		if _, err := New(nil, Options{Prefix: prefix}); err == nil {
			t.Errorf("the prefix %q is taken", prefix)
		}
	}
}

// TestSlots has slots from the specification of Redis Cluster, and from CLUSTER KEYSLOT.
func TestSlots(t *testing.T) {
	for tag, want := range map[string]uint16{"123456789": 0x31c3, "user1000": 3443, "foo": 12182, "somekey": 11058} {
		if got := slotOf("weir:{" + tag + "}:api"); got != want {
			t.Errorf("%q is in slot %d, not %d", tag, got, want)
		}
	}
}

// FuzzKeys: two keys never share a state, and no key changes the slot of another part of the key.
func FuzzKeys(f *testing.F) {
	f.Add("a", "{a}")
	f.Add("~", "")
	f.Add("%7E", "~")
	f.Fuzz(func(t *testing.T, a, b string) {
		s := open(t, Options{})
		ka, kb := s.key("n", a), s.key("n", b)
		if (a == b) != (ka == kb) {
			t.Fatalf("%q is at %q, %q at %q", a, ka, b, kb)
		}
		if strings.Count(ka, "{") != 1 || strings.Count(ka, "}") != 1 || strings.Contains(ka, "{}") {
			t.Fatalf("%q is at %q", a, ka)
		}
	})
}
