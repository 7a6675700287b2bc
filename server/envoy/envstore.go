package envoy

import (
	"net/url"
	"path/filepath"
	"strings"
)

// stores writes where the counters are.
func (i *importer) stores() {
	backend, to := i.or("BACKEND_TYPE", "redis"), i.env["REDIS_URL"]
	switch {
	case backend == "memcache":
		i.notes = append(i.notes, "BACKEND_TYPE=memcache: Weir has no such store, so the counters are in the memory of this process: use Redis to share them")
		return
	case to == "" && len(i.env) == 0:
		return
	case to == "":
		i.notes = append(i.notes, "REDIS_URL is not set: the counters are in the memory of this process")
		return
	}
	i.used["REDIS_URL"] = true
	i.line("stores:\n  # while Redis is down, each node counts alone: envoyproxy/ratelimit answers with an error after REDIS_TIMEOUT")
	prefix := ""
	if p := i.or("CACHE_KEY_PREFIX", ""); p != "" {
		prefix = ", prefix: " + quoted(p)
	}
	i.line("  shared: { url: %s, on_failure: local%s }", quoted(i.store(to)), prefix)
}

// store returns the URL of a store.
func (i *importer) store(to string) string {
	parameters := url.Values{}
	to = strings.TrimPrefix(strings.TrimPrefix(to, "redis://"), "rediss://")
	kind, socket := strings.ToUpper(i.or("REDIS_TYPE", "SINGLE")), i.or("REDIS_SOCKET_TYPE", "")
	scheme, rest := "redis", to
	if i.truth("REDIS_TLS") {
		scheme = "rediss"
		i.parameter(parameters, "ca_file", "REDIS_TLS_CACERT")
		i.parameter(parameters, "cert_file", "REDIS_TLS_CLIENT_CERT")
		i.parameter(parameters, "key_file", "REDIS_TLS_CLIENT_KEY")
	}
	user := i.secret(parameters, "REDIS_AUTH", "redis.password", "password_file")
	switch {
	case kind == "CLUSTER":
		scheme += "+cluster"
	case kind == "SENTINEL":
		master, hosts, _ := strings.Cut(to, ",")
		scheme, rest = scheme+"+sentinel", hosts+"/"+master
		if s := i.secret(parameters, "REDIS_SENTINEL_AUTH", "sentinel.password", "sentinel_password_file"); s != nil {
			if name := s.Username(); name != "" {
				parameters.Set("sentinel_user", name)
			}
			if password, ok := s.Password(); ok {
				parameters.Set("sentinel_password", password)
			}
		}
	case socket == "" && strings.HasPrefix(to, "/") || strings.EqualFold(socket, "unix"):
		scheme = "unix"
	}
	login := ""
	if user != nil && user.String() != "" {
		login = user.String() + "@"
	}
	if len(parameters) > 0 {
		rest += "?" + parameters.Encode()
	}
	return scheme + "://" + login + rest
}

func (i *importer) parameter(to url.Values, name, variable string) {
	if v := i.or(variable, ""); v != "" {
		to.Set(name, v)
	}
}

// secret reads a variable that has a password, or USER:PASSWORD. The password goes to a file, which
// the parameter names, or stays with the user.
func (i *importer) secret(to url.Values, variable, file, parameter string) *url.Userinfo {
	text := i.or(variable, "")
	if text == "" {
		return nil
	}
	user, password, found := strings.Cut(text, ":")
	if !found {
		user, password = "", text
	}
	if i.Secrets == "" {
		return url.UserPassword(user, password)
	}
	path := filepath.Join(i.Secrets, file)
	i.secrets[path] = password
	to.Set(parameter, path)
	return url.User(user)
}

// quoted returns a text as YAML reads it back.
func quoted(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}
