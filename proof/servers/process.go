package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A Process is a program that runs until it is stopped. Every server here has one.
type Process struct {
	Name string // for messages

	cmd    *exec.Cmd
	quit   syscall.Signal // the signal for a graceful shutdown
	output tail
	ended  chan struct{} // closed when it has ended
	err    error         // the result of exec.Cmd.Wait; set before ended is closed
	stop   func() error
	killed atomic.Bool // by Kill
}

const (
	grace = 20 * time.Second     // for a graceful shutdown
	tick  = 5 * time.Millisecond // between two checks whether a server is ready
	// for reading output after the end, while a child has it open
	pipes = time.Second
)

// start runs a program. quit is the signal for its graceful shutdown.
func start(quit syscall.Signal, cmd *exec.Cmd) (*Process, error) {
	p := &Process{Name: cmd.Args[0], cmd: cmd, quit: quit, ended: make(chan struct{})}
	p.stop = sync.OnceValue(p.end)
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = attributes(syscall.SIGTERM)
	}
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

// Program returns the path of a program, or an error that names its Debian package.
func Program(name, debianPackage string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is not installed: apt install %s (%w)", name, debianPackage, err)
	}
	return path, nil
}

// until repeats a check until the process is ready, or ends, or the context ends. A process that is
// not ready is stopped.
func (p *Process) until(ctx context.Context, ready func(context.Context) error) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		err := ready(ctx)
		select {
		case <-p.ended: // then another process may have responded
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

// failed returns an error with the output of the process.
func (p *Process) failed(what string, err error) error {
	return fmt.Errorf("%s: %s: %w\n%s", p.Name, what, err, strings.TrimSpace(p.Output()))
}

// Output returns what the process wrote to standard output and error: the end of it, if it was
// much.
func (p *Process) Output() string { return p.output.String() }

// Pid returns the number of the process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Signal sends a signal to the process.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Stop shuts the process down gracefully, and kills it if it does not end. It is an error if it had
// to be killed or exited with another code than 0, but not if Kill ended it. A paused process is
// resumed first. A second call returns the same as the first; one after the process has ended by
// itself returns its exit error.
func (p *Process) Stop() error { return p.stop() }

func (p *Process) end() error {
	if err := p.cmd.Process.Signal(p.quit); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return p.failed("it cannot be stopped", err)
	}
	p.signalGroup(syscall.SIGCONT)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		p.kill()
		return p.failed("it was killed", fmt.Errorf("it did not end within %v of %v", grace, p.quit))
	}
	if p.killed.Load() && p.endedBy(syscall.SIGKILL) {
		return nil
	}
	if p.err != nil && !errors.Is(p.err, exec.ErrWaitDelay) {
		return p.failed("it did not end well", p.err)
	}
	return nil
}

// Kill ends the process and its children at once, as a crash would, and returns when it is gone. A
// later Stop returns nil, unless the process had ended in another way before.
func (p *Process) Kill() {
	p.killed.Store(true)
	p.kill()
}

// Pause stops the process and its children (SIGSTOP), and returns when all threads are stopped. Its
// connections stay open, and the system goes on accepting new ones. It can be resumed, stopped and
// killed.
func (p *Process) Pause() error {
	p.signalGroup(syscall.SIGSTOP)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for !stands(p.Pid()) {
		select {
		case <-ticker.C:
		case <-p.ended:
			return p.failed("it cannot be paused", errors.New("it has ended"))
		case <-timer.C:
			return p.failed("it cannot be paused", fmt.Errorf("it still runs after %v", grace))
		}
	}
	return nil
}

// Resume continues a paused process.
func (p *Process) Resume() { p.signalGroup(syscall.SIGCONT) }

// kill ends the process and its children at once.
func (p *Process) kill() {
	p.signalGroup(syscall.SIGKILL)
	<-p.ended
}

// signalGroup sends a signal to the process and its children: it leads a process group. When the
// process has ended, its number may belong to another one.
func (p *Process) signalGroup(s syscall.Signal) {
	select {
	case <-p.ended:
	default:
		syscall.Kill(-p.Pid(), s)
	}
}

// endedBy reports whether a signal ended the process. Call it only after the process has ended.
func (p *Process) endedBy(s syscall.Signal) bool {
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signal() == s
}

// tail keeps the end of what is written to it.
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
