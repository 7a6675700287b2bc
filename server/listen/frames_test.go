package listen

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir/internal/seeds"
)

// anyFrame draws a frame of HTTP/2. It also returns whether a header is incomplete after it.
func anyFrame(rng *rand.Rand, open bool) (text string, stillOpen bool) {
	kind, flags := byte(rng.IntN(9)), byte(rng.IntN(256))
	if open {
		kind = frameContinuation
	}
	payload := strings.Repeat("x", rng.IntN(40))
	if rng.IntN(3) == 0 {
		payload = ""
	}
	text = string([]byte{0, 0, byte(len(payload)), kind, flags, 0, 0, 0, 1}) + payload
	if kind == frameHeaders || kind == frameContinuation {
		return text, flags&flagEndHeaders == 0
	}
	return text, open
}

// TestFramesInTime sends random frames in random pieces, in virtual time. The connection ends
// exactly when something that has begun, other than the payload of DATA, is incomplete for the
// timeout.
func TestFramesInTime(t *testing.T) {
	const timeout = 10 * time.Second
	rng := seeds.Of(t.Name())
	for range 300 {
		text, open := preface, false
		begun := make([]bool, len(preface)) // by the number of bytes sent: whether something is incomplete
		ends := []int{}                     // the positions at which nothing is incomplete
		for i := range begun {
			begun[i] = i > 0
		}
		ends = append(ends, len(text))
		for range rng.IntN(8) {
			wasOpen := open
			var frame string
			frame, open = anyFrame(rng, open)
			for i := range len(frame) {
				inData := i >= 9 && frame[3] == frameData
				begun = append(begun, wasOpen || i > 0 && !inData)
			}
			if text += frame; !open {
				ends = append(ends, len(text))
			}
		}
		begun = append(begun, open)
		synctest.Test(t, func(t *testing.T) {
			client, server := net.Pipe()
			f := newFrames(server, timeout)
			ended := make(chan error, 1)
			go func() {
				_, err := io.Copy(io.Discard, f)
				server.Close()
				ended <- err
			}()
			defer client.Close()
			at, since := 0, time.Now()
			for at < len(text) {
				n := min(1+rng.IntN(30), len(text)-at)
				if _, err := io.WriteString(client, text[at:at+n]); err != nil {
					t.Fatalf("at %d of %q: %v", at, text, err)
				}
				restarted := !begun[at]
				for _, end := range ends {
					restarted = restarted || at < end && end <= at+n
				}
				at += n
				if restarted {
					since = time.Now()
				}
				wait := time.Duration(rng.IntN(4)) * time.Second
				if begun[at] && time.Since(since)+wait >= timeout {
					wait = timeout - time.Since(since) - time.Millisecond // still in time
				}
				<-time.After(wait)
			}
			synctest.Wait()
			select {
			case err := <-ended:
				t.Fatalf("%q: ended too early: %v", text, err)
			default:
			}
			if !begun[at] {
				<-time.After(time.Hour)
				synctest.Wait()
				if len(ended) > 0 {
					t.Errorf("%q: a connection with nothing incomplete ended: %v", text, <-ended)
				}
				return
			}
			<-time.After(time.Until(since.Add(timeout)))
			synctest.Wait()
			select {
			case err := <-ended:
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%q: %v", text, err)
				}
			default:
				t.Errorf("%q: it may go on", text)
			}
		})
	}
}

// TestNoHTTP2: other bytes than the preface are not passed on: behind it, nothing is guarded. They end
// the connection without a response, as the client would not understand one of HTTP/1.
func TestNoHTTP2(t *testing.T) {
	for i := range preface {
		text := preface[:i] + string([]byte{preface[i] ^ 1}) + preface[i+1:]
		for _, cut := range []int{0, i, len(text)} {
			conn := &played{pieces: [][]byte{[]byte(text[:cut]), []byte(text[cut:])}}
			f := newFrames(conn, time.Second)
			if got, err := io.ReadAll(f); err == nil || len(got) > i || !conn.closed {
				t.Errorf("%q: %q, %v; closed: %v", text, got, err, conn.closed)
			}
		}
	}
	for _, cut := range []int{0, 5, len(preface)} {
		f := newFrames(&played{pieces: [][]byte{[]byte(preface[:cut]), []byte(preface[cut:])}}, time.Second)
		if got, err := io.ReadAll(f); err != nil || string(got) != preface {
			t.Errorf("%q, %v", got, err)
		}
	}
}
