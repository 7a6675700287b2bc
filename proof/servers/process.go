package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Process is a program that runs until it is stopped. It is what every server here has underneath.
type Process struct {
	Name string // for messages

	cmd    *exec.Cmd
	quit   syscall.Signal // asks it to end in good order
	output tail
	ended  chan struct{} // closed once it has
	err    error         // what exec.Cmd.Wait returned; set when ended is closed
	stop   func() error
}

const (
	grace = 20 * time.Second     // for ending in good order
	tick  = 5 * time.Millisecond // between two looks at a server that is not ready yet
	pipes = time.Second          // for output to be read after the end, where a child holds on to it
)

// start runs a program.
func start(quit syscall.Signal, cmd *exec.Cmd) (*Process, error) {
	p := &Process{Name: cmd.Args[0], cmd: cmd, quit: quit, ended: make(chan struct{})}
	p.stop = sync.OnceValue(p.end)
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	cmd.SysProcAttr = attributes()
	cmd.WaitDelay = pipes
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// Program finds a program, or says which Debian package has it.
func Program(name, debianPackage string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is not installed: apt install %s (%w)", name, debianPackage, err)
	}
	return path, nil
}

// until asks whether the process is ready until it is, the process ends or the context does. A process that is not ready is stopped.
func (p *Process) until(ctx context.Context, ready func(context.Context) error) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		err := ready(ctx)
		select {
		case <-p.ended: // then it was somebody else who answered, if anyone did
			return p.failed("it ended before it was ready", p.err)
		default:
		}
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-p.ended:
		case <-ctx.Done():
			p.kill()
			return p.failed("it is not ready", errors.Join(ctx.Err(), err))
		}
	}
}

// failed is an error with what the process said.
func (p *Process) failed(what string, err error) error {
	return fmt.Errorf("%s: %s: %w\n%s", p.Name, what, err, strings.TrimSpace(p.Output()))
}

// Output is what the process wrote, standard output and error together: the last of it, if it was much.
func (p *Process) Output() string { return p.output.String() }

// Pid is the number of the process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Signal sends a signal to the process.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Ended is closed once the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Stop asks the process to end in good order, and kills it if it does not. It is an error if it had to be killed, or if it ended with
// another code than 0. A second call returns what the first did; one after the process has ended by itself says how.
func (p *Process) Stop() error { return p.stop() }

func (p *Process) end() error {
	if err := p.cmd.Process.Signal(p.quit); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return p.failed("it cannot be stopped", err)
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		p.kill()
		return p.failed("it was killed", fmt.Errorf("it did not end within %v of %v", grace, p.quit))
	}
	if p.err != nil && !errors.Is(p.err, exec.ErrWaitDelay) {
		return p.failed("it did not end well", p.err)
	}
	return nil
}

// kill ends the process and its children at once.
func (p *Process) kill() {
	syscall.Kill(-p.Pid(), syscall.SIGKILL) // it leads a group of its own
	<-p.ended
}

// tail keeps the last of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const maxTail = 256 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if n := len(t.text) - maxTail; n > maxTail {
		t.text = append(t.text[:0], t.text[n:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text[max(0, len(t.text)-maxTail):])
}
