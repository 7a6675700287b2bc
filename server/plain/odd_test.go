package plain

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
)

// oddStreams is how many streams TestOddStreamsLikeNetHTTP sends.
const oddStreams = 1500

// Parts of the requests of a stream, of which some are valid, some are not, and some are read differently
// by different servers.
var (
	oddMethods  = []string{"GET", "POST", "POST", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH", "get", "P\x00ST"}
	oddTargets  = []string{"/", "/a?b=c", "//x", "http://h/x", "*", "/%zz", "/a b", "/\xff", "/a#b", "", "/x%00", "/..//."}
	oddVersions = []string{"HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "http/1.1", ""}
	oddFields   = []string{
		"Content-Length: 5", "Content-Length: 5", "Content-Length: 5", "content-length:5", "Content-Length: 05", "Content-Length: +5", "Content-Length: -5", "Content-Length: 5, 5",
		"Content-Length: 0x5", "Content-Length: 5 ", "Content-Length:\t5", "Content-Length : 5", "Content-Length: 5\r\nContent-Length: 6", "Content-Length: 5\r\nContent-Length: 5", "Content-Length: 0",
		"Content-Length: 99999999999999999999", "Content-Length:", "Content_Length: 3", "Content-Length: 4",
		"Transfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 5", "Transfer-Encoding: identity", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding : chunked",
		"Transfer-Encoding:\x0bchunked", "transfer-encoding: Chunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
		"Expect: 100-continue", "Expect: x", "Connection: close", "Connection: keep-alive", "Connection: Content-Length", "Connection: upgrade\r\nUpgrade: h2c", "Host: h", "Host: other", "Host: a@b",
		" folded: x", "X: a\r\n folded", "X: \x00", "X: a\rb", "X:", ": x", "X", "X-\xc3\xa4: b", "Trailer: X", "Te: trailers", "Pragma: no-cache", "X: " + strings.Repeat("y", 9000),
	}
	oddBodies = []string{"12345", "12345", "12345", "", "5\r\n12345\r\n0\r\n\r\n", "0\r\n\r\n", "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n", "\r\n", "\n"}
	oddEnds   = []string{"\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\n"}
)

// oddStream draws the bytes of some requests, one behind the other.
func oddStream(draw *rand.Rand) string {
	pick := func(from []string) string { return from[draw.IntN(len(from))] }
	var b strings.Builder
	for range 1 + draw.IntN(4) {
		method, target, version, fields := "POST", "/", "HTTP/1.1", []string{"Host: h"}
		if draw.IntN(3) == 0 {
			method = pick(oddMethods)
		}
		if draw.IntN(8) == 0 {
			target = pick(oddTargets)
		}
		if draw.IntN(12) == 0 {
			version = pick(oddVersions)
		}
		if draw.IntN(15) == 0 {
			fields = nil
		}
		if method == "POST" && draw.IntN(3) > 0 {
			fields = append(fields, "Content-Length: 5")
		}
		for range draw.IntN(3) {
			fields = append(fields, pick(oddFields))
		}
		draw.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
		b.WriteString(method + " " + target + " " + version + pick(oddEnds))
		for _, f := range fields {
			b.WriteString(f + pick(oddEnds))
		}
		b.WriteString(pick(oddEnds) + pick(oddBodies))
	}
	b.WriteString("GET /last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	return b.String()
}

// TestOddStreamsLikeNetHTTP: a stream of requests, of which many are invalid or ambiguous, is taken apart as
// net/http takes it apart: the same requests with the same bodies, and the same end. So nobody can hide a
// request from a proxy before the server by the way in which the server reads.
func TestOddStreamsLikeNetHTTP(t *testing.T) {
	raced.Skip(t)
	seen := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		typed(w)
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %q %q %q %d %v %v", r.Method, r.RequestURI, r.Host, body, r.ContentLength, r.TransferEncoding, err)
		var names []string
		for name := range r.Header {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			fmt.Fprintf(w, " %s=%.40q", name, r.Header[name])
		}
	})
	_, ours := serveBodies(t, seen, true)
	theirs := serveNetHTTP(t, seen)
	draw := seeds.Of(t.Name())
	for range oddStreams {
		stream := oddStream(draw)
		cut := draw.IntN(len(stream))
		got, want := transcript(t, ours, stream, cut), transcript(t, theirs, stream, cut)
		if got != want {
			t.Fatalf("%.3000q, in two parts at %d (seed %d):\ngot\n%s\nwant\n%s", stream, cut, seeds.Seed(), got, want)
		}
	}
}

// transcript returns the responses to a stream that is sent in two parts.
func transcript(t *testing.T, addr, stream string, cut int) string {
	t.Helper()
	c := dial(t, addr)
	defer c.Close()
	go func() { // a server that has ended the connection does not read the rest
		io.WriteString(c, stream[:cut])
		io.WriteString(c, stream[cut:])
		c.(*net.TCPConn).CloseWrite()
	}()
	var b strings.Builder
	in := bufio.NewReader(c)
	for {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return b.String()
		}
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusOK {
			body = nil // the connection ends, which may cost the client the end of the response
		}
		fmt.Fprintln(&b, resp.Status, resp.Close, string(body))
	}
}
