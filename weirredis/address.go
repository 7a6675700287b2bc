package weirredis

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir/internal/nearest"
)

// A Mode is the kind of server at an Address.
type Mode uint8

// The modes.
const (
	Single   Mode = iota // one server
	Sentinel             // servers that Sentinel watches: Hosts are the sentinels
	Cluster              // a Redis Cluster: Hosts are some of its nodes
)

// An Address is what a URL says: which Redis to connect to, and as which user. It prints without
// user and passwords.
type Address struct {
	Mode   Mode
	Socket string   // the path of a Unix socket, in place of Hosts
	Hosts  []string // HOST:PORT
	Master string   // its name, with Sentinel
	DB     int

	User         string // empty is the default user
	Password     string
	PasswordFile string // where the password is read from instead

	SentinelUser         string // the user at the sentinels
	SentinelPassword     string
	SentinelPasswordFile string

	TLS        bool
	CAFile     string // certificate authorities, in PEM; default: those of the system
	ServerName string // the name in the certificate; default: the host that was connected to
	CertFile   string // a client certificate, in PEM, with its key in KeyFile
	KeyFile    string

	ClientName  string        // as in CLIENT LIST
	DialTimeout time.Duration // how long connecting may take; 0 is the default
}

// String returns the URL without users, passwords and parameters.
func (a Address) String() string {
	if a.Socket != "" {
		return "unix://" + a.Socket
	}
	scheme := "redis"
	if a.TLS {
		scheme = "rediss"
	}
	scheme += [...]string{"", "+sentinel", "+cluster"}[a.Mode]
	text := scheme + "://" + strings.Join(a.Hosts, ",")
	if a.Master != "" {
		text += "/" + a.Master
	}
	if a.Mode != Cluster {
		text += "/" + strconv.Itoa(a.DB)
	}
	return text
}

// GoString is String: %#v does not print passwords either.
func (a Address) GoString() string { return a.String() }

// A URLError says what is wrong with a URL. It never holds a part that could be a password.
type URLError struct {
	Problem string
	Fix     string // what to do about it
}

// Error has both.
func (e *URLError) Error() string { return "weirredis: " + e.Problem + ": " + e.Fix }

func wrong(fix, problem string, args ...any) error {
	return &URLError{fmt.Sprintf(problem, args...), fix}
}

// schemes are the beginnings of URLs, and what each means.
var schemes = [...]struct {
	name string
	mode Mode
	tls  bool
}{
	{"redis", Single, false},
	{"rediss", Single, true},
	{"unix", Single, false},
	{"redis+sentinel", Sentinel, false},
	{"rediss+sentinel", Sentinel, true},
	{"redis+cluster", Cluster, false},
	{"rediss+cluster", Cluster, true},
}

// Schemes returns what a URL may begin with, before "://".
func Schemes() (all []string) {
	for _, s := range schemes {
		all = append(all, s.name)
	}
	return all
}

// ParseURL reads an Address from a URL, in one of these forms, with rediss in place of redis for
// TLS:
//
//	redis://[USER:PASSWORD@]HOST[:PORT][/DB]
//	redis+sentinel://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]/MASTER[/DB]
//	redis+cluster://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]
//	unix://[USER:PASSWORD@]/PATH/OF/SOCKET[?db=DB]
//
// Parameters may follow a ?: client_name, dial_timeout, password_file; with TLS ca_file,
// server_name, cert_file and key_file; with Sentinel sentinel_user, sentinel_password and
// sentinel_password_file. Special characters in users and passwords are written as %XX. It reads no
// files. The error is a *URLError.
func ParseURL(text string) (Address, error) {
	var a Address
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return a, wrong("write it like redis://127.0.0.1:6379/0", "the URL has no scheme")
	}
	scheme = strings.ToLower(scheme)
	if err := a.scheme(scheme); err != nil {
		return a, err
	}
	rest, query, _ := strings.Cut(rest, "?")
	if strings.ContainsAny(query, "@#") || strings.Contains(rest, "#") {
		return a, errSpecial()
	}
	authority, path, _ := strings.Cut(rest, "/")
	if strings.Contains(path, "@") {
		return a, errSpecial()
	}
	hosts := authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		hosts = authority[i+1:]
		if err := a.user(authority[:i]); err != nil {
			return a, err
		}
	}
	var err error
	if scheme == "unix" {
		err = a.socket(hosts, path)
	} else if err = a.hosts(hosts); err == nil {
		err = a.path(path)
	}
	if err == nil {
		err = a.parameters(query)
	}
	return a, err
}

// errSpecial is for a misplaced character, most likely of a password: so the error holds no part of
// the URL.
func errSpecial() error {
	return wrong("write / ? # and @ in a user, a password or a parameter as %2F %3F %23 and %40", "the URL has a special character after its host")
}

// scheme reads what is before the first colon.
func (a *Address) scheme(name string) error {
	var known []string
	for _, s := range schemes {
		if s.name == name {
			a.Mode, a.TLS = s.mode, s.tls
			return nil
		}
		known = append(known, s.name)
	}
	fix := "write one of " + strings.Join(known, ", ")
	if near := nearest.To(name, known); near != "" {
		fix = fmt.Sprintf("did you mean %q?", near)
	}
	if len(name) > 30 { // it is something else, that should not be in logs
		return wrong(fix, "the URL does not begin with the scheme of a Redis")
	}
	return wrong(fix, "%q is not the scheme of a Redis", name)
}

// user reads USER[:PASSWORD].
func (a *Address) user(text string) error {
	user, password, _ := strings.Cut(text, ":")
	var err error
	if a.User, err = url.PathUnescape(user); err == nil {
		a.Password, err = url.PathUnescape(password)
	}
	if err != nil {
		return wrong("write a % itself as %25", "the user or the password has a %% that begins no %%XX")
	}
	return nil
}

func (a *Address) socket(hosts, path string) error {
	if hosts != "" {
		return wrong("write it like unix:///run/redis/redis.sock", "the URL of a Unix socket has a host")
	}
	path, err := url.PathUnescape(path)
	if err != nil || path == "" {
		return wrong("write it like unix:///run/redis/redis.sock", "the URL names no socket")
	}
	a.Socket = "/" + path
	return nil
}

// hosts reads HOST[:PORT],...
func (a *Address) hosts(text string) error {
	port := "6379"
	if a.Mode == Sentinel {
		port = "26379"
	}
	for host := range strings.SplitSeq(text, ",") {
		addr, err := hostPort(host, port)
		if err != nil {
			return err
		}
		a.Hosts = append(a.Hosts, addr)
	}
	if a.Mode == Single && len(a.Hosts) > 1 {
		return wrong("write redis+sentinel:// or redis+cluster://, and rediss+... for TLS", "the URL of one server has %d hosts", len(a.Hosts))
	}
	return nil
}

// hostPort returns HOST:PORT for a host with or without a port. An invalid port may be a password
// whose @HOST was forgotten.
func hostPort(text, port string) (string, error) {
	host := text
	if i := strings.LastIndexByte(text, ':'); i >= 0 && !strings.HasSuffix(text, "]") {
		host, port = text[:i], text[i+1:]
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	switch n, err := strconv.ParseUint(port, 10, 16); {
	case bare == "":
		return "", wrong("write it like redis://127.0.0.1:6379/0", "the URL has an empty host")
	case strings.ContainsAny(bare, "[] \t\r\n%"):
		return "", wrong("write a name or an address, and an IPv6 address like [::1]:6379", "the URL has a host that is none")
	case strings.Contains(bare, ":") && host == bare:
		return "", wrong("write it like [::1]:6379", "the URL has an IPv6 address, or several ports")
	case err != nil || n == 0:
		return "", wrong("write HOST:PORT", "the port of host %q is not a number from 1 to 65535", bare)
	}
	return net.JoinHostPort(bare, port), nil
}

// path reads [MASTER][/DB].
func (a *Address) path(text string) error {
	if a.Mode == Sentinel {
		var err error
		master, db, _ := strings.Cut(text, "/")
		if a.Master, err = url.PathUnescape(master); err != nil || master == "" {
			return wrong("write redis+sentinel://HOST:26379,HOST:26379/MASTER", "the URL does not name the master that the sentinels watch")
		}
		text = db
	}
	if err := a.db(text); err != nil {
		return err
	}
	if a.Mode == Cluster && a.DB != 0 {
		return wrong("leave it out", "the URL names database %d: a Redis Cluster has one, 0", a.DB)
	}
	return nil
}

func (a *Address) db(text string) error {
	if text == "" {
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return wrong("write a whole number, as in redis://127.0.0.1:6379/0", "the URL names a database that is not a number")
	}
	a.DB = int(n)
	return nil
}

// parameters reads what is after the question mark.
func (a *Address) parameters(text string) error {
	values, err := url.ParseQuery(text)
	if err != nil {
		return wrong("write a % itself as %25, and no ;", "the parameters of the URL cannot be read")
	}
	fields := map[string]*string{"client_name": &a.ClientName, "password_file": &a.PasswordFile}
	known := []string{"client_name", "dial_timeout", "password_file"}
	add := func(name string, field *string) { known, fields[name] = append(known, name), field }
	if a.TLS {
		add("ca_file", &a.CAFile)
		add("server_name", &a.ServerName)
		add("cert_file", &a.CertFile)
		add("key_file", &a.KeyFile)
	}
	if a.Mode == Sentinel {
		add("sentinel_user", &a.SentinelUser)
		add("sentinel_password", &a.SentinelPassword)
		add("sentinel_password_file", &a.SentinelPasswordFile)
	}
	if a.Socket != "" {
		known = append(known, "db")
	}
	for name, all := range values {
		if !slices.Contains(known, name) {
			return unknownParameter(name, known, a.TLS)
		}
		if len(all) > 1 || all[0] == "" {
			return wrong("write it once, with a value", "the parameter %s of the URL is there %d times, or empty", name, len(all))
		}
		switch field := fields[name]; {
		case field != nil:
			*field = all[0]
		case name == "db":
			err = a.db(all[0])
		default:
			if a.DialTimeout, err = time.ParseDuration(all[0]); err != nil || a.DialTimeout <= 0 {
				err = wrong("write it like 500ms", "the dial_timeout of the URL is not a duration above 0")
			}
		}
		if err != nil {
			return err
		}
	}
	return a.consistent()
}

// unknownParameter is the error for an unknown parameter.
func unknownParameter(name string, known []string, tls bool) error {
	fix := "known here: " + strings.Join(known, ", ")
	if near := nearest.To(name, known); near != "" {
		fix = fmt.Sprintf("did you mean %q?", near)
	}
	switch {
	case slices.Contains([]string{"skip_verify", "insecure", "insecure_skip_verify", "ssl_cert_reqs"}, name):
		fix = "a server is always verified: name who signed its certificate by ca_file, and what it is for by server_name"
	case !tls && slices.Contains([]string{"ca_file", "server_name", "cert_file", "key_file"}, name):
		fix = "it is for TLS: begin the URL with rediss"
	}
	if len(name) > 30 {
		name = name[:30] + "…"
	}
	return wrong(fix, "the URL has an unknown parameter %q", name)
}

// consistent checks that the parts go together.
func (a *Address) consistent() error {
	both := func(password, file string) bool { return password != "" && file != "" }
	switch {
	case (a.CertFile == "") != (a.KeyFile == ""):
		return wrong("write cert_file and key_file", "the URL has a certificate or a key without the other")
	case both(a.Password, a.PasswordFile) || both(a.SentinelPassword, a.SentinelPasswordFile):
		return wrong("keep one of them", "the URL has a password and a file with one")
	case strings.ContainsAny(a.ClientName, " \t\r\n"):
		return wrong("write one without", "the client_name of the URL has a space")
	}
	return nil
}
