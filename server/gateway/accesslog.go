package gateway

import (
	"log/slog"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/accesslog"
	"github.com/weirflow/weir/server/policyfile"
)

// accessLog is the access log in force, with the settings that it was opened with.
type accessLog struct {
	settings       policy.AccessLog
	*accesslog.Log // nil for none
}

func (l accessLog) close() {
	if l.Log != nil {
		l.Log.Close()
	}
}

// nextLog is an access log that is not in force yet.
type nextLog struct {
	accessLog
	changed bool
}

// openLog opens the access log of a policy, unless its settings are the current ones.
func openLog(file *policyfile.File, current policy.AccessLog, log *slog.Logger) (*nextLog, error) {
	settings := file.Policy.AccessLog
	if settings == current {
		return &nextLog{}, nil
	}
	next := &nextLog{changed: true, accessLog: accessLog{settings: settings}}
	if settings.File == "" {
		return next, nil
	}
	o := accesslog.Options{File: settings.File, Format: settings.Format, Log: log}
	if o.File != "stdout" && o.File != "stderr" {
		o.File = file.Beside(o.File)
	}
	var err error
	next.Log, err = accesslog.Open(o)
	return next, err
}

// discard closes a log that was opened and is not used.
func (l *nextLog) discard() {
	if l.changed {
		l.close()
	}
}

// useLog puts an access log in force. A request that is being logged to the old one may lose its
// line. The lock of the edge is held.
func (e *edge) useLog(next *nextLog) {
	if !next.changed {
		return
	}
	old := e.access
	e.access = next.accessLog
	e.gateway.SetAccessLog(next.Log)
	old.close()
}

// Reopen opens the access log again, after its file was moved away.
func (e *edge) Reopen() {
	e.mu.Lock()
	access := e.access
	e.mu.Unlock()
	if access.Log == nil {
		return
	}
	if err := access.Log.Reopen(); err != nil {
		e.gateway.log.Error("access log not reopened: the old file stays in use", "error", err)
		return
	}
	e.gateway.log.Info("access log opened again")
}

// lostLines is how many lines the access log lost, because they came too fast or could not be
// written.
func (e *edge) lostLines() (dropped, failed uint64) {
	e.mu.Lock()
	access := e.access
	e.mu.Unlock()
	if access.Log == nil {
		return 0, 0
	}
	return access.Log.Lost()
}
