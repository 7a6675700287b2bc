package main

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"time"
)

const (
	logLines   = 1_000_000
	logClients = 10_000
	logEach    = 10 * time.Millisecond // from one request to the next
)

// logAgents are the user agents of the generated log, as long as real ones.
var logAgents = [...]string{
	"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36",
	"Mozilla/5.0 (iPhone; CPU iPhone OS 17_2 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.2 Mobile/15E148 Safari/604.1",
	"Mozilla/5.0 (X11; Linux x86_64; rv:121.0) Gecko/20100101 Firefox/121.0",
	"curl/8.4.0",
}

// writeLog writes an access log in the Combined format, always the same one: 100 lines per second
// of log time. The k-th client sends about 1/k as often as the first. The lines are in the order of
// their times, or shuffled.
func writeLog(w io.Writer, lines int, shuffled bool) error {
	r := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(r, 1.1, 1, logClients-1)
	clients := make([]uint64, lines)
	for i := range clients {
		clients[i] = zipf.Uint64()
	}
	order := make([]int, lines)
	for i := range order {
		order[i] = i
	}
	if shuffled {
		r.Shuffle(lines, func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	out := bufio.NewWriterSize(w, 1<<20)
	var line []byte
	for _, i := range order {
		line = appendLine(line[:0], i, clients[i])
		if _, err := out.Write(line); err != nil {
			return err
		}
	}
	return out.Flush()
}

// appendLine writes the i-th line of the log, of a client.
func appendLine(b []byte, i int, client uint64) []byte {
	r := rand.New(rand.NewPCG(uint64(i), client))
	b = fmt.Appendf(b, "10.%d.%d.%d - - [", client>>8, client&0xff, client%250+1)
	b = time.Date(2024, 3, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(i)*logEach).AppendFormat(b, "02/Jan/2006:15:04:05 -0700")
	b = fmt.Appendf(b, `] "GET /shop/items/%d?page=%d HTTP/1.1" 200 %d`, r.IntN(50_000), r.IntN(9)+1, r.IntN(40_000)+200)
	return fmt.Appendf(b, " \"https://shop.example/search?q=%d\" \"%s\"\n", r.IntN(10_000), logAgents[client%uint64(len(logAgents))])
}
