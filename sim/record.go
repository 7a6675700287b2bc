package sim

import (
	"encoding/binary"
	"net/http"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"

	"github.com/weirflow/weir/policy"
)

// A layout encodes a request between reading and deciding, in as few bytes as possible, because a
// log has many requests. It keeps only the header fields that the policy uses.
//
// A record has numbers as varints, and strings with their length in front: the line number, the
// length of the body, client, method, host and target; then for each header field the number of its
// values, and the values; then the response, if it is needed. Numbers that may be unknown are one
// higher, so that 0 is -1.
type layout struct {
	fields []string // the header fields, in canonical form
	full   bool     // some key has the client's full address
	// records have a response: some limit replaces estimates by true costs, or is adaptive
	responses bool

	profiles bool // records have the status and the User-Agent, for profiles of clients
}

// layoutFor returns the layout for a policy.
func layoutFor(p policy.Policy) (l layout) {
	l.responses = p.HasAdaptive()
	for _, limit := range p.Limits {
		l.responses = l.responses || limit.Costs.IsSet() || slices.ContainsFunc(limit.Key, func(part string) bool { return strings.HasPrefix(part, "body.") })
		l.full = l.full || slices.Contains(limit.Key, "client.ip/128")
		for _, term := range limit.Costs.Before {
			if name, ok := strings.CutPrefix(term.Of, "header."); ok {
				l.fields = append(l.fields, textproto.CanonicalMIMEHeaderKey(name))
			}
		}
		for _, source := range append([]string{limit.Cost}, limit.Key...) {
			switch where, name, _ := strings.Cut(source, "."); where {
			case "header":
				l.fields = append(l.fields, textproto.CanonicalMIMEHeaderKey(name))
			case "cookie":
				l.fields = append(l.fields, "Cookie")
			}
		}
	}
	slices.Sort(l.fields)
	l.fields = slices.Compact(l.fields)
	return l
}

// headers reports whether the policy uses header fields.
func (l *layout) headers() bool { return len(l.fields) > 0 }

// append appends the record of a request in a line.
func (l *layout) append(b []byte, line int64, it *item) []byte {
	b = binary.AppendUvarint(b, uint64(line))
	b = binary.AppendUvarint(b, uint64(max(it.length, -1)+1))
	if l.full {
		b = appendText(b, it.client)
	} else {
		b = appendText(b, clientOf(it.client))
	}
	b = appendText(b, it.method)
	b = appendText(b, it.host)
	b = appendText(b, it.target)
	for _, name := range l.fields {
		values := it.header[name]
		if it.combined {
			values = it.combinedField(name, make([]string, 1))
		}
		b = binary.AppendUvarint(b, uint64(len(values)))
		for _, v := range values {
			b = appendText(b, v)
		}
	}
	if l.responses {
		b = it.response.append(b)
	}
	if l.profiles {
		b = binary.AppendUvarint(b, uint64(it.status))
		b = appendText(b, it.agent)
	}
	return b
}

// combinedField returns the values of a header field of the Combined format, in a slice of one.
func (it *item) combinedField(name string, of []string) []string {
	switch name {
	case "Referer":
		of[0] = it.referer
	case "User-Agent":
		of[0] = it.agent
	default:
		return nil
	}
	return of
}

// clientOf is policy.ClientKeyOf, and faster for what is no IPv6 address.
func clientOf(text string) string {
	if strings.IndexByte(text, ':') < 0 {
		return text
	}
	return policy.ClientKeyOf(text)
}

// A query is a request that is decided.
type query struct {
	at     int64
	line   int64 // through all inputs; 0 if no one needs it
	req    policy.Request
	res    Response
	status int32  // 0: not known; only for profiles
	agent  string // only for profiles
}

// query sets a query to that of an item, which must remain as it is while the query is used.
func (l *layout) query(it *item, q *query) {
	q.at, q.status, q.agent = it.at, it.status, it.agent
	req := &q.req
	header := req.Header
	*req = policy.Request{Method: it.method, Host: it.host, Length: max(it.length, -1)}
	if l.full {
		req.Addr, _ = netip.ParseAddr(it.client) // other texts are keys as they are
	}
	req.Client = clientOf(it.client)
	req.Path, req.Query, _ = strings.Cut(it.target, "?")
	if l.headers() {
		if header == nil {
			header = make(http.Header)
		}
		clear(header)
		for _, name := range l.fields {
			values := it.header[name]
			if it.combined {
				values = it.combinedField(name, make([]string, 1))
			}
			if len(values) > 0 {
				header[name] = values
			}
		}
		req.Header = header
	}
	if l.responses {
		q.res = *it.response
		req.Estimate = q.res.Estimate
	}
}

// numbers returns the numbers of a response, each of them at least -1.
func (r *Response) numbers() [10]*int64 {
	return [...]*int64{
		&r.Estimate, &r.Cost, &r.Prompt, &r.Cached, &r.Written, &r.Completion, &r.Total, &r.Bytes,
		(*int64)(&r.Duration), (*int64)(&r.Upstream),
	}
}

// append appends a response to a record.
func (r *Response) append(b []byte) []byte {
	for _, n := range r.numbers() {
		b = binary.AppendUvarint(b, uint64(*n+1))
	}
	b = binary.AppendUvarint(b, uint64(r.Status))
	return appendText(b, r.Body)
}

// cut cuts a response off a record.
func (r *Response) cut(s string) (rest string) {
	for _, n := range r.numbers() {
		*n, s = cutNumber(s)
		*n--
	}
	status, s := cutNumber(s)
	r.Status = int(status)
	r.Body, rest = cutText(s)
	return rest
}

func appendText(b []byte, text string) []byte {
	b = binary.AppendUvarint(b, uint64(len(text)))
	return append(b, text...)
}

// read decodes a record of append. The strings are substrings of the record.
func (l *layout) read(record string, q *query) {
	req := &q.req
	*req = policy.Request{}
	var rest string
	q.line, rest = cutNumber(record)
	req.Length, rest = cutNumber(rest)
	req.Length--
	req.Client, rest = cutText(rest)
	if l.full {
		req.Addr, _ = netip.ParseAddr(req.Client) // other texts are keys as they are
		req.Client = policy.ClientKeyOf(req.Client)
	}
	req.Method, rest = cutText(rest)
	req.Host, rest = cutText(rest)
	target, rest := cutText(rest)
	req.Path, req.Query, _ = strings.Cut(target, "?")
	if l.headers() {
		req.Header = http.Header{}
	}
	for _, name := range l.fields {
		var n int64
		for n, rest = cutNumber(rest); n > 0; n-- {
			var value string
			value, rest = cutText(rest)
			req.Header[name] = append(req.Header[name], value)
		}
	}
	if l.responses {
		rest = q.res.cut(rest)
		req.Estimate = q.res.Estimate
	}
	if l.profiles {
		var status int64
		status, rest = cutNumber(rest)
		q.status = int32(status)
		q.agent, _ = cutText(rest)
	}
}

// cutNumber cuts off a varint. It does not check it, because append wrote it.
func cutNumber(s string) (n int64, rest string) {
	for i, shift := 0, 0; i < len(s); i, shift = i+1, shift+7 {
		n |= int64(s[i]&0x7f) << shift
		if s[i] < 0x80 {
			return n, s[i+1:]
		}
	}
	return n, ""
}

func cutText(s string) (text, rest string) {
	n, rest := cutNumber(s)
	return rest[:n], rest[n:]
}
