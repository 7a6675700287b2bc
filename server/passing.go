package server

import (
	"net"
	"os"
	"sync"
	"time"

	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/handover"
)

// passing hands the counts of quotas over to a new process while it starts.
type passing struct {
	s     *server
	line  net.Conn
	over  *active.HandOver // nil if the new process has not taken the counts
	late  *time.Timer
	talks sync.WaitGroup
}

// takeOverTimeout is how long requests wait for a new process that has asked for the counts. Asking is the
// last thing that it does before it serves. It waits for half of that time (lineTimeout in package active):
// if the counts come too late, it serves without them, and is not stopped for that.
const takeOverTimeout = 20 * time.Second

// pass begins to wait for a new process to ask for the counts, and returns the end of the connection that
// the process needs. giveUp is called if it does not serve soon afterwards.
func (s *server) pass(giveUp func()) (*passing, *os.File, error) {
	line, other, err := handover.NewLine()
	if err != nil {
		return nil, nil, err
	}
	p := &passing{s: s, line: line}
	p.talks.Go(func() {
		over, err := s.policy.HandOver(line)
		if err != nil {
			s.Log.Warn("the counts of quotas were not handed over", "error", err)
			return
		}
		p.over, p.late = over, time.AfterFunc(takeOverTimeout, giveUp)
	})
	return p, other, nil
}

// end is called when it is clear whether the new process serves.
func (p *passing) end(serves bool) {
	// a process that serves has read the counts, or never will
	_ = p.line.SetReadDeadline(time.Now())
	p.talks.Wait()
	if p.over == nil {
		p.line.Close()
		return
	}
	p.late.Stop()
	if serves {
		p.s.next = p.line
		p.over.Done()
		return
	}
	p.line.Close()
	p.over.Abandon()
}
