package plain

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/seeds"
)

// TestInLoops runs the tests of connections again, for connections in loops: with handlers as they are, and all
// requests reused, and with all that handlers do done Later.
func TestInLoops(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there are none on this system")
	}
	inLoops = true
	defer func() { inLoops, allLater, allReused = false, false, false }()
	for name, test := range map[string]func(*testing.T){
		"PassLikeReverseProxy":                      TestPassLikeReverseProxy,
		"ServerThatDoesNotReply":                    TestServerThatDoesNotReply,
		"EventsArriveAtOnce":                        TestEventsArriveAtOnce,
		"ClientLeavesMidway":                        TestClientLeavesMidway,
		"SlowResponseHead":                          TestSlowResponseHead,
		"ClientThatDoesNotReadTheResponse":          TestClientThatDoesNotReadTheResponse,
		"RestIsHandedOver":                          TestRestIsHandedOver,
		"RequestsThatAreNotPlainAreServedByNetHTTP": TestRequestsThatAreNotPlainAreServedByNetHTTP,
		"ClientLeaves":                              TestClientLeaves,
		"NextRequestWhileWatched":                   TestNextRequestWhileWatched,
		"ContextEnds":                               TestContextEnds,
		"Shutdown":                                  TestShutdown,
		"ShutdownGivesUp":                           TestShutdownGivesUp,
		"ShutdownOfIdleConnections":                 TestShutdownOfIdleConnections,
		"ShutdownDuringAHead":                       TestShutdownDuringAHead,
		"ShutdownOfNewConnections":                  TestShutdownOfNewConnections,
		"Times":                                     TestTimes,
		"States":                                    TestStates,
		"SlowBodyIsHandedOver":                      TestSlowBodyIsHandedOver,
		"ClientLeavesAtOnce":                        TestClientLeavesAtOnce,
		"ClientThatPipelinedLeaves":                 TestClientThatPipelinedLeaves,
		"HangupsEnd":                                TestHangupsEnd,
		"OddStreamsLikeNetHTTP":                     TestOddStreamsLikeNetHTTP,
		"ConnectionsAreKept":                        TestConnectionsAreKept,
		"IdleConnectionThatWasClosed":               TestIdleConnectionThatWasClosed,
		"UnsolicitedResponse":                       TestUnsolicitedResponse,
		"LikeNetHTTP":                               TestLikeNetHTTP,
	} {
		allLater, allReused = false, false
		t.Run(name, test)
		allReused = name != "ContextEnds" // its handlers keep contexts
		t.Run(name+"/reused", test)
		allLater = true
		t.Run(name+"/later and reused", test)
	}
}

// loops has a test's connections in loops.
func loops(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there are none on this system")
	}
	inLoops = true
	t.Cleanup(func() { inLoops = false })
}

// TestNoGoroutineWhileIdle: connections whose requests were answered have no goroutine and no buffer, and
// they end with the server.
func TestNoGoroutineWhileIdle(t *testing.T) {
	loops(t)
	before := runtime.NumGoroutine()
	s, addr := serve(t, echo)
	var all []net.Conn
	for range 200 {
		c := dial(t, addr)
		ask(t, c, bufio.NewReader(c), "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		all = append(all, c)
	}
	until(t, "no goroutine for each connection", func() bool { return runtime.NumGoroutine() < before+50 })
	until(t, "no buffer", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.conns {
			if c.busy.Load() {
				return false
			}
		}
		return true
	})
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	for _, c := range all {
		if n, err := c.Read(make([]byte, 1)); n > 0 || err != io.EOF {
			t.Errorf("%d %v", n, err)
		}
	}
}

// TestWaitingRequestsLetOthersPass: handlers that wait do not hold up other connections, whether they ask
// for the end of their context, write to a client that reads slowly, or just wait.
func TestWaitingRequestsLetOthersPass(t *testing.T) {
	loops(t)
	release := make(chan struct{})
	var waiting atomic.Int32
	_, addr := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.RequestURI {
		case "/context":
			waiting.Add(1)
			select {
			case <-r.Context().Done():
			case <-release:
			}
		case "/detach":
			Detach(r.Context())
			waiting.Add(1)
			<-release
		case "/wait":
			waiting.Add(1)
			<-release
		case "/write":
			waiting.Add(1)
			for range 256 {
				w.Write(make([]byte, 64<<10))
			}
		}
		echo(w, r)
	}))
	var slow []net.Conn
	for i, path := range strings.Fields(strings.Repeat("/context /detach /wait /write ", 8)) {
		c := dial(t, addr)
		io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: h\r\n\r\n")
		slow = append(slow, c)
		until(t, "it waits", func() bool { return waiting.Load() == int32(i+1) })
		quick := dial(t, addr)
		for range 3 {
			ask(t, quick, bufio.NewReader(quick), "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		}
	}
	close(release)
	for _, c := range slow {
		if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 200 {
			t.Error(err)
		} else if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Error(err)
		}
	}
}

// TestPipelineWithoutEnd: a client that sends requests ahead without end gets its responses in order, and
// other clients theirs meanwhile. It goes on for as long as the other clients take.
func TestPipelineWithoutEnd(t *testing.T) {
	loops(t)
	_, addr := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.RequestURI) }))
	var stop atomic.Bool
	var all sync.WaitGroup
	for range 4 {
		c := dial(t, addr)
		var sent atomic.Int64
		all.Go(func() {
			for n := 0; !stop.Load(); {
				var b bytes.Buffer
				for range 50 {
					fmt.Fprintf(&b, "GET /%d HTTP/1.1\r\nHost: h\r\n\r\n", n)
					n++
				}
				c.SetWriteDeadline(time.Now().Add(patience))
				if _, err := c.Write(b.Bytes()); err != nil {
					t.Error(err)
					return
				}
				sent.Store(int64(n))
			}
			c.(*net.TCPConn).CloseWrite()
		})
		all.Go(func() {
			in := bufio.NewReader(c)
			n := 0
			for ; ; n++ {
				if n%50 == 0 {
					c.SetReadDeadline(time.Now().Add(patience))
				}
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					break
				}
				if body, err := io.ReadAll(resp.Body); err != nil || string(body) != fmt.Sprintf("/%d", n) {
					t.Errorf("%q for %d: %v", body, n, err)
					return
				}
			}
			if !stop.Load() || int64(n) != sent.Load() {
				t.Errorf("%d responses to %d requests", n, sent.Load())
			}
		})
	}
	for range 50 {
		c := dial(t, addr)
		ask(t, c, bufio.NewReader(c), "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	}
	stop.Store(true)
	all.Wait()
}

// TestEndsInEachState: connections end in each state in which the server, the client, or the time can end
// them, and leave no goroutine, no descriptor and no place.
func TestEndsInEachState(t *testing.T) {
	loops(t)
	states := map[string]string{
		"new":       "",
		"in a head": "GET / HTTP/1.1\r\nHo",
		"in a body": "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf",
		"served":    "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
		"waiting":   "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n",
		"later":     "GET /later HTTP/1.1\r\nHost: h\r\n\r\n",
		"writing":   "GET /write HTTP/1.1\r\nHost: h\r\n\r\n",
		"pipelined": strings.Repeat("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n", 5),
		"handed":    "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
		"long":      "GET / HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("x", maxHead),
	}
	ends := map[string]func(net.Conn, *Server){
		"reset":    func(c net.Conn, _ *Server) { c.(*net.TCPConn).SetLinger(0); c.Close() },
		"close":    func(c net.Conn, _ *Server) { c.Close() },
		"half":     func(c net.Conn, _ *Server) { c.(*net.TCPConn).CloseWrite(); go io.Copy(io.Discard, c) },
		"Close":    func(_ net.Conn, s *Server) { s.Close() },
		"Shutdown": func(c net.Conn, s *Server) { c.Close(); go s.Shutdown(t.Context()) },
	}
	draw := seeds.Of(t.Name())
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	for range 3 {
		for end := range ends {
			release := make(chan struct{})
			var open atomic.Int32
			s := &Server{Bodies: true, HTTP: &http.Server{
				ReadHeaderTimeout: time.Second, IdleTimeout: time.Second,
				ConnState: func(_ net.Conn, to http.ConnState) {
					switch to {
					case http.StateNew:
						open.Add(1)
					case http.StateClosed, http.StateHijacked:
						open.Add(-1)
					}
				},
				Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					wait := func() {
						select {
						case <-r.Context().Done():
						case <-release:
						}
					}
					switch r.RequestURI {
					case "/wait":
						wait()
					case "/later":
						if !Later(r.Context(), wait) {
							wait()
						}
					case "/write":
						for range 200 {
							if _, err := w.Write(make([]byte, 64<<10)); err != nil {
								return
							}
						}
					}
				})}}
			l, err := listens()
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan struct{})
			go func() { s.Serve(l); close(served) }()
			var clients []net.Conn
			for state, bytes := range states {
				c, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					if strings.ToLower(end) == end {
						t.Fatal(err)
					}
					break // the server has been shut down
				}
				clients = append(clients, c)
				io.WriteString(c, bytes)
				if state == "served" {
					c.Read(make([]byte, 1))
				}
				for range draw.IntN(3) {
					runtime.Gosched()
				}
				if strings.ToLower(end) == end || draw.IntN(4) == 0 {
					ends[end](c, s)
				}
			}
			close(release)
			s.Close()
			<-served
			for _, c := range clients {
				c.Close()
			}
			s.open.Wait()
			until(t, "no connection is open, here or at net/http", func() bool { return open.Load() == 0 })
		}
	}
	until(t, "no goroutine and no file is left", func() bool { return runtime.NumGoroutine() <= goroutines && openFiles(t) <= files })
}

func openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
