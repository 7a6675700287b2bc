package weirmemcached

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/weirflow/weir/weirkv"
)

// TestParseURL: servers have their default port, and one order, whatever the order of the URL.
func TestParseURL(t *testing.T) {
	for url, want := range map[string][]string{
		"memcached://b,a:1": {"a:1", "b:11211"}, "memcached://a:1,b:11211/": {"a:1", "b:11211"}, "memcached://[::1]": {"[::1]:11211"},
		"memcached://127.0.0.1:2,127.0.0.1:2": {"127.0.0.1:2"}, "memcached:///run/m.sock": {"/run/m.sock"},
	} {
		if got, err := ParseURL(url); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q %v, want %q", url, got, err, want)
		}
	}
	for _, url := range []string{"", "memcached://", "redis://a", "memcached://u:p@a", "memcached://a/b", "memcached://a?x=1", "memcached://a,,b", "memcached://a:x"} {
		if got, err := ParseURL(url); err == nil {
			t.Errorf("%s is accepted: %q", url, got)
		}
		if s, err := Open(url, weirkv.Options{}); err == nil {
			t.Errorf("%s is opened", url)
			_ = s.Close()
		}
	}
}

// TestExpiration: a key lives for its time at least, and memcached never reads it as a time in 1970.
func TestExpiration(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for ttl, want := range map[time.Duration]int32{
		time.Second: 3, 1500 * time.Millisecond: 3, 29 * 24 * time.Hour: 29*86400 + 2,
		30 * 24 * time.Hour: 1_800_000_000 + 30*86400 + 2, 36500 * 24 * time.Hour: 0, math.MaxInt64: 0,
	} {
		if got := expiration(ttl, now); got != want {
			t.Errorf("%v: %d, want %d", ttl, got, want)
		}
	}
}
