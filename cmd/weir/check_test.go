package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckRefusesWhatServeRefuses: both commands refuse the same policies, with the same message.
func TestCheckRefusesWhatServeRefuses(t *testing.T) {
	const up = "upstreams: { up: { url: http://127.0.0.1:9 } }\nroutes: [{ match: /, upstream: up }]\n"
	for name, c := range map[string]struct{ policy, want string }{
		"no address":             {"listen: {}\n" + up, "p.yaml:1:1: error: listen names no address"},
		"bounds alone":           {"listen: { bounds: { max_fields: 7 } }\n" + up, "listen names no address"},
		"admin for others":       {"listen: { admin: \"0.0.0.0:0\" }\n" + up, "p.yaml:1:18: error: listen.admin: 0.0.0.0:0 is not a loopback address"},
		"admin with half of it":  {"listen: { admin: \":0\" }\nadmin: { token_file: token }\n" + up, "not a loopback address"},
		"no token":               {"listen: { admin: \"127.0.0.1:0\" }\nadmin: { token_file: nowhere }\n" + up, "p.yaml:2:22: error: admin.token_file: open "},
		"a short token":          {"listen: { admin: \"127.0.0.1:0\" }\nadmin: { token_file: short }\n" + up, "shorter than 16"},
		"no admin certificate":   {"listen: { admin: \"127.0.0.1:0\" }\nadmin: { tls: { cert: nowhere, key: nowhere } }\n" + up, "admin.tls: open "},
		"a broken state file":    {"listen: { admin: \"127.0.0.1:0\" }\nadmin: { state_file: short }\n" + up, "admin.state_file: "},
		"no upstream":            {"listen: { gateway: \"127.0.0.1:0\" }\nroutes: [{ match: / }]\n", "p.yaml:2:10: error: the route / has no upstream"},
		"rls":                    {"listen: { rls: \"127.0.0.1:0\" }\n", "p.yaml:1:16: error: listen.rls has no rules"},
		"resp":                   {"listen: { gateway: \"127.0.0.1:0\", resp: { address: \"127.0.0.1:0\", store: x } }\n" + up, "there is no store \"x\""},
		"no certificate":         {"listen: { gateway: { address: \"127.0.0.1:0\", tls: { certificates: [{ cert: nowhere, key: nowhere }] } } }\n" + up, "p.yaml:1:46: error: the certificates of 127.0.0.1:0: open "},
		"one address twice":      {"listen: { gateway: \"127.0.0.1:8080\", admin: \"127.0.0.1:8080\" }\n" + up, "127.0.0.1:8080 and 127.0.0.1:8080 cannot both be listened on: listen.gateway has that one"},
		"one address under all":  {"listen: { gateway: \":8080\", admin: \"127.0.0.1:8080\" }\n" + up, "127.0.0.1:8080 and :8080 cannot both be listened on"},
		"one address by name":    {"listen: { gateway: [\"localhost:8080\", \"127.0.0.1:8080\"] }\n" + up, "127.0.0.1:8080 and localhost:8080 cannot both be listened on"},
		"no such port":           {"listen: { admin: \"127.0.0.1:99999\" }\n" + up, "\"127.0.0.1:99999\" is not an address"},
		"itself as the upstream": {"listen: { gateway: \"127.0.0.1:8080\" }\nupstreams: { up: { url: \"http://localhost:8080\" } }\n", "p.yaml:2:25: error: http://localhost:8080 is where the gateway itself listens"},
		"itself among targets":   {"listen: { gateway: \"0.0.0.0:80\" }\nupstreams: { up: { targets: [\"http://127.0.0.1:9\", \"http://127.0.0.1\"] } }\n", "http://127.0.0.1 is where the gateway itself listens"},
		"no log directory":       {"listen: { gateway: \"127.0.0.1:0\" }\naccess_log: no/such/directory/access.log\n" + up, "access_log: open "},
		"no secret of a room":    {"listen: { gateway: \"127.0.0.1:0\" }\nwaiting_rooms: { r: { admit: 1/s, secret_file: nowhere } }\nupstreams: { up: { url: http://127.0.0.1:9 } }\nroutes: [{ match: /, upstream: up, waiting_room: r }]\n", "secret_file: open "},
		"no password of a store": {"listen: { gateway: \"127.0.0.1:0\" }\nstores: { s: { url: \"redis://u@127.0.0.1:1?password_file=/not/there\" } }\n" + up, "/not/there"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := files(t, map[string]string{"p.yaml": c.policy, "short": "x"})
			t.Chdir(dir)
			code, out, errs := weir(t, "", "check", "p.yaml")
			if code != 1 || !strings.Contains(out, c.want) || errs != "" {
				t.Errorf("check: %d %q %q, want %q", code, out, errs, c.want)
			}
			code, _, errs = weir(t, "", "serve", "--config", "p.yaml")
			want := c.want
			if _, message, ok := strings.Cut(want, "error: "); ok {
				want = message
			}
			if code == 0 || !strings.Contains(errs, want) {
				t.Errorf("serve: %d %q, want %q", code, errs, want)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 2 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestCheckPrintsAllAtOnce: an error in a limit does not hide what serve would refuse, and errors
// that only follow from another one are left out.
func TestCheckPrintsAllAtOnce(t *testing.T) {
	dir := files(t, map[string]string{"p.yaml": `listen:
  gateway: 127.0.0.1:0
  admin: 0.0.0.0:0
access_log: no/such/directory/access.log
stores:
  main: { url: nosuch://127.0.0.1 }
limits:
  api:
    key: client.ip
    token_bucket: { rate: 10/s, burst: 0 }
routes:
  - match: /a
    limits: [api]
  - match: /b
    upstrem: app
`})
	code, out, errs := weir(t, "", "check", dir+"/p.yaml")
	var got []string
	for line := range strings.Lines(strings.ReplaceAll(out, dir+"/", "")) {
		if strings.HasPrefix(line, "p.yaml") {
			got = append(got, strings.SplitN(line, " ", 2)[0])
		}
	}
	if want := "p.yaml:3:10: p.yaml:4:13: p.yaml:6:16: p.yaml:10:40: p.yaml:12:10: p.yaml:15:5:"; code != 1 || strings.Join(got, " ") != want || errs != "" {
		t.Errorf("%d %s\n%s%s", code, strings.Join(got, " "), out, errs)
	}
}

// TestCheckOfServices: check warns of a service with nothing to limit, and counts the rules of Envoy's files.
func TestCheckOfServices(t *testing.T) {
	limits := "\nlimits: { l: { key: client.ip, token_bucket: { rate: 1/s, burst: 1 } } }\n"
	rule := "domain: d\ndescriptors: [{ key: a, rate_limit: { unit: second, requests_per_unit: 1 } }, { key: b, rate_limit: { unit: second, requests_per_unit: 1 } }]\n"
	for policy, want := range map[string]string{
		`listen: { http: "127.0.0.1:0" }`:                                 "nothing to limit",
		`listen: { http: "127.0.0.1:0" }` + limits:                        "",
		`listen: { http: { address: "127.0.0.1:0", client_limits: {} } }`: "",
		`listen: { rls: { address: "127.0.0.1:0", envoy: rule.yaml } }`:   "ok: 0 limits, 0 routes, 2 rules of Envoy\n",
		`listen: { rls: "127.0.0.1:0" }` + limits:                         "ok: 1 limit, 0 routes\n",
	} {
		dir := files(t, map[string]string{"p.yaml": policy, "rule.yaml": rule})
		code, out, errs := weir(t, "", "check", dir+"/p.yaml")
		if code != 0 || errs != "" || !strings.Contains(out, want) || strings.Contains(out, "nothing to limit") != (want == "nothing to limit") {
			t.Errorf("%s: %d %s%s", policy, code, out, errs)
		}
	}
}

// TestSecretThatEveryUserCanRead: a warning at the URL in check, and in the log of serve.
func TestSecretThatEveryUserCanRead(t *testing.T) {
	dir := files(t, map[string]string{"secret": strings.Repeat("a1", 32)})
	const warning = "every user of this machine can read "
	policy := "listen: { admin: \"127.0.0.1:0\" }\nstores: { s: { nodes: 2, on_failure: deny, url: \"cluster+leaf://127.0.0.1:1?secret_file=" + dir + "/secret\" } }\n"
	if err := os.WriteFile(dir+"/p.yaml", []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []os.FileMode{0o600, 0o644} {
		want := mode == 0o644
		if err := os.Chmod(dir+"/secret", mode); err != nil {
			t.Fatal(err)
		}
		code, out, errs := weir(t, "", "check", dir+"/p.yaml")
		if code != 0 || errs != "" || strings.Contains(out, "p.yaml:2:49: warning: secret_file: "+warning+dir+"/secret (mode 0644)") != want {
			t.Errorf("%o: %d %s%s", mode, code, out, errs)
		}
	}
	r := startWeir(t, "serve", "--config", dir+"/p.yaml") // every user can read it now
	r.until(warning)
	r.until(`"msg":"serving"`)
	r.stop()
}

// TestCheckAcceptsWhatServeServes: policies that look like mistakes and are valid.
func TestCheckAcceptsWhatServeServes(t *testing.T) {
	target := httptest.NewServer(http.NotFoundHandler())
	defer target.Close()
	for name, policy := range map[string]string{
		"without a gateway":     "listen: { admin: \"127.0.0.1:0\" }\nlimits: { l: { key: client.ip, token_bucket: { rate: 1/s, burst: 1 } } }\nroutes: [{ match: /, limits: [l] }]\n",
		"two addresses":         "listen: { gateway: [\"127.0.0.1:0\", \"127.0.0.2:0\"], admin: \"127.0.0.1:0\" }\n",
		"another port upstream": "listen: { gateway: \"127.0.0.1:0\" }\nupstreams: { up: { url: \"" + target.URL + "\" } }\nroutes: [{ match: /, upstream: up }]\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := files(t, map[string]string{"p.yaml": policy})
			if code, out, errs := weir(t, "", "check", dir+"/p.yaml"); code != 0 || !strings.Contains(out, ": ok: ") || errs != "" {
				t.Errorf("check: %d %q %q", code, out, errs)
			}
			r := startWeir(t, "serve", "--config", dir+"/p.yaml")
			r.until(`"msg":"serving"`)
			r.stop()
		})
	}
}
