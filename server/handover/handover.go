// Package handover passes listening sockets to a successor process, and takes them from a
// predecessor or from systemd. A socket stays open during the handover, so no connection is refused
// or lost.
package handover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// The environment variables of a successor process.
const (
	listenersVariable = "WEIR_LISTENERS" // the sockets, in JSON
	readyVariable     = "WEIR_READY_FD"  // a pipe: the process writes a byte to it when it serves
)

// endTimeout is how long a successor that will not serve may take to end.
const endTimeout = 10 * time.Second

const firstFile = 3 // after standard input, output and error

// socket is a socket in the JSON.
type socket struct {
	Name    string `json:"name"`    // what listens on it, like listen.gateway
	Address string `json:"address"` // as the policy says it
	FD      int    `json:"fd"`
}

// Sockets are the listening sockets that a process inherited and has not taken yet. They are for
// one goroutine.
type Sockets struct {
	listeners []inherited
	ready     *os.File
	line      net.Conn // to the predecessor; nil for none
}

type inherited struct {
	name, address string // empty from systemd
	net.Listener
}

// Inherit returns the inherited sockets, and removes the variables from the environment. There may
// be none.
func Inherit() (*Sockets, error) {
	s := &Sockets{}
	if err := s.fromPredecessor(); err != nil {
		s.Close()
		return nil, err
	}
	if err := errors.Join(s.inheritLine(), s.fromSystemd()); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Sockets) fromPredecessor() error {
	given, ready := os.Getenv(listenersVariable), os.Getenv(readyVariable)
	os.Unsetenv(listenersVariable)
	os.Unsetenv(readyVariable)
	if ready != "" {
		fd, err := strconv.Atoi(ready)
		if err != nil || fd < firstFile {
			return fmt.Errorf("handover: %s=%q is not a file", readyVariable, ready)
		}
		syscall.CloseOnExec(fd)
		s.ready = os.NewFile(uintptr(fd), "ready")
	}
	if given == "" {
		return nil
	}
	var all []socket
	if err := json.Unmarshal([]byte(given), &all); err != nil {
		return fmt.Errorf("handover: %s: %w", listenersVariable, err)
	}
	for _, one := range all {
		if err := s.add(one.FD, one.Name, one.Address); err != nil {
			return err
		}
	}
	return nil
}

// fromSystemd adds the sockets of a systemd socket unit.
func (s *Sockets) fromSystemd() error {
	pid, count := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		os.Unsetenv(name)
	}
	if count == "" || pid != strconv.Itoa(os.Getpid()) {
		return nil
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 0 || n > 1024 {
		return fmt.Errorf("handover: LISTEN_FDS=%q is not a number of sockets", count)
	}
	for fd := firstFile; fd < firstFile+n; fd++ {
		if err := s.add(fd, "", ""); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sockets) add(fd int, name, address string) error {
	if fd < firstFile {
		return fmt.Errorf("handover: %d is not a socket", fd)
	}
	syscall.CloseOnExec(fd)
	f := os.NewFile(uintptr(fd), name)
	defer f.Close() // the listener has a copy
	l, err := net.FileListener(f)
	if err != nil {
		return fmt.Errorf("handover: file %d is not a socket that listens: %w", fd, err)
	}
	s.listeners = append(s.listeners, inherited{name, address, l})
	return nil
}

// Take returns the socket for an address of a policy, nil for none. A socket of the predecessor has
// the same name and address; one of systemd listens on the address.
func (s *Sockets) Take(name, address string) net.Listener {
	for i, l := range s.listeners {
		if l.name == name && l.address == address || l.name == "" && listensOn(l, address) {
			s.listeners = append(s.listeners[:i], s.listeners[i+1:]...)
			return l.Listener
		}
	}
	return nil
}

// listensOn reports whether a socket listens on an address. All addresses are written in several
// ways.
func listensOn(l net.Listener, address string) bool {
	is, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return false
	}
	want, err := net.ResolveTCPAddr("tcp", address)
	if err != nil || want.Port != is.Port {
		return false
	}
	all := want.IP == nil || want.IP.IsUnspecified()
	return all && (is.IP == nil || is.IP.IsUnspecified()) || want.IP.Equal(is.IP)
}

// Left returns the addresses of the sockets that were not taken.
func (s *Sockets) Left() (all []string) {
	for _, l := range s.listeners {
		all = append(all, l.Addr().String())
	}
	return all
}

// Close closes the sockets that were not taken. Without Ready, the predecessor continues to serve.
func (s *Sockets) Close() {
	for _, l := range s.listeners {
		l.Close()
	}
	s.listeners = nil
	if s.ready != nil {
		s.ready.Close()
		s.ready = nil
	}
	if s.line != nil {
		s.line.Close()
		s.line = nil
	}
}

// Ready tells the predecessor, or systemd, that this process serves.
func (s *Sockets) Ready() error {
	var err error
	if s.ready != nil {
		_, err = s.ready.Write([]byte{1})
	}
	s.Close()
	return errors.Join(err, notify(fmt.Sprintf("READY=1\nMAINPID=%d", os.Getpid())))
}

// notify sends a state to systemd, if it wants to know.
func notify(state string) error {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return nil
	}
	// a name that begins with @ is abstract
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("handover: NOTIFY_SOCKET: %w", err)
	}
	defer conn.Close()
	_, err = conn.Write([]byte(state))
	return err
}

// A Socket is a socket for the successor.
type Socket struct {
	Name, Address string // the arguments of Take in the successor
	Listener      net.Listener
}

// A Program is how a process was started: its executable may be replaced later.
type Program struct {
	Path string
	Args []string // without the name
}

// ThisProgram returns how to start this program again: by the same name, so that a link leads to
// the version that it points to by then.
func ThisProgram() (Program, error) {
	path, err := exec.LookPath(os.Args[0])
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil { // it was started with another argv[0]
		if path, err = os.Executable(); err != nil {
			return Program{}, err
		}
	}
	return Program{Path: path, Args: os.Args[1:]}, nil
}

// duplicate is another file for a socket. That of net.TCPListener.File would make the socket block
// when it is handed on, for this process too: then nobody could close it.
func duplicate(l net.Listener) (*os.File, error) {
	socket, ok := l.(syscall.Conn)
	if !ok {
		return nil, errors.New("it is not a socket")
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd int
	var dupErr error
	err = raw.Control(func(from uintptr) {
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
		if fd, dupErr = syscall.Dup(int(from)); dupErr == nil {
			syscall.CloseOnExec(fd)
		}
	})
	if err := errors.Join(err, dupErr); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "socket"), nil
}

// Start starts a successor with the sockets, and returns once it serves. After an error, or when
// the context ends first, the successor is stopped. line is the successor's end of a connection (NewLine);
// Start closes it here.
func Start(ctx context.Context, p Program, sockets []Socket, line *os.File) (pid int, err error) {
	cmd := exec.Command(p.Path, p.Args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	var given []socket
	defer line.Close()
	defer func() { _ = closeAll(cmd.ExtraFiles) }()
	for i, s := range sockets {
		f, err := duplicate(s.Listener)
		if err != nil {
			return 0, fmt.Errorf("handover: %s on %s: %w", s.Name, s.Address, err)
		}
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		given = append(given, socket{s.Name, s.Address, firstFile + i})
	}
	hears, tells, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer hears.Close()
	cmd.ExtraFiles = append(cmd.ExtraFiles, tells)
	cmd.ExtraFiles = append(cmd.ExtraFiles, line)
	text, err := json.Marshal(given)
	if err != nil {
		return 0, err
	}
	cmd.Env = append(os.Environ(), listenersVariable+"="+string(text), fmt.Sprintf("%s=%d", readyVariable, firstFile+len(sockets)),
		fmt.Sprintf("%s=%d:%d", lineVariable, os.Getpid(), firstFile+len(sockets)+1))
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	tells.Close()
	line.Close() // the connection ends with the successor
	// a pipe has deadlines
	stop := context.AfterFunc(ctx, func() { _ = hears.SetReadDeadline(time.Now()) })
	defer stop()
	if _, err := hears.Read(make([]byte, 1)); err != nil {
		// It closes what it has inherited before it says why it failed.
		ending, cancel := context.WithTimeout(ctx, endTimeout)
		defer cancel()
		defer context.AfterFunc(ending, func() { _ = cmd.Process.Kill() })()
		ended := cmd.Wait()
		if ctx.Err() != nil {
			return 0, fmt.Errorf("the new process was not ready in time: %w", ctx.Err())
		}
		if ended == nil {
			ended = errors.New("without an error")
		}
		return 0, fmt.Errorf("the new process ended before it was ready: %w", ended)
	}
	pid = cmd.Process.Pid
	return pid, cmd.Process.Release()
}
