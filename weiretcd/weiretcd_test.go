package weiretcd

import (
	"slices"
	"strings"
	"testing"
)

// TestParseURL: hosts have their default port, and an error never has a password.
func TestParseURL(t *testing.T) {
	c, err := ParseURL("etcds://u:p%40ss@a:1,b/")
	if err != nil || !slices.Equal(c.Endpoints, []string{"https://a:1", "https://b:2379"}) || c.TLS == nil || c.Username != "u" || c.Password != "p@ss" {
		t.Errorf("%+v %v", c, err)
	}
	if c, err = ParseURL("etcd://127.0.0.1"); err != nil || c.TLS != nil || c.Endpoints[0] != "http://127.0.0.1:2379" {
		t.Errorf("%+v %v", c, err)
	}
	for _, url := range []string{"", "etcd://", "http://a", "etcd://u:s3cret@a/b", "etcd://u:s3cret@a?x=1", "etcd://u:s3cret@a,,b", "etcd://u:s3cret@a:x"} {
		if c, err := ParseURL(url); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %+v %v", url, c, err)
		}
	}
}
