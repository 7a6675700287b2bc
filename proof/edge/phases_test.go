package edge

import (
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A phase is a part of an exchange in which a client can stop, or go on as slowly as it likes.
type phase struct {
	name  string        // of its row in docs/listening.md
	bound string        // the setting that bounds it
	own   time.Duration // a shorter bound of net/http, which holds as well
	lasts string        // instead of bound: the settings that do not bound it, separated by spaces
	over  string        // how the clients connect, separated by spaces: see trickler.dial

	first []string // what clients send at once: one client each
	again []string // what is sent from time to time: for each of first, one client each, and one that sends nothing
	deaf  bool     // the client reads nothing of the response
	sips  bool     // or a byte from time to time
	ends  int      // the phase ends with so many responses of HTTP/1, and the connection goes on
	says  string   // the status of the response that tells the client; empty for none
}

// firstSettings is how long net/http waits for the preface of HTTP/2 and the SETTINGS that follow it.
const firstSettings = 2 * time.Second

const (
	overHTTP1 = "clear tls"
	overHTTP2 = "clear h2"

	allBounds = "header_timeout body_timeout write_timeout idle_timeout timeouts.response timeouts.idle timeouts.upgraded rate waiting.timeout"
)

// frame is a frame of HTTP/2 (RFC 9113).
func frame(kind, flags, stream byte, payload string) string {
	n := len(payload)
	return string([]byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags, 0, 0, 0, stream}) + payload
}

// Types and flags of frames.
const (
	fData, fHeaders, fPriority, fReset, fSettings, fPing, fWindow, fContinuation, fUnknown = 0, 1, 2, 3, 4, 6, 8, 9, 99
	endStream, endHeaders                                                                  = 1, 4
)

// h2Block is the header of a request of HTTP/2.
func h2Block(method, path, key string) string {
	var b strings.Builder
	enc := hpack.NewEncoder(&b)
	for _, f := range [][2]string{{":method", method}, {":scheme", "http"}, {":authority", "h"}, {":path", path}, {"x-phase", key}} {
		enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	return b.String()
}

// phases is the table. HTTP/1 has two engines: package plain serves a GET, and net/http a POST. The key
// goes into each request: under it, the limit admits one request at once.
func phases(key string) []phase {
	const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	const hello = http2.ClientPreface + settings
	block := func(method, path string) string { return h2Block(method, path, key) }
	get, post := block("GET", "/"), block("POST", "/")
	plain := "GET / HTTP/1.1\r\nHost: h\r\nX-Phase: " + key + "\r\n"
	other := "POST / HTTP/1.1\r\nHost: h\r\nX-Phase: " + key + "\r\n"
	streamed := strings.Replace(other, "/", "/streamed", 1)
	upgraded := func(path string) string {
		return strings.Replace(plain, "/", path, 1) + "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	}
	served := []string{plain + "\r\n", other + "Content-Length: 1\r\n\r\nx"} // of each engine
	body := func(rest string) []string { return []string{other + rest, streamed + rest} }
	h2Body := func(rest string) []string {
		return []string{hello + frame(fHeaders, endHeaders, 1, post) + rest, hello + frame(fHeaders, endHeaders, 1, block("POST", "/streamed")) + rest}
	}
	begun := hello + frame(fHeaders, endStream, 1, get[:3])
	window := func(size string) string {
		return http2.ClientPreface + frame(fSettings, 0, 0, "\x00\x04"+size) + frame(fHeaders, endHeaders|endStream, 1, block("GET", "/endless"))
	}
	places := hello + frame(fHeaders, endHeaders|endStream, 1, block("GET", "/places")) + frame(fHeaders, endHeaders|endStream, 3, block("GET", "/places"))
	return []phase{
		{name: "PROXY header", bound: "header_timeout", over: "proxy", first: []string{""}},
		{name: "PROXY header", bound: "header_timeout", over: "proxy", first: []string{"PROXY TCP4 1", "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x01\x0c"}, again: []string{"1"}},
		{name: "TLS handshake", bound: "header_timeout", over: "handshake", first: []string{"", "\x16"}},
		{name: "TLS handshake", bound: "header_timeout", over: "handshake", first: []string{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"}, again: []string{"\x00"}},
		{name: "request line", bound: "header_timeout", over: overHTTP1, first: []string{"G", "POST /", served[0] + "GET /", served[1] + "PO"}, again: []string{"x"}},
		{name: "request line", bound: "header_timeout", over: overHTTP1, first: []string{"\r\n", served[0] + "\r\n", served[1] + "\r\n"}, again: []string{"\r\n"}},
		{name: "header", bound: "header_timeout", over: overHTTP1, first: []string{plain, plain + "X-A: ", other + "X-A: b\r", served[0] + plain, served[1] + other + "X-A: "}, again: []string{"x"}},
		{name: "HTTP/2 preface", bound: "header_timeout", over: "h2", own: firstSettings, first: []string{"", hello[:1], hello[:10]}},
		{name: "HTTP/2 preface", bound: "header_timeout", over: overHTTP2, own: firstSettings, first: []string{hello[:10], hello[:len(hello)-9], hello[:len(hello)-2]}},
		{name: "HTTP/2 frame, except the payload of DATA", bound: "header_timeout", over: overHTTP2, first: []string{
			hello + frame(fHeaders, endHeaders, 1, post)[:5], hello + frame(fHeaders, endHeaders, 1, post+strings.Repeat("\x82", 900))[:40],
			hello + frame(fPing, 0, 0, "12345678")[:12], hello + frame(fHeaders, endHeaders, 1, post) + frame(fData, 0, 1, "x")[:8],
		}},
		{name: "HTTP/2 frame, except the payload of DATA", bound: "header_timeout", over: overHTTP2, first: []string{hello + frame(fHeaders, endHeaders, 1, strings.Repeat("\x82", 9000))[:9]}, again: []string{"\x82"}},
		{name: "HTTP/2 header in several frames", bound: "header_timeout", over: overHTTP2, first: []string{begun, hello + frame(fHeaders, endHeaders, 1, post) + frame(fData, 0, 1, "x") + frame(fHeaders, endStream, 1, "")},
			again: []string{frame(fContinuation, 0, 1, "")}},
		{name: "HTTP/2 header in several frames", bound: "header_timeout", over: overHTTP2, first: []string{hello + frame(fHeaders, endStream, 1, get+"\x00\x03x-a\x7f\xa1\x1f")},
			again: []string{frame(fContinuation, 0, 1, "a")}},

		{name: "body", bound: "body_timeout", over: overHTTP1, first: body("Content-Length: 100000\r\n\r\n"), again: []string{"x"}, says: "408"},
		{name: "body", bound: "body_timeout", over: overHTTP1, first: body("Expect: 100-continue\r\nContent-Length: 100000\r\n\r\n"), says: "408"},
		{name: "body", bound: "body_timeout", over: overHTTP2, first: h2Body(""), again: []string{frame(fData, 0, 1, ""), frame(fData, 0, 1, "x")}, says: "408"},
		{name: "body", bound: "body_timeout", over: overHTTP2, first: h2Body(frame(fData, 0, 1, strings.Repeat("x", 9000))[:9]), again: []string{"x"}, says: "408"},
		{name: "chunks", bound: "body_timeout", over: overHTTP1, first: body("Transfer-Encoding: chunked\r\n\r\n5"), says: "408"},
		{name: "chunks", bound: "body_timeout", over: overHTTP1, first: body("Transfer-Encoding: chunked\r\n\r\n5;a"), again: []string{"a"}, says: "408"},
		{name: "chunks", bound: "body_timeout", over: overHTTP1, first: body("Transfer-Encoding: chunked\r\n\r\nfffff\r\n"), again: []string{"x"}, says: "408"},
		{name: "chunks", bound: "body_timeout", over: overHTTP1, first: body("Transfer-Encoding: chunked\r\n\r\n"), again: []string{"1\r\nx\r\n"}, says: "408"},
		{name: "trailer", bound: "body_timeout", over: overHTTP1, first: body("Transfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n1\r\nx\r\n0\r\nX-T: "), again: []string{"x"}, says: "408"},
		{name: "body of a request that is refused", bound: "body_timeout", over: overHTTP1, first: []string{strings.Replace(other, "/", "/none", 1) + "Content-Length: 100000\r\n\r\n"}, again: []string{"x"}, says: "404"},
		{name: "body of a request that is refused", bound: "body_timeout", over: overHTTP1, first: []string{strings.Replace(other, "POST", "post", 1) + "Content-Length: 100000\r\n\r\n"}, again: []string{"x"}, says: "400"},

		{name: "between requests", bound: "idle_timeout", over: overHTTP1, first: append([]string{""}, served...)},
		{name: "between requests", bound: "idle_timeout", over: overHTTP2, first: []string{hello, hello + frame(fHeaders, endHeaders|endStream, 1, get)}, again: []string{
			frame(fPing, 0, 0, "12345678"), frame(fSettings, 0, 0, ""), frame(fWindow, 0, 0, "\x00\x00\x00\x01"), frame(fPriority, 0, 3, "\x00\x00\x00\x00\x01"), frame(fUnknown, 0, 0, "x"),
		}},
		{name: "between requests", bound: "idle_timeout", over: overHTTP2, first: []string{hello + frame(fData, 0, 0, strings.Repeat("x", 9000))[:9]}, again: []string{"x"}},

		{name: "between requests", bound: "idle_timeout", over: "record", first: []string{"\x17", "\x17\x03\x03\x40\x00"}},
		{name: "between requests", bound: "idle_timeout", over: "record", first: []string{"\x17\x03\x03\x40\x00"}, again: []string{"\x00"}},

		{name: "response", bound: "write_timeout", over: overHTTP1, deaf: true, first: []string{
			strings.Replace(plain, "/", "/endless", 1) + "\r\n", strings.Replace(other, "/", "/endless", 1) + "Content-Length: 1\r\n\r\nx",
		}},
		{name: "response", bound: "write_timeout", over: overHTTP2, deaf: true, first: []string{window("\x7f\xff\xff\xff") + frame(fWindow, 0, 0, "\x7f\x00\x00\x00")}},
		{name: "response that is read byte by byte", bound: "write_timeout", over: overHTTP1, deaf: true, sips: true, first: []string{
			strings.Replace(plain, "/", "/endless", 1) + "\r\n", strings.Replace(other, "/", "/endless", 1) + "Content-Length: 1\r\n\r\nx",
		}},
		{name: "HTTP/2 window", bound: "write_timeout", over: overHTTP2, first: []string{window("\x00\x00\x00\x00"), window("\x00\x00\xff\xff")}, again: []string{
			frame(fWindow, 0, 1, "\x00\x00\x00\x01") + frame(fWindow, 0, 0, "\x00\x00\x00\x01"), frame(fPing, 0, 0, "12345678"),
		}},
		{name: "WebSocket that is not read", bound: "write_timeout", over: overHTTP1, deaf: true, first: []string{upgraded("/flood")}},

		{name: "waiting for the response", bound: "timeouts.response", over: overHTTP1, first: []string{
			strings.Replace(plain, "/", "/silent", 1) + "\r\n", strings.Replace(other, "/", "/silent", 1) + "Content-Length: 1\r\n\r\nx",
		}, says: "504", ends: 1},
		{name: "waiting for the response", bound: "timeouts.response", over: overHTTP2, first: []string{hello + frame(fHeaders, endHeaders|endStream, 1, block("GET", "/silent"))}, says: "504"},
		{name: "upgrade", bound: "timeouts.response", over: overHTTP1, first: []string{upgraded("/silent")}, again: []string{"x"}, says: "504", ends: 1},
		{name: "waiting for the rest of the response", bound: "timeouts.idle", over: overHTTP1, first: []string{
			strings.Replace(plain, "/", "/stalled", 1) + "\r\n", strings.Replace(other, "/", "/stalled", 1) + "Content-Length: 1\r\n\r\nx",
		}, says: "200"},
		{name: "queue of a limit with a rate", bound: "rate", over: overHTTP1, first: []string{
			strings.Repeat(strings.Replace(plain, "/", "/paced", 1)+"\r\n", 2), strings.Repeat(strings.Replace(other, "/", "/paced", 1)+"Content-Length: 1\r\n\r\nx", 2),
		}, ends: 2},

		{name: "queue of `concurrency`", bound: "waiting.timeout", over: overHTTP2, first: []string{places}, says: "429"},
		{name: "queue of `concurrency`", lasts: "header_timeout body_timeout write_timeout idle_timeout rate timeouts.idle", over: overHTTP2, first: []string{places}},
		{name: "WebSocket that is silent", bound: "timeouts.upgraded", over: overHTTP1, first: []string{upgraded("/echo")}},
		{name: "WebSocket that is silent", lasts: strings.Replace(allBounds, "timeouts.upgraded ", "", 1), over: overHTTP1, first: []string{upgraded("/echo")}},
		{name: "WebSocket with traffic", lasts: allBounds, over: overHTTP1, first: []string{upgraded("/talk")}},
		{name: "body", lasts: "header_timeout idle_timeout write_timeout", over: overHTTP1, first: body("Content-Length: 100000\r\n\r\n"), again: []string{"x"}},
		{name: "body", lasts: "header_timeout idle_timeout write_timeout", over: overHTTP2, first: h2Body(frame(fData, 0, 1, strings.Repeat("x", 9000))[:9]), again: []string{"x"}},
		{name: "between requests", lasts: "header_timeout body_timeout write_timeout", over: overHTTP2, first: []string{hello, begun + frame(fContinuation, endHeaders, 1, get[3:])},
			again: []string{frame(fPing, 0, 0, "12345678")}},
		{name: "waiting for the response", lasts: "header_timeout body_timeout write_timeout idle_timeout", over: overHTTP1, first: []string{
			strings.Replace(plain, "/", "/silent", 1) + "\r\n", strings.Replace(other, "/", "/silent", 1) + "Content-Length: 1\r\n\r\nx",
		}},
	}
}
