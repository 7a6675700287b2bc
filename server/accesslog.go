package server

import (
	"path/filepath"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/accesslog"
	"github.com/weirflow/weir/server/policyfile"
)

// accessLog is the access log in force, with what the policy said of it.
type accessLog struct {
	asked policy.AccessLog
	*accesslog.Log
}

func (l accessLog) close() {
	if l.Log != nil {
		l.Log.Close()
	}
}

// nextLog is the access log of a policy: the one that is in force where nothing changes, else one that was opened.
func (s *server) nextLog(file *policyfile.File) (*nextLog, error) {
	asked := file.Policy.AccessLog
	if asked == s.edge.log.asked {
		return &nextLog{}, nil
	}
	next := &nextLog{changed: true, accessLog: accessLog{asked: asked}}
	if asked.File == "" {
		return next, nil
	}
	o := accesslog.Options{File: asked.File, Format: asked.Format}
	if o.File != "stdout" && o.File != "stderr" && !filepath.IsAbs(o.File) {
		o.File = filepath.Join(filepath.Dir(file.Path), o.File)
	}
	var err error
	next.Log, err = accesslog.Open(o)
	return next, err
}

// nextLog is an access log that is not in force yet.
type nextLog struct {
	accessLog
	changed bool
}

func (l *nextLog) discard() {
	if l.changed {
		l.close()
	}
}

// useLog puts an access log in force. A request that is being logged to the old one may lose its line.
func (s *server) useLog(next *nextLog) {
	if !next.changed {
		return
	}
	old := s.edge.log
	s.edge.mu.Lock()
	s.edge.log = next.accessLog
	s.edge.mu.Unlock()
	s.gateway.SetAccessLog(next.Log)
	old.close()
}

// reopenLog opens the access log again, after its file was moved away.
func (s *server) reopenLog() {
	if s.edge.log.Log == nil {
		return
	}
	if err := s.edge.log.Reopen(); err != nil {
		s.Log.Error("the access log was not opened again: the old file goes on", "error", err)
		return
	}
	s.Log.Info("access log opened again")
}

// dropped is how many lines of access logs were lost.
func (e *edge) dropped() (lines, failures uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.log.Log == nil {
		return 0, 0
	}
	return e.log.Dropped()
}
