package weirmysql

import (
	"strings"
	"testing"

	"github.com/weirflow/weir/weirkv"
)

// TestParseURL: a URL says where the server is; an error names the parameter that is wrong, and has no password.
func TestParseURL(t *testing.T) {
	for url, want := range map[string]string{
		"mysql://u:p%40ss@db/limits":                             "tcp db:3306 limits u p@ss false",
		"mariadb://u@[::1]:3307/limits?connections=4":            "tcp [::1]:3307 limits u  false",
		"MySQL+TLS://u@db/limits?server_name=x":                  "tcp db:3306 limits u  true",
		"mysql://u@/limits?socket=/run/mysqld/mysqld.sock":       "unix /run/mysqld/mysqld.sock limits u  false",
		"mariadb+tls://u@db/limits?ca_file=/none&migrate=false":  "tcp db:3306 limits u  true",
		"mysql://u@localhost:1/limits?password_file=/run/secret": "tcp localhost:1 limits u  false",
	} {
		a, err := ParseURL(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		secure := "false"
		if a.config.TLS != nil {
			secure = "true"
		}
		if got := strings.Join([]string{a.config.Net, a.Host, a.Database, a.config.User, a.config.Passwd, secure}, " "); got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
	for url, want := range map[string]string{
		"":                                      "write the URL like",
		"mysql://":                              "write the URL like",
		"http://u:s3cret@a/b":                   "write the URL like",
		"mysql://u:s3cret@a":                    "names no database",
		"mysql://u:s3cret@a,b/c":                "several addresses",
		"mysql://u:s3cret@a/b/c":                "write the URL like",
		"mysql://u:s3cret@a:x/b":                "write the URL like",
		"mysql://u:s3cret@a/b#c":                "write the URL like",
		"mysql://u:s3cret@a/b?sslmode=off":      `the parameter "sslmode" is unknown`,
		"mysql://u:s3cret@a/b?connections=0":    "connections: write a number",
		"mysql://u:s3cret@a/b?migrate=perhaps":  "migrate: write true or false",
		"mysql://u:s3cret@a/b?ca_file=/x":       "begin the URL with mysql+tls://",
		"mysql://u:s3cret@a/b?server_name=x":    "begin the URL with mysql+tls://",
		"mysql+tls://u:s3cret@/b?ca_file=/none": "write the URL like",
	} {
		if a, err := ParseURL(url); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %+v %v, want %q", url, a, err, want)
		}
	}
}

// TestFiles: a file that cannot be read is an error of Open, which names the parameter.
func TestFiles(t *testing.T) {
	for url, want := range map[string]string{
		"mysql://u@a/b?password_file=/none/p":     "password_file: ",
		"mysql+tls://u@a/b?ca_file=/none/ca":      "ca_file: ",
		"mysql+tls://u@a/b?ca_file=open.go":       "has no certificate in PEM",
		"mysql://u@a/b?password_file=" + "/proc/": "password_file: ",
	} {
		if s, err := Open(url, weirkv.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v %v, want %q", url, s, err, want)
		}
	}
}
