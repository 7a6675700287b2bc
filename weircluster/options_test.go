package weircluster

import (
	"bytes"
	"strings"
	"testing"
)

// TestCheck: wrong options are errors that say what to write. Only loopback addresses do without a secret, and no
// error has a part of it.
func TestCheck(t *testing.T) {
	secret := bytes.Repeat([]byte("s3cret.."), 4)
	far := []string{"10.0.0.1:6222", "10.0.0.2:6222", "10.0.0.3:6222"}
	near := []string{"127.0.0.1:1", "[::1]:2", "localhost:3"}
	for _, c := range []struct {
		o    Options
		want string // "": nothing is wrong
	}{
		{Options{Node: far[0], Nodes: far, Folder: "f", Secret: secret}, ""},
		{Options{Node: near[1], Nodes: near, Folder: "f"}, ""},
		{Options{Nodes: near[:1], Folder: "f"}, ""},
		{Options{Leaf: far, Secret: secret}, ""},
		{Options{}, "list three"},
		{Options{Node: far[0], Nodes: far, Folder: "f"}, "without a secret"},
		{Options{Node: near[0], Nodes: near, Folder: "f", Listen: "0.0.0.0:6222"}, "without a secret"},
		{Options{Leaf: far}, "without a secret"},
		{Options{Node: far[0], Nodes: far, Folder: "f", Secret: secret[:31]}, "the secret has 31 bytes"},
		{Options{Node: near[0], Nodes: near, Folder: "f", Secret: []byte("s3cret")}, "the secret has 6 bytes"},
		{Options{Node: near[0], Nodes: near[:2], Folder: "f"}, "list three"},
		{Options{Nodes: near, Folder: "f"}, "which node is this? name one of 127.0.0.1:1, [::1]:2, localhost:3"},
		{Options{Node: "10.0.0.4:6222", Nodes: near, Folder: "f"}, "10.0.0.4:6222, is none of"},
		{Options{Node: near[0], Nodes: near}, "no folder"},
		{Options{Node: near[0], Nodes: []string{near[0], near[1], near[0]}, Folder: "f"}, "listed twice"},
		{Options{Node: near[0], Nodes: near, Folder: "f", Leaves: 65536}, "65536 is no port"},
		{Options{Node: near[0], Nodes: near, Folder: "f", MaxBytes: -1}, "MaxBytes"},
		{Options{Node: near[0], Nodes: near, Folder: "f", Listen: "6222"}, `"6222" is no address`},
		{Options{Node: near[0], Nodes: append(near[:2:2], "a:0"), Folder: "f"}, `"a:0" is no address`},
		{Options{Leaf: []string{":1"}, Secret: secret}, `":1" is no address`},
		{Options{Leaf: far, Secret: secret, Folder: "f"}, "a leaf node keeps nothing"},
		{Options{Node: near[0], Nodes: make([]string, 10), Folder: "f"}, "is no address"},
	} {
		switch err := c.o.Check(); {
		case c.want == "" && err != nil:
			t.Errorf("%+v: %v", c.o, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cret")):
			t.Errorf("%+v: %v, want %s", c.o, err, c.want)
		}
	}
	if _, err := Embed(Options{}); err == nil {
		t.Error("a node without options has started")
	}
}
