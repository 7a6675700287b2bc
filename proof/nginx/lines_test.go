package nginx

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// lineConf has limits of one request a minute: within 60 ms nothing drains, so the excess is the same to
// a thousandth.
const lineConf = `
	error_log error.log info;
	limit_req_zone $arg_k zone=one:1m rate=1r/m;
	limit_req_zone $arg_k zone=dry:1m rate=1r/m;
	limit_conn_zone $arg_k zone=conns:1m;
	limit_conn_zone $arg_k zone=dryconns:1m;
	server {
		listen {{.Addr}};
		location /delay/ { limit_req zone=one burst=2 delay=1; proxy_pass http://UP; }
		location /level/ { limit_req zone=one burst=2 delay=1; limit_req_log_level notice; proxy_pass http://UP; }
		location /dry/ { limit_req zone=dry burst=1; limit_req_dry_run on; limit_req_log_level warn; proxy_pass http://UP; }
		location /conns/ { limit_conn conns 1; limit_conn_log_level info; proxy_pass http://UP; }
		location /dryconns/ { limit_conn dryconns 1; limit_conn_dry_run on; proxy_pass http://UP; }
	}`

// TestSameLines: nginx and the gateway write the same lines at the same levels, with the same excess.
func TestSameLines(t *testing.T) {
	p := start(t, strings.ReplaceAll(lineConf, "UP", upstream(t)), nil)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	for _, path := range []string{"/delay/", "/level/", "/dry/", "/conns/", "/dryconns/"} {
		var nginx, weir []string
		for try := range tries { // more than 60 ms between two requests make another excess
			from, since := p.nginxLines(t), p.weirLines()
			for _, addr := range []string{p.nginx.Addr, p.weir.Gateway} {
				five(t, client, "http://"+addr+path+"?k="+string(rune('a'+try)))
			}
			p.settled(t, len(from), len(since))
			nginx, weir = p.nginxLines(t)[len(from):], p.weirLines()[len(since):]
			if len(nginx) > 0 && slices.Equal(nginx, weir) {
				break
			}
		}
		if t.Logf("%s %q", path, weir); len(nginx) == 0 || !slices.Equal(nginx, weir) {
			t.Errorf("%s: nginx wrote\n\t%s\nand weir\n\t%s", path, strings.Join(nginx, "\n\t"), strings.Join(weir, "\n\t"))
		}
	}
}

// five sends five requests shortly after each other, and cancels them after a while.
func five(t *testing.T, client *http.Client, url string) {
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	done := make(chan struct{})
	for range 5 {
		go func() {
			defer func() { done <- struct{}{} }()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Hold", "350ms")
			if resp, err := client.Do(r); err == nil { // one that is held back is not waited for
				resp.Body.Close()
			}
		}()
		timer := time.NewTimer(8 * time.Millisecond)
		<-timer.C
	}
	for range 5 {
		<-done
	}
}

// settled waits until both servers have written as many lines, for at most a second.
func (p *pair) settled(t *testing.T, nginx, weir int) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for n, w := 0, 0; n == 0 || n != w; {
		n, w = len(p.nginxLines(t))-nginx, len(p.weirLines())-weir
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

var nginxLine = regexp.MustCompile(`\[(error|warn|notice|info)\] [0-9]+#[0-9]+: \*[0-9]+ ((?:limiting|delaying) .*), client: `)

func (p *pair) nginxLines(t *testing.T) (lines []string) {
	text, err := os.ReadFile(filepath.Join(p.dir, "error.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range nginxLine.FindAllStringSubmatch(string(text), -1) {
		lines = append(lines, found[1]+": "+found[2])
	}
	return lines
}

func (p *pair) weirLines() (lines []string) {
	levels := map[string]string{"ERROR": "error", "WARN": "warn", "INFO+2": "notice", "INFO": "info"}
	for s := bufio.NewScanner(strings.NewReader(p.weir.Output())); s.Scan(); {
		var line struct{ Level, Msg, Limit string }
		if json.Unmarshal(s.Bytes(), &line) == nil && line.Limit != "" {
			lines = append(lines, levels[line.Level]+": "+line.Msg)
		}
	}
	return lines
}
