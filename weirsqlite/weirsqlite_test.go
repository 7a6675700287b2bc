package weirsqlite

import (
	"strings"
	"testing"

	"github.com/weirflow/weir/weirkv"
)

// TestParseURL: a URL has an absolute path, however many slashes begin it.
func TestParseURL(t *testing.T) {
	for url, want := range map[string]Config{
		"sqlite:/var/lib/weir/l.db":            {Path: "/var/lib/weir/l.db"},
		"sqlite:///l.db?durable=true":          {Path: "/l.db", Durable: true},
		"sqlite:/a/../b%3f%23 c?durable=false": {Path: "/b?# c"},
	} {
		if got, err := ParseURL(url); err != nil || got != want {
			t.Errorf("%s: %+v %v, want %+v", url, got, err, want)
		}
	}
	for url, want := range map[string]string{
		"": "write the URL like", "sqlite:": "write the URL like", "sqlite:l.db": "write the URL like", "sqlite://host/l.db": "write the URL like",
		"sqlite:/": "write the URL like", "sqlite:/dir/": "write the URL like", "sqlite:/l.db%00": "write the URL like", "sqlite:/l.db#x": "write the URL like",
		"redis:/l.db": "write the URL like", "sqlite:/l.db?wal=1": "durable=true is the only one", "sqlite:/l.db?durable=yes": "write true or false",
	} {
		if got, err := ParseURL(url); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v %v, want %s", url, got, err, want)
		}
		if s, err := Open(url, weirkv.Options{}); err == nil {
			t.Errorf("%s is opened", url)
			_ = s.Close()
		}
	}
	if _, err := Open("sqlite:/l.db", weirkv.Options{Prefix: "?"}); err == nil {
		t.Error("a wrong prefix is accepted")
	}
}
