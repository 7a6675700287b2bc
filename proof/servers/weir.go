package servers

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// BuildWeir builds the weir command of this working tree into dir and returns its path. The flags
// are those of go build, like -race. Build it once per process. Processes with the same $WEIR_BUILDS, a
// directory, share what they build.
func BuildWeir(ctx context.Context, dir string, flags ...string) (string, error) {
	return build(ctx, dir, "weir", filepath.Join("cmd", "weir"), flags...)
}

// BuildCaddy builds Caddy with the module weircaddy, like BuildWeir.
func BuildCaddy(ctx context.Context, dir string, flags ...string) (string, error) {
	return build(ctx, dir, "caddy", filepath.Join("weircaddy", "cmd", "caddy"), flags...)
}

func build(ctx context.Context, dir, name, source string, flags ...string) (string, error) {
	root, err := repository()
	if err != nil {
		return "", err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	binary := filepath.Join(dir, name)
	if shared := os.Getenv("WEIR_BUILDS"); shared != "" {
		return binary, shareBuild(ctx, root, source, filepath.Join(shared, name+strings.Join(flags, "")), binary, flags)
	}
	return binary, compile(ctx, root, source, binary, flags)
}

// shareBuild makes binary a link to the program at the path shared, which the first caller builds.
func shareBuild(ctx context.Context, root, source, shared, binary string, flags []string) error {
	lock, err := os.Create(shared + ".lock")
	if err != nil {
		return err
	}
	defer lock.Close() // and the lock ends
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	if _, err := os.Stat(shared); errors.Is(err, os.ErrNotExist) {
		next := shared + ".new" // a build that is killed leaves no program that others take
		if err := compile(ctx, root, source, next, flags); err != nil {
			return err
		}
		if err := os.Rename(next, shared); err != nil {
			return err
		}
	}
	return os.Link(shared, binary)
}

// compile runs go build.
func compile(ctx context.Context, root, source, binary string, flags []string) error {
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"build"}, flags...), "-o", binary, ".")...)
	cmd.Dir = filepath.Join(root, source)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build of %s: %w\n%s", cmd.Dir, err, out)
	}
	return nil
}

// repository returns the root of this working tree, found above the current directory.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "cmd", "weir", "main.go")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%s is not in Weir's repository: there is no cmd/weir above it", dir)
		}
	}
}

// A Weir is a running weir serve.
type Weir struct {
	*Process
	Gateway, Admin string              // HOST:PORT
	ByFace         map[string][]string // where each face listens
}

// StartWeir runs the binary's serve command for a policy file and waits until /readyz responds. The
// file must have an admin address. Port 0 in its addresses is a free port, and what tests should
// use.
func StartWeir(ctx context.Context, binary, policyFile string, args ...string) (*Weir, error) {
	return startWeir(ctx, (*Weir).ready, binary, policyFile, args...)
}

// StartWeirApart is StartWeir for a binary whose admin address cannot be reached from here, as in a network namespace. It
// waits until the log says where it listens.
func StartWeirApart(ctx context.Context, binary, policyFile string, args ...string) (*Weir, error) {
	return startWeir(ctx, func(*Weir, context.Context) error { return nil }, binary, policyFile, args...)
}

func startWeir(ctx context.Context, ready func(*Weir, context.Context) error, binary, policyFile string, args ...string) (*Weir, error) {
	p, err := start(syscall.SIGTERM, exec.Command(binary, append([]string{"serve", "--config", policyFile}, args...)...))
	if err != nil {
		return nil, err
	}
	p.Name = "weir serve"
	w := &Weir{Process: p}
	err = p.until(ctx, func(ctx context.Context) error {
		if w.ByFace == nil {
			if err := w.addresses(); err != nil {
				return err
			}
		}
		return ready(w, ctx)
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// addresses reads from the log where weir listens.
func (w *Weir) addresses() error {
	lines := bufio.NewScanner(strings.NewReader(w.Output()))
	for lines.Scan() {
		if byFace := Listens(lines.Bytes()); byFace != nil {
			w.ByFace = byFace
			if of := byFace["gateway"]; len(of) > 0 {
				w.Gateway = of[0]
			}
			if of := byFace["admin"]; len(of) > 0 {
				w.Admin = of[0]
			}
			return nil
		}
	}
	return errors.New("the log does not say yet where it listens")
}

// Listens returns where weir listens, by face, from the line of its log that says so; nil for another line.
func Listens(log []byte) (byFace map[string][]string) {
	var line struct {
		Msg    string
		Listen map[string][]string
	}
	if json.Unmarshal(log, &line) != nil || line.Msg != "serving" {
		return nil
	}
	return line.Listen
}

func (w *Weir) ready(ctx context.Context) error {
	if w.Admin == "" {
		return errors.New("the policy has no listen.admin, so nobody can tell whether it is ready")
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.Admin+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz: %s", resp.Status)
	}
	return nil
}
