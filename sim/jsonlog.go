package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Field names in the JSON logs of nginx, Caddy, Traefik, Apache, Cloudflare and others. The first one present
// counts.
var (
	timeNames   = []string{"time", "timestamp", "@timestamp", "ts", "time_iso8601", "time_local", "date", "StartUTC", "msec", "start_time", "startTime", "EdgeStartTimestamp"}
	clientNames = []string{"client", "client_ip", "remote_addr", "remote_ip", "clientip", "ip", "remote_host", "ClientHost",
		"downstream_remote_address", "requester_ip_address", "metadata.requester_ip_address", "ClientIP"}
	methodNames = []string{"method", "request_method", "RequestMethod", "verb", "ClientRequestMethod"}
	targetNames = []string{"target", "uri", "request_uri", "url", "path", "RequestPath", "x-envoy-origin-path", "x-envoy-original-path", ":path", "ClientRequestURI", "ClientRequestPath"}
	queryNames  = []string{"query", "args", "query_string"}
	hostNames   = []string{"host", "http_host", "RequestHost", "server_name", "vhost", ":authority", "authority", "ClientRequestHost"}
	lengthNames = []string{"content_length", "request_length", "bytes_in", "bytes_read", "bytes_received"}
	// header fields with names of their own: Envoy's and Cloudflare's
	headerNames = map[string]string{"user-agent": "User-Agent", "ClientRequestUserAgent": "User-Agent", "ClientRequestReferer": "Referer"}
)

// parseJSON parses a line that is a JSON object. Caddy puts most of it into an object "request";
// others put the request line of the Common format there.
func (p *parser) parseJSON(line string, it *item) (err error) {
	var outer map[string]any
	dec := json.NewDecoder(strings.NewReader(line))
	dec.UseNumber()
	if err := dec.Decode(&outer); err != nil {
		return errors.New("the line starts like JSON, but is not valid JSON")
	}
	if it.at, err = jsonTime(firstValue(outer, timeNames)); err != nil {
		return err
	}
	fields := []map[string]any{outer}
	switch inner := outer["request"].(type) {
	case map[string]any:
		fields = append(fields, inner)
	case string:
		if err := it.request(inner); err != nil {
			return err
		}
	}
	it.header = http.Header{}
	it.liteLLM(outer)
	for _, f := range fields {
		it.fill(f)
	}
	it.agent = it.header.Get("User-Agent")
	if _, envoy := outer["downstream_remote_address"]; envoy {
		it.client = withoutPort(it.client)
	}
	if n, ok := wholeNumber(firstValue(outer, statusNames)); ok && n >= 100 && n <= 999 {
		it.status = int32(n)
	}
	if p.responses {
		p.response(it, outer)
	}
	return it.complete()
}

// complete says what is missing of a request.
func (it *item) complete() error {
	switch {
	case it.client == "":
		return fmt.Errorf("no client: want one of %s", strings.Join(clientNames, ", "))
	case it.method == "":
		return fmt.Errorf("no method: want one of %s", strings.Join(methodNames, ", "))
	case it.target == "":
		return fmt.Errorf("no target: want one of %s", strings.Join(targetNames, ", "))
	}
	return nil
}

// fill sets the fields of an item that an object has and that are not set yet.
func (it *item) fill(f map[string]any) {
	set := func(to *string, names []string) {
		if text, ok := firstValue(f, names).(string); ok && *to == "" {
			*to = text
		}
	}
	set(&it.client, clientNames)
	set(&it.method, methodNames)
	set(&it.host, hostNames)
	if target, ok := firstValue(f, targetNames).(string); ok && it.target == "" && target != "" {
		it.setTarget(target)
		if query, ok := firstValue(f, queryNames).(string); ok && query != "" && query != "-" && !strings.Contains(it.target, "?") {
			it.target += "?" + strings.TrimPrefix(query, "?")
		}
	}
	if n, ok := wholeNumber(firstValue(f, lengthNames)); ok && it.length < 0 && n >= 0 {
		it.length = n
	}
	for name, value := range f {
		if field, ok := strings.CutPrefix(name, "http_"); ok {
			if text, ok := value.(string); ok && text != "-" {
				it.header.Add(strings.ReplaceAll(field, "_", "-"), text)
			}
		}
	}
	for from, to := range headerNames {
		if text, ok := f[from].(string); ok && text != "-" && text != "" {
			it.header.Set(to, text)
		}
	}
	headers, _ := f["headers"].(map[string]any)
	for name, value := range headers {
		switch v := value.(type) {
		case string:
			it.header.Add(name, v)
		case []any:
			for _, each := range v {
				if text, ok := each.(string); ok {
					it.header.Add(name, text)
				}
			}
		}
	}
}

// firstValue returns the value of the first name that is present.
func firstValue(f map[string]any, names []string) any {
	for _, name := range names {
		if v := valueAt(f, name); v != nil && v != "" {
			return v
		}
	}
	return nil
}

// valueAt returns a value by its name, or by the names of objects and a value within them, joined by
// dots.
func valueAt(f map[string]any, name string) any {
	if v, ok := f[name]; ok {
		return v
	}
	outer, inner, nested := strings.Cut(name, ".")
	if object, ok := f[outer].(map[string]any); ok && nested {
		return valueAt(object, inner)
	}
	return nil
}

func wholeNumber(v any) (int64, bool) {
	switch v := v.(type) {
	case json.Number:
		n, err := v.Int64()
		return n, err == nil
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		return n, err == nil
	}
	return 0, false
}
