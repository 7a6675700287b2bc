package service

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirclient"
)

var connections = flag.Int("connections", 300, "how many clients TestManyConnections has")

// TestManyConnections: clients that send nothing, half a call, or read no responses take nothing from
// those that call. Those are counted exactly, on connections that stay open.
func TestManyConnections(t *testing.T) {
	address := serve(t, strings.Replace(policy, "token_bucket: { rate: 1/h, burst: 5 }", "fixed_window: { limit: 1000000, window: 9000h }", 1))
	call := func(operation string) string {
		const body = `{"limit": "per-user", "key": ["ann"]}`
		return fmt.Sprintf("POST /v1/%s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", operation, address, len(body), body)
	}
	take, flood := call("take"), strings.Repeat(call("peek"), 100)
	var open []net.Conn // connections of clients that call
	for i := range *connections {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		switch {
		case i%100 == 0: // it never reads its responses
			go func() {
				for {
					if _, err := io.WriteString(c, flood); err != nil {
						return
					}
				}
			}()
		case i%3 == 1:
			_, _ = io.WriteString(c, take[:len(take)-10])
		case i%3 == 2:
			open = append(open, c)
			if err := takes(c, take); err != nil {
				t.Fatalf("client %d: %v", i, err)
			}
		}
	}
	for i, c := range open {
		if err := takes(c, take); err != nil {
			t.Fatalf("client %d of those that call, for the second time: %v", i, err)
		}
	}
	a, err := client(t, address).Peek(t.Context(), weirclient.Ask{Limit: "per-user", Key: []string{"ann"}})
	if err != nil || a.Limits[0].Remaining != int64(1_000_000-2*len(open)) {
		t.Errorf("%+v, %v: want %d to be used", a, err, 2*len(open))
	}
}

// takes makes a call that must be admitted.
func takes(c net.Conn, call string) error {
	if err := c.SetDeadline(time.Now().Add(servers.Patience)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, call); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s, %w", response.Status, body, err)
	}
	return nil
}
