package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirhttp"
)

// firstByteLater is by how much the first byte may come later if the cost of the response is read.
const firstByteLater = 1.02

// A firstByte is a way by which the first bytes of streams come.
type firstByte struct {
	name, without string // without is the same way, without reading
	client        *http.Client
	url           string
	took          []float64 // in us
}

// firstBytes measures how long the first byte of a streamed response takes, through a gateway and a
// Transport, with and without reading what the response costs. The ways take turns, request by request.
func firstBytes(r *report, dir string) (err error) {
	chunk := usageStreams()[0].event
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range 3 {
			_, _ = io.WriteString(w, chunk)
			w.(http.Flusher).Flush()
		}
	}))
	defer up.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // to build weir
	defer cancel()
	binary, err := servers.BuildWeir(ctx, dir)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, `
listen: { gateway: "127.0.0.1:0", admin: "127.0.0.1:0" }
limits:
  known: { token_bucket: { rate: 1000000000/s, burst: 1000000000 }, cost: { before: 100 } }
  read: { token_bucket: { rate: 1000000000/s, burst: 1000000000 }, cost: { before: 100, after: openai } }
upstreams: { up: { url: %q } }
routes:
  - { match: /known, upstream: up, limits: [known] }
  - { match: /read, upstream: up, limits: [read] }
`, up.URL), 0o600); err != nil {
		return err
	}
	gateway, err := servers.StartWeir(ctx, binary, file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, gateway.Stop()) }()
	paced := func(options ...weirhttp.Option) (*http.Client, error) {
		l, err := weir.New(weir.TokenBucket{Rate: weir.PerSecond(1e9), Burst: 1e9})
		if err != nil {
			return nil, err
		}
		options = append(options, weirhttp.Cost(func(*http.Request) int64 { return 100 }))
		return &http.Client{Transport: weirhttp.NewTransport(http.DefaultTransport, weirhttp.Pace(weirhttp.One(l), weirhttp.Global(), options...))}, nil
	}
	known, err := paced()
	if err != nil {
		return err
	}
	read, err := paced(weirhttp.ActualFrom("openai"))
	if err != nil {
		return err
	}
	ways := []*firstByte{
		{name: "the upstream itself", client: http.DefaultClient, url: up.URL},
		{name: "gateway, known cost", client: http.DefaultClient, url: "http://" + gateway.Gateway + "/known"},
		{name: "gateway, read cost", client: http.DefaultClient, url: "http://" + gateway.Gateway + "/read", without: "gateway, known cost"},
		{name: "Transport, known cost", client: known, url: up.URL},
		{name: "Transport, read cost", client: read, url: up.URL, without: "Transport, known cost"},
	}
	for round := range 20 * r.rounds {
		for _, i := range turns(round, len(ways)) {
			if err := ways[i].measure(); err != nil {
				return fmt.Errorf("%s: %w", ways[i].name, err)
			}
		}
	}
	r.add(firstByteTable(ways))
	return nil
}

// measure sends a request, and reads the response to its end.
func (f *firstByte) measure() error {
	begin := time.Now()
	resp, err := f.client.Get(f.url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var first [1]byte
	if _, err := io.ReadFull(resp.Body, first[:]); err != nil {
		return err
	}
	f.took = append(f.took, float64(time.Since(begin).Nanoseconds())/1000)
	rest, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(rest), "chat.completion.chunk") {
		return fmt.Errorf("%s: %.100q", resp.Status, rest)
	}
	return err
}

func firstByteTable(ways []*firstByte) table {
	t := table{
		Title:   "the first byte of a streamed response",
		Notes:   []string{fmt.Sprintf("%d requests each, which take turns", len(ways[0].took))},
		Columns: []column{{"us", 1}, {"p10", 1}, {"p90", 1}, {"/ known", 3}},
	}
	medians := values{}
	for _, f := range ways {
		medians[f.name] = median(f.took)
		ratio := values{}
		if f.without != "" {
			ratio["/"] = medians[f.name] / medians[f.without]
		}
		r := row{Name: f.name, Values: []float64{medians[f.name], percentile(f.took, 0.1), percentile(f.took, 0.9), ratio.get("/")}}
		if f.without != "" {
			r.Target, r.Missed = atMost(ratio["/"], firstByteLater, "of that without")
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}
