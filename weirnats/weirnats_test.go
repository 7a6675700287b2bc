package weirnats

import (
	"slices"
	"strings"
	"testing"
)

// TestParseURL: a URL names servers and a bucket, and an error never has a password.
func TestParseURL(t *testing.T) {
	servers, b, err := ParseURL("nats+tls://u:p@a:1,b:2/limits?replicas=3&storage=memory")
	if err != nil || !slices.Equal(servers, []string{"tls://u:p@a:1", "tls://u:p@b:2"}) || b != (Bucket{"limits", 3, true}) {
		t.Errorf("%q %+v %v", servers, b, err)
	}
	if servers, b, err = ParseURL("nats://a"); err != nil || servers[0] != "nats://a" || b != (Bucket{"weir", 1, false}) {
		t.Errorf("%q %+v %v", servers, b, err)
	}
	for _, url := range []string{"", "nats://", "tls://a", "nats://u:s3cret@a/b/c", "nats://u:s3cret@a?x=1", "nats://u:s3cret@a?replicas=6", "nats://u:s3cret@a?replicas=x", "nats://u:s3cret@a?storage=disk", "nats://u:s3cret@a,,b", "nats://u:s3cret@a/b.c", "nats://u:s3cret@a:x"} {
		if servers, b, err := ParseURL(url); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %q %+v %v", url, servers, b, err)
		}
	}
}
