package weircluster

import (
	"errors"
	"net/url"
	"strconv"
	"strings"
)

// errURL says how a URL is written.
var errURL = errors.New("weircluster: write the URL like cluster://10.0.0.1:6222,10.0.0.2:6222,10.0.0.3:6222/weir?secret_file=/etc/weir/cluster.secret&folder=/var/lib/weir, with node, listen, leaf_port, storage=file or max_bytes if needed, or cluster+leaf://10.0.0.1:7422,10.0.0.2:7422/weir?secret_file=/etc/weir/cluster.secret for a leaf node")

// ParseURL returns the options that a URL stands for. Their Secret is to be read from secretFile, "" for none, and their
// Node is empty if the URL does not say which node this is.
func ParseURL(address string) (o Options, secretFile string, err error) {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok || scheme != "cluster" && scheme != "cluster+leaf" {
		return o, "", errURL
	}
	rest, query, _ := strings.Cut(rest, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return o, "", errURL
	}
	hosts, bucket, _ := strings.Cut(rest, "/")
	o.Bucket = bucket
	if scheme == "cluster+leaf" {
		o.Leaf = strings.Split(hosts, ",")
	} else {
		o.Nodes = strings.Split(hosts, ",")
	}
	for name, value := range values {
		switch v := value[0]; {
		case name == "secret_file" && v != "":
			secretFile = v
		case name == "storage" && (v == "memory" || v == "file"):
			o.Files = v == "file"
		case scheme == "cluster+leaf":
			return o, "", errURL
		case name == "folder":
			o.Folder = v
		case name == "node":
			o.Node = v
		case name == "listen":
			o.Listen = v
		case name == "leaf_port":
			o.Leaves, err = strconv.Atoi(v)
		case name == "max_bytes":
			o.MaxBytes, err = strconv.ParseInt(v, 10, 64)
		default:
			return o, "", errURL
		}
		if err != nil {
			return o, "", errURL
		}
	}
	return o, secretFile, nil
}
