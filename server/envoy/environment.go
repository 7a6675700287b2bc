package envoy

import (
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ReadEnvironment reads lines of NAME=VALUE, as files for docker --env-file have them. Lines that begin
// with # are comments.
func ReadEnvironment(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "export ")
		if name, value, found := strings.Cut(line, "="); found && !strings.HasPrefix(line, "#") {
			all[strings.TrimSpace(name)] = strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	return all
}

// Options are what Import needs beside the variables.
type Options struct {
	Rules   string // the file or folder as the policy names it; default: that of the variables
	Secrets string // the folder of files with passwords, as the policy names it; empty puts them into its URLs
	Listed  bool   // the variables are a list for this server, not the environment of a process
}

// An Imported policy serves rules of envoyproxy/ratelimit as its environment variables say.
type Imported struct {
	Policy string
	Admin  string // the address of metrics and of the admin API
	Merge  bool   // a domain may be in several files
	// passwords by the files that the policy names for them
	Secrets map[string]string
	Notes   []string // variables without a meaning here, and why
}

// Import makes the policy of environment variables.
func Import(env map[string]string, o Options) Imported {
	i := importer{Options: o, env: env, used: map[string]bool{}, secrets: map[string]string{}}
	rules := o.Rules
	if rules == "" {
		rules = filepath.Join(i.or("RUNTIME_ROOT", "/srv/runtime_data/current"), i.or("RUNTIME_SUBDIRECTORY", ""), i.or("RUNTIME_APPDIRECTORY", "config"))
	}
	i.listen(rules)
	i.stores()
	return Imported{Policy: i.out.String(), Admin: i.admin(), Merge: i.truth("MERGE_DOMAIN_CONFIG"), Secrets: i.secrets, Notes: append(i.unused(), i.notes...)}
}

// unused returns a note for each variable that has no meaning here.
func (i *importer) unused() (notes []string) {
	for _, name := range slices.Sorted(maps.Keys(i.env)) {
		if i.used[name] {
			continue
		}
		why := reason(name)
		if why == "" && i.Listed {
			why = "envoyproxy/ratelimit has no such variable"
		}
		if why != "" {
			notes = append(notes, fmt.Sprintf("%s has no meaning here: %s", name, why))
		}
	}
	return notes
}

// importer writes a policy.
type importer struct {
	Options
	env     map[string]string
	used    map[string]bool
	secrets map[string]string
	notes   []string
	out     strings.Builder
}

// or returns a variable, or a default.
func (i *importer) or(name, otherwise string) string {
	i.used[name] = true
	if v := i.env[name]; v != "" {
		return v
	}
	return otherwise
}

func (i *importer) truth(name string) bool {
	v, _ := strconv.ParseBool(i.or(name, "false"))
	return v
}

func (i *importer) line(format string, args ...any) { fmt.Fprintf(&i.out, format+"\n", args...) }

// admin returns the admin address, which takes the place of the debug port. That listens on all addresses;
// the admin API can change the policy, and is for programs of this machine alone.
func (i *importer) admin() string { return net.JoinHostPort("127.0.0.1", i.or("DEBUG_PORT", "6070")) }

// listen writes where the service listens, and its settings.
func (i *importer) listen(rules string) {
	i.line("listen:\n  admin: %q", i.admin())
	i.line("  rls:")
	host := i.or("GRPC_HOST", "0.0.0.0")
	i.line("    address: %q", net.JoinHostPort(host, i.or("GRPC_PORT", "8081")))
	i.line("    envoy: %q", rules)
	i.line("    http: %q", net.JoinHostPort(i.or("HOST", "0.0.0.0"), i.or("PORT", "8080")))
	if i.env["BACKEND_TYPE"] != "memcache" && i.env["REDIS_URL"] != "" {
		i.line("    store: shared")
	}
	for _, flag := range [][2]string{{"MERGE_DOMAIN_CONFIG", "merge_domains"}, {"SHADOW_MODE", "shadow_mode"}, {"QUOTA_MODE", "quota_mode"}, {"RESPONSE_DYNAMIC_METADATA", "dynamic_metadata"}} {
		if i.truth(flag[0]) {
			i.line("    %s: true", flag[1])
		}
	}
	limit, remaining, reset := i.or("LIMIT_LIMIT_HEADER", "RateLimit-Limit"), i.or("LIMIT_REMAINING_HEADER", "RateLimit-Remaining"), i.or("LIMIT_RESET_HEADER", "RateLimit-Reset")
	if i.truth("LIMIT_RESPONSE_HEADERS_ENABLED") {
		i.line("    response_headers: { limit: %q, remaining: %q, reset: %q }", limit, remaining, reset)
	}
	if age := i.or("GRPC_MAX_CONNECTION_AGE", ""); age != "" {
		i.line("    max_connection_age: %q", age)
	}
	if i.truth("GRPC_SERVER_USE_TLS") {
		tls := fmt.Sprintf("cert: %q, key: %q", i.or("GRPC_SERVER_TLS_CERT", ""), i.or("GRPC_SERVER_TLS_KEY", ""))
		if ca := i.or("GRPC_CLIENT_TLS_CACERT", ""); ca != "" {
			tls += fmt.Sprintf(", client_ca: %q", ca)
		}
		i.line("    tls: { %s }", tls)
	}
	i.line("    insecure: true # as there: every client that reaches these addresses can use up limits. Take it out for loopback addresses, or with client_ca and no http")
}

// reason says why a variable of envoyproxy/ratelimit has no meaning here; empty for others.
func reason(name string) string {
	for _, r := range []struct{ prefix, why string }{
		{"LOG_", "the log is JSON on standard error"},
		{"STATS_", "metrics are at /metrics of listen.admin"}, {"STATSD_", "metrics are at /metrics of listen.admin"},
		{"USE_STATSD", "metrics are at /metrics of listen.admin"}, {"USE_DOG_STATSD", "metrics are at /metrics of listen.admin"},
		{"USE_PROMETHEUS", "metrics are at /metrics of listen.admin"}, {"PROMETHEUS_", "metrics are at /metrics of listen.admin"},
		{"DISABLE_STATS", "metrics cost nothing until they are read"}, {"EXTRA_TAGS", "add labels where metrics are collected"},
		{"DEBUG_", "listen.admin has /metrics and an API that changes the policy, and is on loopback; /rlconfig is at listen.rls.http"},
		{"CONFIG_", "rules come from files, and not from xDS"}, {"XDS_", "rules come from files, and not from xDS"},
		{"FORCE_START_", "files that are not valid are an error at the start"}, {"HEALTHY_WITH_", "files that are not valid are an error at the start"},
		{"RUNTIME_WATCH_", "the folder is looked at once a second"}, {"RUNTIME_IGNOREDOTFILES", "dot files are left out"}, {"RUNTIME_", "the rules are those that the command names"},
		{"CACHE_KEY_PREFIX", "there is no store"},
		{"NEAR_LIMIT_RATIO", "hits near a limit are not counted apart"},
		{"EXPIRATION_JITTER_", "keys in Redis end with their window"},
		{"LOCAL_CACHE_", "a refusal is decided by the store, which a raised limit needs"},
		{"STOP_CACHE_KEY_", "refused hits count; a limit of the policy charges nothing for them"},
		{"REDIS_PERSECOND", "all counters are in one store"}, {"REDIS_POOL", "calls share connections"}, {"REDIS_PIPELINE", "calls share round trips"},
		{"REDIS_HEALTH_", "readiness shows the store at listen.admin"}, {"REDIS_TLS_SKIP_", "servers are always verified: set server_name in the URL of the store"}, {"REDIS_TIMEOUT", "set deadline of the store; default: 20ms"},
		{"REDIS_STARTUP_", "the server starts without its store, too"}, {"REDIS_", "the policy has no store that it is about"},
		{"MEMCACHE_", "there is no store for memcached"}, {"TRACING_", "there are no traces"},
		{"GRPC_MAX_CONNECTION_AGE_GRACE", "it is one hour"}, {"MAX_CONCURRENT_REQUESTS", "set max_connections"}, {"REQUEST_TIMEOUT", "set deadline of the store"}, {"GRPC_UDS", "the service listens on TCP"}, {"GRPC_CLIENT_TLS_SAN", "all certificates of client_ca are good"},
		{"GRPC_SERVER_TLS_", "GRPC_SERVER_USE_TLS is not set"}, {"GRPC_CLIENT_TLS_", "GRPC_SERVER_USE_TLS is not set"},
	} {
		if strings.HasPrefix(name, r.prefix) {
			return r.why
		}
	}
	return ""
}
