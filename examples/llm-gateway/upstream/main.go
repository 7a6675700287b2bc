// Upstream stands in for the APIs of OpenAI, Anthropic and Gemini.
package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/weirflow/weir/examples/llm-gateway/standin"
)

func main() {
	address := flag.String("listen", "127.0.0.1:9000", "the address")
	pace := flag.Duration("pace", 20*time.Millisecond, "the time between two tokens")
	flag.Parse()
	server := &http.Server{Addr: *address, Handler: &standin.Upstream{Pace: *pace}, ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
	os.Exit(1)
}
