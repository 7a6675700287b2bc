package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/weirflow/weir/server/policyfile"
)

// version tells two states of a file apart by what is in it: times and sizes miss a change within the same second, and links that are
// moved, as Kubernetes does it. A policy file is small.
type version [sha256.Size]byte

// look reads a file's version. One that cannot be read has a version of its own.
func look(path string) version {
	f, err := os.Open(path)
	if err != nil {
		return version{}
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, 4<<20)); err != nil {
		return version{}
	}
	return version(h.Sum(nil))
}

// reload reads the policy again and puts it in force, all or nothing: what is wrong is told, and the old one goes on.
func (s *server) reload(ctx context.Context, why string) {
	if s.Path == "" {
		return // the demo has no file
	}
	_, _ = s.control.reload(ctx, why) // it has said what was wrong
}

// told writes down what became of a reload.
func (s *server) told(why string, err error) {
	s.admin.Reloaded(err)
	var invalid *policyfile.InvalidError
	switch {
	case err == nil:
		s.Log.Info("policy reloaded", "file", s.Path, "why", why)
	case errors.As(err, &invalid):
		s.Log.Error("policy not reloaded: the old one goes on", "file", s.Path, "why", why, "problems", len(invalid.Problems))
		for _, p := range invalid.Problems {
			s.Log.Error("policy", "file", p.File, "line", p.Line, "column", p.Col, "message", p.Message, "fix", p.Fix, "warning", p.Warning)
		}
	default:
		s.Log.Error("policy not reloaded: the old one goes on", "file", s.Path, "why", why, "error", err)
	}
}

// changeable says what in a valid policy cannot be put in force while the server runs.
func (s *server) changeable(file *policyfile.File) error {
	if err := servable(file); err != nil {
		return err
	}
	was, now := s.gateway.File().Policy, file.Policy
	if changed := changedSockets(was.Listen, now.Listen); changed != "" {
		return fmt.Errorf("%s: %s changes only with a restart: SIGUSR2 restarts the gateway without losing a request", file.Path, changed)
	}
	if (now.Admin.Cert == "") != (was.Admin.Cert == "") {
		return errors.New("admin.tls comes and goes only with a restart")
	}
	return nil
}

// replace puts another policy in force.
func (s *server) replace(ctx context.Context, file *policyfile.File) error {
	if err := s.changeable(file); err != nil {
		return err
	}
	keys, err := readKeys(file)
	if err != nil {
		return err
	}
	certificates, err := s.edge.load(file)
	if err != nil {
		return err
	}
	was := s.gateway.File().Policy
	next, err := s.stores.next(ctx, file.Policy)
	if err != nil {
		return fmt.Errorf("%s: %w", file.Path, err)
	}
	logging, err := s.nextLog(file)
	if err != nil {
		s.stores.discard(next)
		return err
	}
	if err := s.gateway.Update(file, given(next)); err != nil {
		s.stores.discard(next)
		logging.discard()
		return err
	}
	s.stores.use(next)
	s.control.use(keys)
	s.edge.use(certificates)
	s.tellExpiries()
	s.useLog(logging)
	for _, r := range was.Restarts(&file.Policy) {
		s.Log.Warn("limit begins anew", "limit", r.Limit, "why", r.Why)
	}
	return nil
}
