package policy

import (
	"fmt"
	"strings"

	"github.com/weirflow/weir/internal/nearest"
)

// meantPart returns the part that was probably meant by another product's way to write it, or "" if
// unknown.
func meantPart(text string) string {
	word := strings.ToLower(strings.TrimPrefix(strings.Trim(text, "{}"), "$"))
	switch word {
	case "ip", "remote_addr", "binary_remote_addr", "remote_address", "remote_ip", "client_ip", "clientip", "client", "client.address", "client_address",
		"source_ip", "src", "realip_remote_addr", "http_x_forwarded_for", "header.x-forwarded-for", "header.x-real-ip":
		return "client.ip"
	case "url", "request_uri":
		return "uri"
	case "http_host", "server_name", "hostname":
		return "host"
	case "request_method", "verb":
		return "method"
	case "document_uri":
		return "path"
	}
	for _, form := range []struct{ prefix, source string }{
		{"http_", "header."}, {"cookie_", "cookie."}, {"arg_", "query."}, // nginx
		{"headers.", "header."}, {"header:", "header."}, {"cookies.", "cookie."}, {"cookie:", "cookie."},
		{"query:", "query."}, {"param.", "query."}, {"params.", "query."}, {"request.header.", "header."},
	} {
		if name, ok := strings.CutPrefix(word, form.prefix); ok && name != "" {
			if form.source == "header." {
				name = strings.ReplaceAll(name, "_", "-")
			}
			return form.source + name
		}
	}
	return ""
}

// nearestPart suggests a part of a key.
func nearestPart(text string) string {
	if meant := meantPart(text); meant != "" {
		return "write " + meant
	}
	if source, name, found := strings.Cut(text, "."); found && name != "" {
		if near := nearest.To(source, []string{"client", "header", "query", "cookie", "path", "const", "jwt", "body", "value"}); near != "" && near != source {
			return fmt.Sprintf("did you mean %q?", near+"."+name)
		}
	}
	if near := nearest.To(text, []string{"client.ip", "client.ip/128", "host", "method", "path", "uri", "customer"}); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}
