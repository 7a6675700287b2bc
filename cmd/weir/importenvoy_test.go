package main

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestImportEnvoy: the policy is one that weir check accepts, settings of variables are in it, and those
// without a meaning are named.
func TestImportEnvoy(t *testing.T) {
	folder := t.TempDir()
	t.Chdir(folder)
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := filepath.EvalSymlinks(folder)
	if err != nil {
		t.Fatal(err)
	}
	put("rules.yaml", "domain: d\ndescriptors: [{ key: k, rate_limit: { unit: day, requests_per_unit: 1 } }]\n")
	put("redis.password", "x")
	put("sentinel.password", "x")
	put("wrong.yaml", "domain: d\ndescriptors: [{ kye: k }]\n")
	for name, c := range map[string]struct{ env, policy, notes string }{
		"plain":    {"", `address: "0.0.0.0:8081"|http: "0.0.0.0:8080"|envoy: "DIR/rules.yaml"|insecure: true`, ""},
		"redis":    {"REDIS_SOCKET_TYPE=tcp\nREDIS_URL=10.0.0.1:6379\nREDIS_AUTH=se cret\n", `store: shared|url: "redis://10.0.0.1:6379?password_file=QDIR%2Fredis.password"`, "password from DIR/redis.password"},
		"socket":   {"REDIS_SOCKET_TYPE=unix\nREDIS_URL=/run/redis.sock\n", `url: "unix:///run/redis.sock"`, ""},
		"cluster":  {"REDIS_TYPE=CLUSTER\nREDIS_SOCKET_TYPE=tcp\nREDIS_URL=a:1,b:2\nREDIS_TLS=true\n", `url: "rediss+cluster://a:1,b:2"`, ""},
		"sentinel": {"REDIS_TYPE=SENTINEL\nREDIS_SOCKET_TYPE=tcp\nREDIS_URL=main,a:1,b:2\nREDIS_SENTINEL_AUTH=u:x\n", `url: "redis+sentinel://a:1,b:2/main?sentinel_password_file=QDIR%2Fsentinel.password&sentinel_user=u"`, "DIR/sentinel.password"},
		"tls":      {"REDIS_SOCKET_TYPE=tcp\nREDIS_URL=a:1\nREDIS_TLS=true\nREDIS_TLS_CACERT=/ca.pem\nCACHE_KEY_PREFIX=x:\nREDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true\nREDIS_TIMEOUT=1s\n", `url: "rediss://a:1?ca_file=%2Fca.pem"|prefix: "x:"`, "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION has no meaning here|REDIS_TIMEOUT has no meaning here"},
		"no store": {"REDIS_SOCKET_TYPE=tcp\nRUNTIME_ROOT=/x\nFOO=bar\n", "rls:", "REDIS_URL is not set|REDIS_SOCKET_TYPE has no meaning here|RUNTIME_ROOT has no meaning here|FOO has no meaning here"},
		"settings": {"# a comment\nGRPC_PORT=9\nGRPC_HOST=127.0.0.1\nHOST=127.0.0.1\nPORT=10\nSHADOW_MODE=true\nQUOTA_MODE=false\nexport LIMIT_RESPONSE_HEADERS_ENABLED=\"true\"\nLIMIT_LIMIT_HEADER=X\nGRPC_MAX_CONNECTION_AGE=1h\n",
			`address: "127.0.0.1:9"|http: "127.0.0.1:10"|shadow_mode: true|response_headers: { limit: "X", remaining: "RateLimit-Remaining", reset: "RateLimit-Reset" }|max_connection_age: "1h"`, ""},
		"without a meaning": {"LOCAL_CACHE_SIZE_IN_BYTES=1\nUSE_STATSD=false\nBACKEND_TYPE=memcache\nMEMCACHE_HOST_PORT=a:1\n", "rls:",
			"LOCAL_CACHE_SIZE_IN_BYTES has no meaning here|USE_STATSD has no meaning here|MEMCACHE_HOST_PORT has no meaning here|BACKEND_TYPE=memcache"},
	} {
		put("env", c.env)
		code, out, errs := weir(t, "", "import", "envoy", "--env", "env", "rules.yaml")
		put("policy.yaml", out)
		if checked, _, wrong := weir(t, "", "check", "policy.yaml"); code != 0 || (checked != 0) != (name == "tls") { // the authority's file is not there
			t.Errorf("%s: exit codes %d and %d\n%s%s%s", name, code, checked, errs, out, wrong)
		}
		at := strings.NewReplacer("QDIR", url.QueryEscape(dir), "DIR", dir)
		c.policy, c.notes = at.Replace(c.policy), at.Replace(c.notes)
		for _, secret := range []string{"se cret", "se%20cret", ":x@"} {
			if strings.Contains(out+errs, secret) {
				t.Errorf("%s: the password is in\n%s%s", name, out, errs)
			}
		}
		for _, want := range strings.Split(c.policy, "|") {
			if !strings.Contains(out, want) {
				t.Errorf("%s: %q is not in\n%s", name, want, out)
			}
		}
		for _, want := range strings.Split(c.notes, "|") {
			if !strings.Contains(errs, want) {
				t.Errorf("%s: %q is not in\n%s", name, want, errs)
			}
		}
	}
	put("limits.yaml", "domain: d\ndescriptors: [{ key: k, limit: { token_bucket: { rate: 1/s, burst: 5 } } }]\n")
	code, out, errs := weir(t, "", "import", "envoy", "limits.yaml")
	put("policy.yaml", out)
	if _, checked, _ := weir(t, "", "check", "policy.yaml"); code != 0 || checked != "policy.yaml: ok: 1 limit, 0 routes, 1 rule of Envoy\n" {
		t.Errorf("%d, %s%s%s", code, out, errs, checked)
	}
	put("limits.yaml", "domain: d\ndescriptors: [{ key: k, limit: { token_bucket: { rate: 1/s } } }]\n")
	if code, out, errs := weir(t, "", "import", "envoy", "limits.yaml"); code != 1 || out != "" || !strings.Contains(errs, "limits.yaml:2:34: error: ") || !strings.Contains(errs, "burst") {
		t.Errorf("%d, %s, %s", code, out, errs)
	}
	if code, out, errs := weir(t, "", "import", "envoy", "wrong.yaml"); code != 1 || out != "" || !strings.Contains(errs, "did you mean key?") {
		t.Errorf("%d, %s, %s", code, out, errs)
	}
}

// TestImportEnvoyOutput: the written policy finds its rules wherever it is, and its passwords in files
// for the owner alone. Nothing is overwritten.
func TestImportEnvoyOutput(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"imp/rules.yaml": "domain: d\ndescriptors: [{ key: k, rate_limit: { unit: day, requests_per_unit: 1 } }]\n",
		"env":            "REDIS_SOCKET_TYPE=tcp\nREDIS_URL=127.0.0.1:1\nREDIS_AUTH=ann:geheim\n",
		"else/other":     "",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if code, out, errs := weir(t, "", "import", "envoy", "--env", "env", "--output", "else/policy.yaml", "imp"); code != 0 || out != "" {
		t.Fatalf("%d, %s, %s", code, out, errs)
	}
	if code, out, errs := weir(t, "", "check", "else/policy.yaml"); code != 0 {
		t.Errorf("%s%s", out, errs)
	}
	policy, err := os.ReadFile("else/policy.yaml")
	if err != nil || !strings.Contains(string(policy), `envoy: "../imp"`) || !strings.Contains(string(policy), "redis://ann@127.0.0.1:1") || strings.Contains(string(policy), "geheim") {
		t.Errorf("%v\n%s", err, policy)
	}
	secret, err := os.ReadFile("else/redis.password")
	info, err2 := os.Stat("else/redis.password")
	if err := errors.Join(err, err2); err != nil || string(secret) != "geheim\n" || info.Mode().Perm() != 0o600 {
		t.Errorf("%q, %v, %v", secret, info, err)
	}
	if code, _, errs := weir(t, "", "import", "envoy", "--env", "env", "--output", "else/policy.yaml", "imp"); code == 0 || !strings.Contains(errs, "exists") {
		t.Errorf("%d, %s", code, errs)
	}
}
