package weircluster

import (
	"reflect"
	"testing"
)

// TestParseURL: a URL stands for options.
func TestParseURL(t *testing.T) {
	o, secret, err := ParseURL("cluster://a:1,b:2,c:3/limits?secret_file=/s&folder=/f&node=b:2&listen=0.0.0.0:2&leaf_port=7422&storage=file&max_bytes=5")
	want := Options{Node: "b:2", Nodes: []string{"a:1", "b:2", "c:3"}, Listen: "0.0.0.0:2", Leaves: 7422, Folder: "/f", Files: true, MaxBytes: 5, Bucket: "limits"}
	if err != nil || secret != "/s" || !reflect.DeepEqual(o, want) {
		t.Errorf("%+v %q %v", o, secret, err)
	}
	o, secret, err = ParseURL("cluster+leaf://a:1,b:2?secret_file=s")
	if err != nil || secret != "s" || !reflect.DeepEqual(o, Options{Leaf: []string{"a:1", "b:2"}}) {
		t.Errorf("%+v %q %v", o, secret, err)
	}
	for _, address := range []string{"", "cluster:a:1", "nats://a:1", "cluster://a:1?x=1", "cluster://a:1?secret_file=", "cluster://a:1?storage=disk",
		"cluster://a:1?leaf_port=x", "cluster://a:1?max_bytes=1GB", "cluster://a:1?%zz", "cluster+leaf://a:1?folder=/f"} {
		if o, _, err := ParseURL(address); err == nil {
			t.Errorf("%s: %+v", address, o)
		}
	}
}
