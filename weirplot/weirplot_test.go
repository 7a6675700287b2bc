package weirplot

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"image/png"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/sim"
)

// hostile is a text that would harm a page, a picture or a terminal.
const hostile = "<script>alert(1)</script>&\"'\x1b[2J\u202e\u2066\x00\xff"

// report replays a log in which each text is hostile.
func report(t *testing.T, lines int) *sim.Report {
	t.Helper()
	log := ""
	for i := range lines {
		at := time.Date(2024, 1, 1, 0, 0, i, 0, time.UTC).Format("02/Jan/2006:15:04:05 -0700")
		client := strings.ReplaceAll(hostile, " ", "") + fmt.Sprint(i%3)
		log += fmt.Sprintf("%s - - [%s] \"GET /%s HTTP/1.1\" 200 5 \"-\" \"%s\"\n", client, at, strings.ReplaceAll(hostile, `"`, ""), strings.ReplaceAll(hostile, `"`, ""))
	}
	p := policy.Policy{
		Limits: []policy.Limit{{Name: "l", Key: []string{"client.ip"}, Limit: weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 2}}},
		Routes: []policy.Route{{Match: "/", Limits: []string{"l"}}},
	}
	r, err := sim.Replay(t.Context(), sim.Options{Policy: p, Profiles: true, Inputs: []sim.Input{{Name: hostile, R: strings.NewReader(log)}}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestPageIsHarmless: a page has the numbers of the report, needs nothing else, and no text of the log is markup or a
// control character in it.
func TestPageIsHarmless(t *testing.T) {
	r := report(t, 60)
	if r.Limited == 0 || len(r.Doing) != 3 || len(r.Doing[0].Paths) == 0 {
		t.Fatalf("%+v", r)
	}
	var b bytes.Buffer
	if err := WritePage(&b, r); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, bad := range []string{"<script", "\x1b", "\u202e", "\u2066", "\x00", "\xff", "src=", "http-equiv=\"refresh"} {
		if strings.Contains(text, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	for _, want := range []string{fmt.Sprintf("%d requests of 3 clients", r.Requests), fmt.Sprintf(`<td>limited</td><td class="n">%d</td>`, r.Limited), "&lt;script&gt;alert(1)", "default-src 'none'"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if n := strings.Count(text, "<svg"); n != 3 {
		t.Errorf("%d plots", n)
	}
}

// TestPlots: each plot is a valid picture.
func TestPlots(t *testing.T) {
	plots, err := Plots(report(t, 60))
	if err != nil || len(plots) != 3 {
		t.Fatal(plots, err)
	}
	for _, p := range plots {
		var svg, raster bytes.Buffer
		if err := p.Encode(&svg, "svg"); err != nil {
			t.Fatal(err)
		}
		d := xml.NewDecoder(&svg)
		for {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Errorf("%s: %v", p.Name, err)
				break
			}
		}
		if err := p.Encode(&raster, "png"); err != nil {
			t.Fatal(err)
		}
		if picture, err := png.Decode(&raster); err != nil || picture.Bounds().Dx() < 500 {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}

// TestEmptyReport: without requests, there is a page without plots.
func TestEmptyReport(t *testing.T) {
	var b bytes.Buffer
	if err := WritePage(&b, report(t, 0)); err != nil || strings.Contains(b.String(), "<svg") {
		t.Errorf("%v, %s", err, b.String())
	}
	if err := WritePage(&b, report(t, 1)); err != nil {
		t.Error(err)
	}
}

// TestSweepPageIsHarmless: the page of a sweep has its plot and a line for each combination, and no text of the policy or
// of a log's name is markup or a control character in it.
func TestSweepPageIsHarmless(t *testing.T) {
	r := &sim.SweepReport{
		Reading: sim.Reading{Requests: 200, Formats: []sim.LogFormat{{Input: hostile, Format: "common"}}},
		Limit:   hostile, Parameters: []string{"rate", "burst"}, Clients: 8,
	}
	for _, rate := range []string{"1/s", "2/s"} {
		for _, burst := range []string{"1", "5"} {
			r.Combinations = append(r.Combinations, sim.Combination{Values: []string{rate, burst}, Limited: 7, Clients: 2, Delayed: 3})
		}
	}
	var b bytes.Buffer
	if err := WriteSweepPage(&b, r); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, bad := range []string{"<script", "\x1b", "\u202e", "\u2066", "\x00", "\xff", "src="} {
		if strings.Contains(text, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	row := `<td class="n">7</td><td class="n">3.50 %</td><td class="n">2</td><td class="n">25.00 %</td><td class="n">3</td></tr>`
	if n := strings.Count(text, row); n != 4 || strings.Count(text, "<svg") != 1 || !strings.Contains(text, "200 requests of 8 clients") {
		t.Errorf("%d rows: %s", n, text)
	}
	b.Reset()
	if err := WriteSweepPage(&b, &sim.SweepReport{}); err != nil || strings.Contains(b.String(), "<svg") {
		t.Errorf("%v, %s", err, b.String())
	}
}
