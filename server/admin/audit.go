package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/asciijson"
	"github.com/weirflow/weir/server/policyfile"
)

// audited is a line of the audit log: a request that changed something, or would have, or that read whose
// keys these are.
type audited struct {
	At      string          `json:"at"`
	Who     string          `json:"who"`  // token, loopback, or nobody for a request that was refused for its origin or its token
	From    string          `json:"from"` // the address
	Action  string          `json:"action"`
	Request string          `json:"request"`
	Asked   json.RawMessage `json:"asked,omitempty"` // what was sent, if that is short JSON
	Status  int             `json:"status"`
	Result  string          `json:"result"` // ok or refused
	Changes []string        `json:"changes,omitempty"`
	Detail  string          `json:"detail,omitempty"` // of a refusal
}

// Bounds of a line.
const (
	mostAsked    = 4 << 10
	mostAnswered = 64 << 10
	// lines about requests without the token, each second: they may come from anybody who can connect
	refusedLines = 10
)

// An auditLog writes a line for each request that changes something. A file is opened for each line, so
// that it may be moved at any time.
type auditLog struct {
	path    string // or stderr
	stderr  io.Writer
	refused *weir.Limiter

	mu   sync.Mutex // held while a line is written
	left int        // out, since the last line about a request without the token
}

// newAuditLog returns the audit log of a policy; nil for none.
func newAuditLog(file *policyfile.File) (*auditLog, error) {
	path := file.Policy.Admin.AuditLog
	if path == "" {
		return nil, nil
	}
	refused, err := weir.New(weir.TokenBucket{Rate: weir.PerSecond(refusedLines), Burst: refusedLines})
	if err != nil {
		return nil, err
	}
	if path != "stderr" {
		path = file.Beside(path)
		if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("%s is not a directory: create it", filepath.Dir(path))
		}
	}
	return &auditLog{path: path, stderr: os.Stderr, refused: refused}, nil
}

// write writes a line.
func (l *auditLog) write(line *audited) error {
	if line.Who == "nobody" && !l.refused.Allow() {
		l.mu.Lock()
		l.left++
		l.mu.Unlock()
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left > 0 && line.Who == "nobody" {
		line.Detail += fmt.Sprintf(" (%d lines like this were left out)", l.left)
		l.left = 0
	}
	text, err := asciijson.Marshal(line) // none of it can do anything to a terminal
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if l.path == "stderr" {
		_, err = l.stderr.Write(text)
		return err
	}
	// O_NONBLOCK: a named pipe that nobody reads is an error, and does not block
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// isAudited reports whether a request gets a line: it may change something, or shows whose keys these are.
func isAudited(r *http.Request) bool {
	if !strings.HasPrefix(r.URL.Path, "/v1/") {
		return false
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return true
	}
	q := r.URL.Query()
	return q.Get("keys") == "1" || q.Get("identities") == "1"
}

// audit serves a request, and writes a line about it. admitted says that it has the token, if there is one.
func (a *Admin) audit(l *auditLog, w http.ResponseWriter, r *http.Request, admitted bool, serve func(http.ResponseWriter, *http.Request)) {
	who := "nobody"
	if admitted && a.hasToken() {
		who = "token"
	} else if admitted {
		who = "loopback"
	}
	line := audited{At: time.Now().UTC().Format(time.RFC3339Nano), Who: who, From: r.RemoteAddr,
		Action: cut(strings.TrimPrefix(r.URL.Path, "/v1/")), Request: cut(r.Method + " " + r.URL.RequestURI())}
	sent, answered := &heard{most: mostAsked}, &heard{most: mostAnswered}
	if r.Body != nil && admitted {
		next := *r // net/http still uses the body of its own request
		next.Body = struct {
			io.Reader
			io.Closer
		}{io.TeeReader(r.Body, sent), r.Body}
		r = &next
	}
	out := &heardWriter{ResponseWriter: w, heard: answered, status: http.StatusOK}
	if r.Method == http.MethodGet || r.Method == http.MethodHead { // a stream may last for days: its line comes when it begins
		line.Status, line.Result = http.StatusOK, "ok"
		if admitted {
			a.writeAudit(l, &line)
			serve(w, r)
			return
		}
	}
	serve(out, r)
	if line.Status, line.Result = out.status, "ok"; out.status >= 400 {
		line.Result = "refused"
	}
	if !sent.cut && json.Valid(sent.Bytes()) {
		line.Asked = sent.Bytes()
	}
	var of struct {
		Detail  string
		Changes []struct{ Text string }
	}
	if json.Unmarshal(answered.Bytes(), &of) == nil {
		line.Detail = cut(of.Detail)
		for _, c := range of.Changes {
			line.Changes = append(line.Changes, c.Text)
		}
	}
	a.writeAudit(l, &line)
}

func (a *Admin) writeAudit(l *auditLog, line *audited) {
	if err := l.write(line); err != nil {
		a.log.Error("admin: the audit log cannot be written", "error", err, "action", line.Action, "result", line.Result)
	}
}

// heard keeps the beginning of what is written.
type heard struct {
	bytes.Buffer
	most int
	cut  bool
}

func (h *heard) Write(p []byte) (int, error) {
	if room := h.most - h.Len(); len(p) > room {
		h.cut = true
		h.Buffer.Write(p[:room])
	} else {
		h.Buffer.Write(p)
	}
	return len(p), nil
}

// heardWriter notes a response.
type heardWriter struct {
	http.ResponseWriter
	heard  *heard
	status int
}

// WriteHeader notes the status.
func (w *heardWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Write notes the body.
func (w *heardWriter) Write(p []byte) (int, error) {
	_, _ = w.heard.Write(p)
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *heardWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
