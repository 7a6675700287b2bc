// Command jsonfloor answers POST /v1/take without deciding: the least that a server of net/http has to
// do for it. It prints its address.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

const answer = `{"allowed":true,"limits":[{"limit":"per-user","allowed":true,"capacity":1000000000,"remaining":999999999,"reset_after_ms":1,"window_ms":3600000,"source":"local"}]}` + "\n"

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		fmt.Fprintln(os.Stdout, l.Addr())
		err = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, answer)
		}))
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
