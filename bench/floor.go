package main

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// A floorServer is the process of a server that decides nothing: the least that its protocol takes.
type floorServer struct {
	cmd     *exec.Cmd
	address string
}

// startFloor builds a command of this folder into dir, and runs it. It prints its address.
func startFloor(ctx context.Context, dir, command string) (*floorServer, error) {
	path := filepath.Join(dir, command)
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/weirflow/weir/bench/"+command).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w\n%s", err, out)
	}
	f := &floorServer{cmd: exec.Command(path)}
	out, err := f.cmd.StdoutPipe()
	if err == nil {
		err = f.cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = f.stop()
		return nil, fmt.Errorf("%s did not print its address: %w", command, err)
	}
	f.address = strings.TrimSpace(line)
	return f, nil
}

func (f *floorServer) pid() int { return f.cmd.Process.Pid }

// stop kills the process.
func (f *floorServer) stop() error {
	err := f.cmd.Process.Kill()
	_ = f.cmd.Wait() // it was killed
	return err
}
