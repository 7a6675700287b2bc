package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Field names in the JSON logs of nginx, Caddy, Traefik, Apache and others. The first one present
// counts.
var (
	timeNames   = []string{"time", "timestamp", "@timestamp", "ts", "time_iso8601", "time_local", "date", "StartUTC", "msec", "start_time", "startTime"}
	clientNames = []string{"client", "client_ip", "remote_addr", "remote_ip", "clientip", "ip", "remote_host", "ClientHost",
		"downstream_remote_address", "requester_ip_address", "metadata.requester_ip_address"}
	methodNames = []string{"method", "request_method", "RequestMethod", "verb"}
	targetNames = []string{"target", "uri", "request_uri", "url", "path", "RequestPath", "x-envoy-origin-path", "x-envoy-original-path", ":path"}
	queryNames  = []string{"query", "args", "query_string"}
	hostNames   = []string{"host", "http_host", "RequestHost", "server_name", "vhost", ":authority", "authority"}
	lengthNames = []string{"content_length", "request_length", "bytes_in", "bytes_read", "bytes_received"}
)

// parseJSON parses a line that is a JSON object. Caddy puts most of it into an object "request";
// others put the request line of the Common format there.
func (p *parser) parseJSON(line string) (e Entry, err error) {
	e.Length, e.Response = -1, unknownResponse
	var outer map[string]any
	dec := json.NewDecoder(strings.NewReader(line))
	dec.UseNumber()
	if err := dec.Decode(&outer); err != nil {
		return e, errors.New("the line starts like JSON, but is not valid JSON")
	}
	if e.Time, err = jsonTime(firstValue(outer, timeNames)); err != nil {
		return e, err
	}
	fields := []map[string]any{outer}
	switch inner := outer["request"].(type) {
	case map[string]any:
		fields = append(fields, inner)
	case string:
		if err := e.request(inner); err != nil {
			return e, err
		}
	}
	e.Header = http.Header{}
	e.liteLLM(outer)
	for _, f := range fields {
		e.fill(f)
	}
	if _, envoy := outer["downstream_remote_address"]; envoy {
		e.Client = withoutPort(e.Client)
	}
	if p.responses {
		p.response(&e, outer)
	}
	switch {
	case e.Client == "":
		return e, fmt.Errorf("no client: want one of %s", strings.Join(clientNames, ", "))
	case e.Method == "":
		return e, fmt.Errorf("no method: want one of %s", strings.Join(methodNames, ", "))
	case e.Target == "":
		return e, fmt.Errorf("no target: want one of %s", strings.Join(targetNames, ", "))
	}
	return e, nil
}

// fill sets the fields of an Entry that an object has and that are not set yet.
func (e *Entry) fill(f map[string]any) {
	set := func(to *string, names []string) {
		if text, ok := firstValue(f, names).(string); ok && *to == "" {
			*to = text
		}
	}
	set(&e.Client, clientNames)
	set(&e.Method, methodNames)
	set(&e.Host, hostNames)
	if target, ok := firstValue(f, targetNames).(string); ok && e.Target == "" && target != "" {
		e.target(target)
		if query, ok := firstValue(f, queryNames).(string); ok && query != "" && query != "-" && !strings.Contains(e.Target, "?") {
			e.Target += "?" + strings.TrimPrefix(query, "?")
		}
	}
	if n, ok := wholeNumber(firstValue(f, lengthNames)); ok && e.Length < 0 && n >= 0 {
		e.Length = n
	}
	for name, value := range f {
		if field, ok := strings.CutPrefix(name, "http_"); ok {
			if text, ok := value.(string); ok && text != "-" {
				e.Header.Add(strings.ReplaceAll(field, "_", "-"), text)
			}
		}
	}
	if agent, ok := f["user-agent"].(string); ok && agent != "-" { // Envoy
		e.Header.Set("User-Agent", agent)
	}
	headers, _ := f["headers"].(map[string]any)
	for name, value := range headers {
		switch v := value.(type) {
		case string:
			e.Header.Add(name, v)
		case []any:
			for _, item := range v {
				if text, ok := item.(string); ok {
					e.Header.Add(name, text)
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
