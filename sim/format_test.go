package sim

import (
	"strings"
	"testing"
)

// Lines as the servers' documentation describes them, with one of each kind of trouble.
const (
	haproxyLines = `Feb  6 12:14:14 localhost haproxy[14389]: 10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {shop.example} {} "GET /index.html?a=b HTTP/1.1"
<134>1 2009-02-06T12:14:15Z lb haproxy 14389 - - 2001:db8::7:33318 [06/Feb/2009:12:14:15.001] http-in~ static/srv1 0/0/0/5/+5 404 +212 - - ---- 1/1/1/1/0 0/0 "POST /cart HTTP/2.0" 0/0000000000000000/0/0/0 shop.example/TLSv1.3/TLS_AES_128_GCM_SHA256
10.0.1.3:33319 [06/Feb/2009:12:14:15.002] http-in http-in/<NOSRV> -1/-1/-1/-1/3 400 187 - - PR-- 1/1/0/0/0 0/0 "<BADREQ>"
`
	envoyLines = `[2016-04-15T20:17:00.310Z] "POST /api/v1/locations HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "nsq2http" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "locations" "tcp://10.0.2.1:80"
[2016-04-15T20:17:01.5Z] "GET /a?b=c HTTP/1.1" 0 DC 0 0 5 - "203.0.113.9, 10.0.35.28" "agent \"x\"" "id" "shop.example:443" "-"
[2016-04-15T20:17:02.000Z] "GET / HTTP/1.1" 200 - 0 12 5 1 "-" "curl" "id" "shop.example" "10.0.2.1:80"
`
	istioLines = `[2020-11-25T21:26:18.409Z] "GET /status/418 HTTP/1.1" 418 - via_upstream - "-" 0 135 4 4 "-" "curl/7.73.0-DEV" "84961386-6d84-929d-98bd-c5aee93b5c88" "httpbin:8000" "127.0.0.1:80" inbound|8000|| 127.0.0.1:41854 10.44.1.27:80 10.44.1.23:37652 outbound_.8000_._.httpbin.foo.svc.cluster.local default
`
	albLines = `https 2018-07-02T22:23:00.186641Z app/my-loadbalancer/50dc6c495c0c9188 192.0.2.39:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "GET https://www.example.com:443/a?b=c HTTP/1.1" "curl/7.46.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/my-targets/73e2d6bc24d8a067 "Root=1-58337281-1d84f3d73c47ec4e58577259" "www.example.com" "arn:aws:acm:us-east-2:123456789012:certificate/12345678-1234-1234-1234-123456789012" 1 2018-07-02T22:22:48.364000Z "authenticate,forward" "-" "-" "10.0.0.1:80" "200" "-" "-"
http 2018-07-02T22:23:01.186641Z app/my-loadbalancer/50dc6c495c0c9188 [2001:db8::5]:2817 - -1 -1 -1 460 - 34 0 "- http://www.example.com:80- " "-" - - arn "Root=1" "-" "-" 0 2018-07-02T22:22:48.364000Z "-"
`
	cloudflareLines = `{"ClientIP":"192.0.2.11","ClientRequestHost":"shop.example","ClientRequestMethod":"GET","ClientRequestURI":"/x?y=1","ClientRequestUserAgent":"Googlebot/2.1","EdgeEndTimestamp":1545155129703000000,"EdgeResponseBytes":1935,"EdgeResponseStatus":403,"EdgeStartTimestamp":1545155129696000000,"RayID":"48b371889c489b2c"}
{"ClientIP":"2001:db8::1","ClientRequestHost":"shop.example","ClientRequestMethod":"POST","ClientRequestURI":"/x","EdgeStartTimestamp":"2018-12-18T17:45:30Z","EdgeResponseStatus":200}
`
	caddyLines = `{"level":"info","ts":1646861401.5241024,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"127.0.0.1","remote_port":"41342","client_ip":"192.0.2.7","proto":"HTTP/2.0","method":"GET","host":"localhost","uri":"/a","headers":{"User-Agent":["curl/7.82.0"]}},"bytes_read":0,"duration":0.000929675,"size":10900,"status":200,"resp_headers":{}}
`
)

// TestFormats: the lines of each server are found to be of their format, and read as they are meant.
func TestFormats(t *testing.T) {
	for _, c := range []struct {
		format, lines string
		want          []string // TIME CLIENT METHOD TARGET HOST STATUS AGENT; empty for unreadable lines
	}{
		{"haproxy", haproxyLines, []string{
			"2009-02-06T12:14:14.655Z 10.0.1.2 GET /index.html?a=b  200 ",
			"2009-02-06T12:14:15.001Z 2001:db8::7 POST /cart  404 ", ""}},
		{"envoy", envoyLines, []string{
			"2016-04-15T20:17:00.31Z 10.0.35.28 POST /api/v1/locations locations 204 nsq2http",
			`2016-04-15T20:17:01.5Z 10.0.35.28 GET /a?b=c shop.example:443 0 agent \"x\"`, ""}},
		{"istio", istioLines, []string{"2020-11-25T21:26:18.409Z 10.44.1.23 GET /status/418 httpbin:8000 418 curl/7.73.0-DEV"}},
		{"alb", albLines, []string{"2018-07-02T22:23:00.186641Z 192.0.2.39 GET /a?b=c www.example.com:443 200 curl/7.46.0", ""}},
		{"cloudflare", cloudflareLines, []string{
			"2018-12-18T17:45:29.696Z 192.0.2.11 GET /x?y=1 shop.example 403 Googlebot/2.1",
			"2018-12-18T17:45:30Z 2001:db8::1 POST /x shop.example 200 "}},
		{"caddy", caddyLines, []string{"2022-03-09T21:30:01.5241024Z 192.0.2.7 GET /a localhost 200 curl/7.82.0"}},
		{"combined", `192.0.2.3 - u [10/Oct/2000:13:55:36 -0700] "GET /x HTTP/1.1" 200 5 "-" "agent"` + "\n", []string{"2000-10-10T20:55:36Z 192.0.2.3 GET /x  200 agent"}},
		// Apache's vhost_combined: the virtual host was taken for the client, one for all requests
		{"combined", `shop.example:443 192.0.2.3 - - [10/Oct/2000:13:55:36 -0700] "GET /x HTTP/1.1" 200 5 "-" "agent"` + "\n" +
			`shop.example 2001:db8::7 - u [10/Oct/2000:13:55:37 -0700] "GET /y HTTP/1.1" 200 5 "-" "agent"` + "\n" +
			`shop.example:80 client.example - - [10/Oct/2000:13:55:38 -0700] "GET /z HTTP/1.1" 200 5 "-" "agent"` + "\n" +
			`192.0.2.3 - a b [10/Oct/2000:13:55:39 -0700] "GET /x HTTP/1.1" 200 5 "-" "agent"` + "\n", []string{
			"2000-10-10T20:55:36Z 192.0.2.3 GET /x shop.example:443 200 agent",
			"2000-10-10T20:55:37Z 2001:db8::7 GET /y shop.example 200 agent",
			"2000-10-10T20:55:38Z client.example GET /z shop.example:80 200 agent",
			"2000-10-10T20:55:39Z 192.0.2.3 GET /x  200 agent"}},
		{"common", `192.0.2.3 - u [10/Oct/2000:13:55:36 -0700] "GET /x HTTP/1.1" 304 -` + "\n", []string{"2000-10-10T20:55:36Z 192.0.2.3 GET /x  304 "}},
	} {
		lines := strings.Split(strings.TrimSuffix(c.lines, "\n"), "\n")
		f := detect(lines)
		if f.String() != c.format {
			t.Errorf("%s is found to be %s", c.format, f)
			f, _ = NewFormat(c.format)
		}
		p := parser{format: f, agents: true, headers: true, responses: true}
		for i, line := range lines {
			var it item
			err := p.parse(line, &it)
			if (err != nil) != (c.want[i] == "") {
				t.Errorf("%s: %v", line, err)
				continue
			}
			if err != nil {
				continue
			}
			got := strings.Join([]string{shown(it.at), it.client, it.method, it.target, it.host, statusText(it.status), it.agent}, " ")
			if got != c.want[i] {
				t.Errorf("%s\ngot  %s\nwant %s", line, got, c.want[i])
			}
		}
	}
}

// TestCustomFormats: the fields of a line are named as in nginx's log_format.
func TestCustomFormats(t *testing.T) {
	for _, c := range []struct{ format, line, want string }{
		{`$remote_addr [$time_local] "$request" $status`, `192.0.2.3 [10/Oct/2000:13:55:36 -0700] "GET /x HTTP/1.1" 200`, "2000-10-10T20:55:36Z 192.0.2.3 GET /x  200 "},
		{`$msec|$status|$request_method|${uri}|$args|$host|$http_user_agent|$client`, `1700000000.250|429|GET|/a|b=c|shop.example|x y|192.0.2.9`, "2023-11-14T22:13:20.25Z 192.0.2.9 GET /a?b=c shop.example 429 x y"},
		{`$what $client $time_iso8601 $method $path`, `x 192.0.2.9 2023-11-14T22:13:20Z GET /a and more`, "2023-11-14T22:13:20Z 192.0.2.9 GET /a  0 "},
		{`$client "$http_user_agent" $time "$request"`, `c "a \"quoted\" agent" 2023-11-14T22:13:20Z "GET / HTTP/1.1"`, `2023-11-14T22:13:20Z c GET /  0 a \"quoted\" agent`},
	} {
		f, err := NewFormat(c.format)
		if err != nil {
			t.Error(err)
			continue
		}
		var it item
		p := parser{format: f, agents: true}
		if err := p.parse(c.line, &it); err != nil {
			t.Errorf("%s: %v", c.line, err)
		}
		if got := strings.Join([]string{shown(it.at), it.client, it.method, it.target, it.host, statusText(it.status), it.agent}, " "); got != c.want {
			t.Errorf("%s\ngot  %s\nwant %s", c.line, got, c.want)
		}
	}
	for format, want := range map[string]string{
		"apache":                     "write one of auto, common",
		"$status":                    "no $time, no $client, no $request",
		"$client$time":               "without a text between",
		"$client $time $method":      "no $request (or $method and $target)",
		"${client $time":             "not closed",
		"$ x":                        "a $ without a name",
		"$client [$time] $path$args": "without a text between",
	} {
		if _, err := NewFormat(format); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want one with %q", format, err, want)
		}
	}
}

// FuzzFormats: no line makes a format panic, and what is read has a client, a method and a target.
func FuzzFormats(f *testing.F) {
	for _, lines := range []string{haproxyLines, envoyLines, istioLines, albLines, cloudflareLines, caddyLines} {
		for line := range strings.Lines(lines) {
			f.Add(strings.TrimSuffix(line, "\n"))
		}
	}
	f.Fuzz(func(t *testing.T, line string) {
		for _, format := range allFormats() {
			p := parser{format: format, headers: true, responses: true}
			var it item
			if p.parse(line, &it) == nil && (it.client == "" || it.method == "" || it.target == "") {
				t.Errorf("%s reads %q as %+v", format, line, it)
			}
		}
		detect([]string{line})
	})
}
