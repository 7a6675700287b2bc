// Client sends requests to a language model all at once, and says what became of each.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
)

func main() {
	url := flag.String("url", "http://127.0.0.1:8080", "the gateway")
	n := flag.Int("n", 6, "how many requests are sent at once")
	most := flag.Int("max-tokens", 400, "max_tokens of each")
	flag.Parse()
	statuses := make([]string, *n)
	var all sync.WaitGroup
	for i := range *n {
		all.Go(func() { statuses[i] = ask(*url, *most) })
	}
	all.Wait()
	counts := map[string]int{}
	for _, s := range statuses {
		counts[s]++
	}
	for _, s := range []string{"200 OK", "429 Too Many Requests"} {
		fmt.Fprintf(os.Stdout, "%d requests with max_tokens %d got %s\n", counts[s], *most, s)
		delete(counts, s)
	}
	for s, count := range counts {
		fmt.Fprintf(os.Stdout, "%d requests: %s\n", count, s)
	}
}

// ask reads a stream to its end, and returns the status.
func ask(url string, most int) string {
	body := fmt.Sprintf(`{"model":"gpt","max_tokens":%d,"stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"Tell me more."}]}`, most)
	r, err := http.NewRequest("POST", url+"/v1/chat/completions", bytes.NewReader([]byte(body)))
	if err != nil {
		return err.Error()
	}
	r.Header.Set("Authorization", "Bearer go-client")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err.Error()
	}
	return resp.Status
}
