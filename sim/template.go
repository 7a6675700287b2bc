package sim

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The text formats of servers as templates; the names are those of newTemplate.
const (
	// Envoy's default format
	envoyTemplate = `[$time] "$method $target $protocol" $status $flags $request_length $bytes_sent $duration_ms $upstream_ms "$http_x_forwarded_for" "$http_user_agent" "$request_id" "$host" "$upstream"`
	// Istio's, with more about the response, and with the client's address
	istioTemplate = `[$time] "$method $target $protocol" $status $flags $details $termination "$failure" $request_length $bytes_sent $duration_ms $upstream_ms "$http_x_forwarded_for" "$http_user_agent" "$request_id" "$host" "$upstream" $cluster $upstream_local $listener $client`
	// the first fields of AWS's Application Load Balancer
	albTemplate = `$type $time $elb $client $target_addr $request_processing_time $target_processing_time $response_processing_time $status $target_status $request_length $bytes_sent "$request" "$http_user_agent"`
)

// A templateField is a field of a line, and the text that ends it.
type templateField struct {
	kind   fieldKind
	header string // for kindHeader, in canonical form
	quoted bool   // between quotation marks: \" does not end it
	until  string // empty: the field ends with the line
}

type fieldKind uint8

const (
	kindSkip fieldKind = iota
	kindTime
	kindClient
	kindRequest
	kindMethod
	kindTarget
	kindQuery
	kindHost
	kindLength
	kindStatus
	kindBytes
	kindSeconds // of the response
	kindMilliseconds
	kindHeader
)

// fieldNames are the names of fields: nginx's variables, and the plain ones.
var fieldNames = map[string]fieldKind{
	"time": kindTime, "time_local": kindTime, "time_iso8601": kindTime, "msec": kindTime, "timestamp": kindTime,
	"client": kindClient, "remote_addr": kindClient, "client_ip": kindClient, "realip_remote_addr": kindClient,
	"request": kindRequest, "method": kindMethod, "request_method": kindMethod,
	"target": kindTarget, "request_uri": kindTarget, "uri": kindTarget, "path": kindTarget, "url": kindTarget,
	"query": kindQuery, "args": kindQuery, "query_string": kindQuery,
	"host": kindHost, "http_host": kindHost, "server_name": kindHost,
	"request_length": kindLength, "content_length": kindLength,
	"status": kindStatus, "bytes": kindBytes, "bytes_sent": kindBytes, "body_bytes_sent": kindBytes,
	"request_time": kindSeconds, "duration": kindSeconds, "duration_ms": kindMilliseconds,
}

// lineTemplate is a format of fields with fixed text between them.
type lineTemplate struct {
	begins    string // the text before the first field
	fields    []templateField
	forwarded bool // without a field for the client, it is the last address of X-Forwarded-For
}

// newTemplate compiles the text of a Format with $NAME or ${NAME} for each field. Fields with unknown
// names are skipped.
func newTemplate(text string) (*Format, error) {
	t, err := compileTemplate(text)
	if err != nil {
		return nil, err
	}
	return &Format{name: "custom", parse: t.parse}, nil
}

// template compiles one of our own templates.
func template(text string) *lineTemplate {
	t, err := compileTemplate(text)
	if err != nil {
		panic(err)
	}
	return t
}

func compileTemplate(text string) (*lineTemplate, error) {
	t := new(lineTemplate)
	var has [kindHeader + 1]bool
	start := strings.IndexByte(text, '$')
	if start < 0 {
		return nil, errors.New("the format has no field: write its fields like '$client [$time] \"$request\" $status'")
	}
	t.begins = text[:start]
	quote := strings.HasSuffix(t.begins, `"`)
	for rest := text[start:]; rest != ""; {
		name, after := rest[1:], ""
		if strings.HasPrefix(name, "{") {
			var ok bool
			if name, after, ok = strings.Cut(name[1:], "}"); !ok {
				return nil, fmt.Errorf("a { is not closed in %q: write ${NAME}", rest)
			}
		} else {
			end := strings.IndexFunc(name, func(r rune) bool {
				return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
			})
			if end >= 0 {
				name, after = name[:end], name[end:]
			}
		}
		if name == "" {
			return nil, fmt.Errorf("a $ without a name before %q: write $NAME for each field", after)
		}
		f := templateField{kind: fieldNames[strings.ToLower(name)]}
		if header, ok := strings.CutPrefix(strings.ToLower(name), "http_"); ok && f.kind == kindSkip {
			f.kind, f.header = kindHeader, textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(header, "_", "-"))
		}
		has[f.kind] = true
		t.forwarded = t.forwarded || f.header == "X-Forwarded-For"
		next := strings.IndexByte(after, '$')
		if next == 0 {
			return nil, fmt.Errorf("two fields without a text between them at %q: no one can tell where the first ends", rest)
		}
		if next < 0 {
			f.until, rest = after, ""
		} else {
			f.until, rest = after[:next], after[next:]
		}
		f.quoted = quote && strings.HasPrefix(f.until, `"`)
		quote = strings.HasSuffix(f.until, `"`)
		t.fields = append(t.fields, f)
	}
	t.forwarded = t.forwarded && !has[kindClient]
	var lacks []string
	if !has[kindTime] {
		lacks = append(lacks, "$time")
	}
	if !has[kindClient] && !t.forwarded {
		lacks = append(lacks, "$client")
	}
	if !has[kindRequest] && !(has[kindMethod] && has[kindTarget]) {
		lacks = append(lacks, "$request (or $method and $target)")
	}
	if len(lacks) > 0 {
		return nil, fmt.Errorf("the format has no %s: known fields are %s and $http_NAME for headers; others are skipped", strings.Join(lacks, ", no "), knownFields())
	}
	return t, nil
}

func knownFields() string {
	var names []string
	for name := range fieldNames {
		names = append(names, "$"+name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// parse parses a line. A line may end early, or have more, after its last field: servers add fields.
func (t *lineTemplate) parse(p *parser, line string, it *item) error {
	rest, ok := strings.CutPrefix(line, t.begins)
	if !ok {
		return fmt.Errorf("the line does not begin with %q", t.begins)
	}
	query, forwarded := "", ""
	for i := range t.fields {
		f := &t.fields[i]
		value, after, ok := f.cut(rest, i == len(t.fields)-1)
		if !ok {
			return fmt.Errorf("the line ends in field %d of the format", i+1)
		}
		rest = after
		if value == "-" && f.kind != kindRequest && f.kind != kindMethod && f.kind != kindClient {
			continue
		}
		if f.header == "X-Forwarded-For" {
			forwarded = value
		}
		if err := p.setField(it, f, value, &query); err != nil {
			return err
		}
	}
	if query != "" && !strings.Contains(it.target, "?") {
		it.target += "?" + strings.TrimPrefix(query, "?")
	}
	if t.forwarded {
		it.client = strings.TrimSpace(forwarded[strings.LastIndexByte(forwarded, ',')+1:])
		if it.client == "" {
			return errors.New("no client: the line has no X-Forwarded-For; log the client's address, too, as Istio does")
		}
	}
	it.client = withoutPort(it.client)
	return it.complete()
}

// cut cuts a field off a line.
func (f *templateField) cut(s string, last bool) (value, rest string, ok bool) {
	if f.quoted {
		value, rest = cutQuoted(s)
		rest, ok = strings.CutPrefix(rest, f.until[1:])
		return value, rest, ok || last
	}
	if f.until == "" {
		if i := strings.IndexByte(s, ' '); i >= 0 {
			return s[:i], s[i:], true // fields that the format does not name follow
		}
		return s, "", true
	}
	if f.until[0] == ' ' { // such a field has no spaces
		i := strings.IndexByte(s, ' ')
		if i < 0 {
			return s, "", last
		}
		rest, ok = strings.CutPrefix(s[i:], f.until)
		return s[:i], rest, ok
	}
	value, rest, ok = strings.Cut(s, f.until)
	return value, rest, ok || last
}

// setField sets what a field says.
func (p *parser) setField(it *item, f *templateField, value string, query *string) (err error) {
	switch f.kind {
	case kindTime:
		it.at, err = p.textTime(value)
		return err
	case kindClient:
		it.client = value
	case kindRequest:
		return it.request(value)
	case kindMethod:
		if !isMethod(value) {
			return errors.New("the request is not METHOD TARGET VERSION")
		}
		it.method = value
	case kindTarget:
		it.setTarget(value)
	case kindQuery:
		*query = value
	case kindHost:
		it.host = value
	case kindLength:
		if it.length, err = strconv.ParseInt(value, 10, 64); err != nil || it.length < 0 {
			return errors.New("the length of the request is not a number")
		}
	case kindStatus:
		return it.setStatus(value)
	case kindBytes, kindSeconds, kindMilliseconds:
		if !p.responses {
			break
		}
		switch f.kind {
		case kindBytes:
			it.response.setBytes(value)
		case kindSeconds:
			it.response.setDuration(value, "s")
		default:
			it.response.setDuration(value, "ms")
		}
	case kindHeader:
		if f.header == "User-Agent" {
			it.agent = value
		}
		if p.headers {
			if it.header == nil {
				it.header = http.Header{}
			}
			it.header[f.header] = []string{value}
		}
	}
	if p.responses {
		it.response.Status = int(it.status)
	}
	return nil
}

// textTime parses a time of a text format: that of the Common format, RFC 3339, or a number.
func (p *parser) textTime(text string) (int64, error) {
	if len(text) == len(clockText) && text[2] == '/' {
		return p.clock.parse(text)
	}
	return jsonTime(text)
}

// setStatus sets the status; 0, as Envoy writes it, says that there was no response.
func (it *item) setStatus(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n != 0 && n < 100 || n > 999 {
		if text == "-1" || text == "-" { // HAProxy, and ALB: no response
			return nil
		}
		return errors.New("no status: want three digits")
	}
	it.status = int32(n)
	return nil
}

func (r *Response) setBytes(text string) {
	if n, err := strconv.ParseInt(strings.TrimPrefix(text, "+"), 10, 64); err == nil && n >= 0 {
		r.Bytes = n
	}
}

func (r *Response) setDuration(text, unit string) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f < 0 || math.IsNaN(f) {
		return
	}
	if unit == "ms" {
		f /= 1000
	}
	r.Duration = maxDuration
	if f < maxDuration.Seconds() {
		r.Duration = time.Duration(f * float64(time.Second))
	}
}
