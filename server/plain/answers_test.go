package plain

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirflow/weir/internal/rawserver"
)

// answers are responses of servers, byte by byte. After each that leaves the connection open,
// another one may follow.
var answers = map[string]struct {
	bytes  string
	closes bool
}{
	"length":          {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello", false},
	"no reason":       {"HTTP/1.1 200 \r\nContent-Length: 5\r\n\r\nhello", false},
	"no space":        {"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello", false},
	"empty":           {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false},
	"error":           {"HTTP/1.1 503 Go Away\r\nContent-Length: 2\r\nRetry-After: 7\r\n\r\nno", false},
	"own status":      {"HTTP/1.1 299 Whatever\r\nContent-Length: 2\r\n\r\nno", false},
	"chunked":         {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3;x=y\r\nyou\r\n0\r\n\r\n", false},
	"trailers":        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 5\r\n\r\n", false},
	"to the end":      {"HTTP/1.1 200 OK\r\n\r\nhello", true},
	"closing":         {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello", true},
	"hop by hop":      {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: X-Private, close\r\nX-Private: x\r\nKeep-Alive: timeout=5\r\nProxy-Connection: close\r\n\r\nhello", true},
	"old":             {"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", true},
	"no content":      {"HTTP/1.1 204 No Content\r\n\r\n", false},
	"not modified":    {"HTTP/1.1 304 Not Modified\r\nEtag: \"x\"\r\n\r\n", false},
	"hints":           {"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", false},
	"continue":        {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", false},
	"cookies":         {"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 2\r\nset-cookie: c=d\r\n\r\nok", false},
	"length twice":    {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok", false},
	"lengths":         {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", true},
	"a signed length": {"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok", true},
	"negative length": {"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok", true},
	"both":            {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", false},
	"a bare newline":  {"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", false},
	"short":           {"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", true},
	"a broken chunk":  {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n", true},
	"a cut chunk":     {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe", true},
	"nothing":         {"", true},
	"half a head":     {"HTTP/1.1 200 OK\r\nConte", true},
	"junk":            {"hello, this is no HTTP\r\n\r\n", true},
	"status of junk":  {"HTTP/1.1 2x0 OK\r\nContent-Length: 0\r\n\r\n", true},
	"switching":       {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", true},
	"long":            {"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100_000), false},
	"a long head":     {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: " + strings.Repeat("y", 100_000) + "\r\n\r\nok", false},
	"an endless head": {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + strings.Repeat("X: y\r\n", 100_000) + "\r\nok", true},
	"exactly full":    {"HTTP/1.1 200 OK\r\nContent-Length: 16384\r\n\r\n" + strings.Repeat("x", 16384), false},
}

// rawServer responds to each request with the bytes that its path names. It counts connections.
func rawServer(t testing.TB) (addr string, connections *atomic.Int64) {
	t.Helper()
	connections = new(atomic.Int64)
	return rawserver.Start(t, func(c net.Conn, in *bufio.Reader) {
		connections.Add(1)
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			a := answers[strings.TrimPrefix(r.URL.Path, "/")]
			text := a.bytes
			if heads := strings.SplitAfter(text, "\r\n\r\n"); r.Method == http.MethodHead {
				text = heads[0]
				if strings.HasPrefix(text, "HTTP/1.1 10") && len(heads) > 2 {
					text += heads[1]
				}
			}
			if _, err := io.WriteString(c, text); err != nil || a.closes {
				return
			}
		}
	}), connections
}
