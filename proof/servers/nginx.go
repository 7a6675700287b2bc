package servers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"text/template"
)

// A Server is a server on one address.
type Server struct {
	*Process
	Addr      string // HOST:PORT
	AccessLog string // of nginx: access.log in dir, if the configuration writes one there
}

// Nginx starts nginx. conf is a whole configuration (HTTP makes a short one) and a text/template:
// {{.Addr}} is the free address to listen on, and {{.Dir}} is dir, which must exist. Relative paths
// are relative to dir. The directives daemon, pid and user are added unless conf has them, so that
// nginx runs in the foreground, both for root and for other users.
func Nginx(ctx context.Context, dir, conf string) (*Server, error) {
	path, err := Program("nginx", "nginx")
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	t, err := template.New("nginx.conf").Option("missingkey=error").Parse(conf)
	if err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		s, err := nginx(ctx, path, dir, t)
		if err == nil || !strings.Contains(err.Error(), "Address already in use") || try == 4 {
			return s, err
		}
	}
}

func nginx(ctx context.Context, path, dir string, conf *template.Template) (*Server, error) {
	free, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	addr := free.Host
	var text strings.Builder
	if err := conf.Execute(&text, map[string]string{"Addr": addr, "Dir": dir}); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
		return nil, err
	}
	p, err := start(syscall.SIGQUIT, exec.Command(path, "-e", "stderr", "-p", dir, "-c", file, "-g", mainDirectives(text.String())))
	if err != nil {
		free.Release()
		return nil, err
	}
	free.releaseAfter(p)
	err = p.until(ctx, func(context.Context) error {
		// nginx writes the file after it has begun to listen, so nginx itself will respond.
		pid, err := os.ReadFile(filepath.Join(dir, pidFile))
		if err == nil && strings.TrimSpace(string(pid)) != strconv.Itoa(p.Pid()) {
			err = fmt.Errorf("%s is of another process: %s", pidFile, pid)
		}
		if err != nil {
			return err
		}
		return dial(addr)
	})
	if err != nil {
		return nil, err
	}
	return &Server{Process: p, Addr: addr, AccessLog: filepath.Join(dir, "access.log")}, nil
}

const pidFile = "nginx.pid"

// mainDirectives returns directives for the command line that the configuration does not have.
func mainDirectives(conf string) string {
	text := ""
	add := func(name, value string) {
		if !regexp.MustCompile(`(?m)^\s*` + name + `\s`).MatchString(conf) {
			text += name + " " + value + "; "
		}
	}
	add("daemon", "off")
	add("pid", pidFile)
	if u, err := user.Current(); err == nil && u.Uid == "0" {
		add("user", u.Username) // otherwise workers may not be able to enter a directory of root
	}
	return text
}

// HTTP returns a configuration for Nginx with the given http block. It has one worker, keeps its
// temporary files in dir, and writes no access log unless the block says so.
func HTTP(block string) string {
	if !strings.Contains(block, "access_log") { // beside other access logs, off would disable those too
		block = "	access_log off;\n" + block
	}
	return `worker_processes 1;
events { worker_connections 4096; }
http {
	client_body_temp_path body_temp;
	proxy_temp_path proxy_temp;
	fastcgi_temp_path fastcgi_temp;
	uwsgi_temp_path uwsgi_temp;
	scgi_temp_path scgi_temp;
` + block + `
}
`
}
