package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/weirflow/weir/policy"
)

// TestBuffer: a buffer returns the bytes that it was filled with, from memory and from files, and
// frees all of its space.
func TestBuffer(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	text := bytes.Repeat([]byte("0123456789abcdef!"), 10000)
	for _, size := range []int{0, 1, 2047, 2048, 2049, 32768, 65535, 65536, 65537, 100000, 100001} {
		for _, known := range []bool{true, false} {
			for _, memory := range []int64{1, 2048, 65537, 200000} {
				for _, room := range []int64{0, 40000, 1 << 20} {
					all := &space{maxMemory: room, maxFiles: 1 << 20}
					b := &buffer{space: all, files: all.filesOf(t.Context()), length: -1, memory: memory, most: 100001}
					if known {
						b.length = int64(size)
					}
					whole, err := b.fill(iotest.HalfReader(bytes.NewReader(text[:size])))
					if err != nil || whole != (size <= 100000) {
						t.Fatal(size, whole, err)
					}
					for range 2 { // for a retry
						if got, err := io.ReadAll(b.open()); err != nil || !bytes.Equal(got, text[:size]) {
							t.Fatal(size, len(got), err)
						}
					}
					if all.memory.Load() > room || b.taken > memory {
						t.Errorf("%d bytes of memory for %d, at most %d and %d", b.taken, size, memory, room)
					}
					b.free()
					if all.memory.Load() != 0 || all.files.Load() != 0 {
						t.Error("something stays in use")
					}
				}
			}
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
}

// TestBufferWithoutRoom: without memory and files, or if the folder cannot be written, the error is
// this process's.
func TestBufferWithoutRoom(t *testing.T) {
	var ours *LocalError
	b := fileBuffer(&space{maxFiles: 1000})
	if _, err := b.fill(strings.NewReader(strings.Repeat("x", 2000))); !errors.As(err, &ours) || !errors.Is(err, errNoSpace) {
		t.Error(err)
	}
	if b.space.noMemory.Load() != 1 || b.space.noFileSpace.Load() != 1 {
		t.Errorf("counted %d times without memory, %d without room in files, want 1 each", b.space.noMemory.Load(), b.space.noFileSpace.Load())
	}
	b.free()
	t.Setenv("TMPDIR", t.TempDir()+"/none")
	b = fileBuffer(&space{maxFiles: 1 << 20})
	if _, err := b.fill(strings.NewReader("x")); !errors.As(err, &ours) {
		t.Error(err)
	}
	b.free()
}

// TestSlowBodiesHoldNoWorker: 40 connections that send their bodies slowly take no worker of an
// upstream that has few, because it gets a request only when its body is complete. Other requests
// are served meanwhile.
func TestSlowBodiesHoldNoWorker(t *testing.T) {
	const slow, workers = 40, 4
	var connections atomic.Int64
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range workers { // each serves one connection at a time, from its first byte to its last
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				connections.Add(1)
				r, err := http.ReadRequest(bufio.NewReader(conn))
				if err == nil {
					body, _ := io.ReadAll(r.Body)
					head := r.Method + " " + r.Header.Get("Expect") + strings.Join(r.TransferEncoding, "")
					resp := http.Response{StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, Close: true, ContentLength: -1,
						Body: io.NopCloser(strings.NewReader(head + " " + string(body)))}
					resp.Write(conn)
				}
				conn.Close()
			}
		}()
	}
	u := over(t, policy.Upstream{}, &raw{url: "http://" + l.Addr().String()})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := r.Clone(r.Context())
		out.RequestURI = ""
		resp, err := u.RoundTrip(out)
		if err != nil {
			w.WriteHeader(502)
			return
		}
		defer resp.Body.Close()
		io.Copy(w, resp.Body)
	}))
	defer front.Close()

	var conns []net.Conn
	for i := range slow {
		conn, err := net.Dial("tcp", front.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(time.Minute))
		if i%2 == 0 {
			io.WriteString(conn, "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhe")
		} else {
			io.WriteString(conn, "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n")
			if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
				t.Fatal(line, err)
			}
			io.WriteString(conn, "2\r\nhe\r\n")
		}
		conns = append(conns, conn)
	}
	for range 10 { // others are served at once
		resp, err := http.Post(front.URL+"/x", "text/plain", strings.NewReader("good"))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(body) != "POST  good" {
			t.Fatalf("%d %q", resp.StatusCode, body)
		}
	}
	if n := connections.Load(); n != 10 {
		t.Errorf("the upstream saw %d connections, and 10 requests were whole", n)
	}
	for i, conn := range conns {
		if i%2 == 0 {
			io.WriteString(conn, "llo")
		} else {
			io.WriteString(conn, "3\r\nllo\r\n0\r\n\r\n")
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		// with a Content-Length, and without Expect
		if body, _ := io.ReadAll(resp.Body); string(body) != "POST  hello" {
			t.Errorf("%d: %q", resp.StatusCode, body)
		}
	}
	if n := u.opts.space.memory.Load(); n != 0 {
		t.Errorf("%d bytes of buffers stay in use", n)
	}
}

// TestBodyBeyondTheBuffer: a longer body is streamed, complete and in order.
func TestBodyBeyondTheBuffer(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Write(body)
	}))
	defer up.Close()
	text := strings.Repeat("0123456789abcdef!", 10000)
	for _, file := range []int64{0, 50000, 1 << 20} {
		u := over(t, policy.Upstream{BufferRequest: policy.Buffer{Memory: 3000, File: file}}, &raw{url: up.URL})
		for _, body := range []io.Reader{strings.NewReader(text), io.MultiReader(strings.NewReader(text))} {
			r, err := http.NewRequestWithContext(t.Context(), "POST", up.URL, body)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := u.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(resp.Body); err != nil || string(got) != text {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			resp.Body.Close()
		}
		if n, files := u.opts.space.memory.Load(), u.opts.space.files.Load(); n+files != 0 {
			t.Errorf("%d bytes stay in use", n+files)
		}
	}
}

// watched is a body that calls before with the number of bytes that were read, before each Read.
type watched struct {
	io.Reader
	read   int64
	before func(read int64)
}

func (w *watched) Read(p []byte) (int, error) {
	w.before(w.read)
	n, err := w.Reader.Read(p[:min(len(p), 700)])
	w.read += int64(n)
	return n, err
}

// TestLongBodyFillsTheBufferFirst: a body that is longer than the buffer takes a connection to the
// target only after as much as the buffer holds has come, whatever length its header announces. What
// was buffered is freed once it is sent, before the rest has come.
func TestLongBodyFillsTheBufferFirst(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		io.WriteString(w, strings.Join(r.TransferEncoding, "")+r.Header.Get("Expect")+" "+strconv.FormatInt(n, 10))
	}))
	defer up.Close()
	const size = 200000
	for _, most := range []policy.Buffer{{Memory: 3000}, {Memory: 3000, File: 50000}, {Memory: 100000}} {
		for _, length := range []int64{size, -1} {
			for _, method := range []string{"POST", "PUT"} {
				u := over(t, policy.Upstream{BufferRequest: most}, &raw{url: up.URL})
				full := max(most.Memory, most.File)
				var connected atomic.Bool
				body := &watched{Reader: strings.NewReader(strings.Repeat("x", size)), before: func(read int64) {
					switch memory, files := u.opts.space.memory.Load(), u.opts.space.files.Load(); {
					case connected.Load() && read < full:
						t.Errorf("%+v, length %d: the target was connected to with %d bytes of the body", most, length, read)
					case !connected.Load() && read > full+1:
						t.Errorf("%+v, length %d: %d bytes were read before the target was connected to", most, length, read)
					case connected.Load() && memory+files != 0:
						t.Errorf("%+v, length %d: %d bytes stay in use while the rest is sent", most, length, memory+files)
					}
				}}
				ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
				r, err := http.NewRequestWithContext(ctx, method, up.URL, body)
				if err != nil {
					t.Fatal(err)
				}
				r.ContentLength = length
				r.Header.Set("Expect", "100-continue")
				resp, err := u.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				want := " 200000"
				if length < 0 {
					want = "chunked" + want
				}
				if got, err := io.ReadAll(resp.Body); err != nil || string(got) != want {
					t.Errorf("%+v, length %d: the target got %q, %v; want %q", most, length, got, err, want)
				}
				resp.Body.Close()
				if n := u.opts.space.memory.Load() + u.opts.space.files.Load(); n != 0 {
					t.Errorf("%+v, length %d: %d bytes stay in use", most, length, n)
				}
			}
		}
	}
}

// fileBuffer returns a buffer for a long body in a space.
func fileBuffer(all *space) *buffer {
	return &buffer{space: all, files: all.filesOf(context.Background()), length: -1, memory: 1 << 20, most: 1 << 20}
}

// TestOneClientDoesNotFillTheFiles: a client whose bodies are buffered in files, and do not end, gets no more
// of them than remains free. Another client has room, and so has the first one once its bodies have ended.
func TestOneClientDoesNotFillTheFiles(t *testing.T) {
	all := &space{maxFiles: 1 << 20}
	body := strings.Repeat("x", 64<<10)
	var open []*buffer
	fill := func(client string) error {
		b := fileBuffer(all)
		b.files = all.filesOf(WithClient(t.Context(), client))
		open = append(open, b)
		_, err := b.fill(strings.NewReader(body))
		return err
	}
	free := func() {
		for _, b := range open {
			b.free()
		}
		open = nil
		if n := all.files.Load(); n != 0 {
			t.Fatalf("%d bytes stay in use", n)
		}
	}
	for range 2 {
		for i := range 8 {
			if err := fill("flood"); err != nil {
				t.Fatalf("body %d of at most half of the room: %v", i+1, err)
			}
		}
		before := all.noFileSpace.Load()
		if err := fill("flood"); !errors.Is(err, errNoSpace) || all.noFileSpace.Load() != before+1 {
			t.Fatalf("a body beyond half of the room: %v, counted %d times", err, all.noFileSpace.Load()-before)
		}
		for i := range 4 {
			if err := fill("other"); err != nil {
				t.Fatalf("body %d of another client: %v", i+1, err)
			}
		}
		free()
	}
}
