package weircaddy

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/weirflow/weir/policy"
)

// An adminAPI is what Caddy's admin address has of limits: why a key is admitted or refused, and a way
// to reset it.
type adminAPI struct{}

// CaddyModule implements caddy.Module.
func (adminAPI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.weir", New: func() caddy.Module { return new(adminAPI) }}
}

// Routes implements caddy.AdminRouter.
func (adminAPI) Routes() []caddy.AdminRoute {
	return []caddy.AdminRoute{
		{Pattern: "/weir/explain", Handler: caddy.AdminHandlerFunc(explain)},
		{Pattern: "/weir/reset", Handler: caddy.AdminHandlerFunc(reset)},
	}
}

// asked reads the parameters limit, key (once for each part), plan, and policy (the path of a policy
// file).
func asked(r *http.Request) (*policy.Engine, policy.Ask, error) {
	q := r.URL.Query()
	path := q.Get("policy")
	var found *process
	processes.Range(func(key, value any) bool {
		if key == path {
			found = value.(*process)
		}
		return true
	})
	if found == nil {
		return nil, policy.Ask{}, caddy.APIError{HTTPStatus: http.StatusNotFound, Err: fmt.Errorf("no limits of %q are in force", path)}
	}
	engine, err := found.engine()
	return engine, policy.Ask{Limit: q.Get("limit"), Key: q["key"], Cost: 1, Plan: q.Get("plan")}, err
}

// explain answers why the next request for a key would be admitted or refused. It charges nothing.
func explain(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet {
		return caddy.APIError{HTTPStatus: http.StatusMethodNotAllowed, Err: errors.New("use GET")}
	}
	engine, ask, err := asked(r)
	if err != nil {
		return err
	}
	x, err := engine.Explain(r.Context(), ask)
	if err != nil {
		return wrongAsk(err)
	}
	d := x.Answer.Decision
	out := map[string]any{
		"limit": ask.Limit, "key": ask.Key, "allowed": x.Answer.Allowed, "capacity": d.Limit, "remaining": d.Remaining,
		"by": x.By, "parameters": x.Fields, "text": strings.TrimSpace(x.String()),
	}
	if !x.Answer.Allowed && d.RetryAfter >= 0 {
		out["retry_after_ms"] = (d.RetryAfter.Microseconds() + 999) / 1000
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(out)
}

// reset makes a key of a limit start over.
func reset(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodPost {
		return caddy.APIError{HTTPStatus: http.StatusMethodNotAllowed, Err: errors.New("use POST")}
	}
	engine, ask, err := asked(r)
	if err != nil {
		return err
	}
	if err := engine.Reset(r.Context(), ask); err != nil {
		return wrongAsk(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// wrongAsk makes an error that the caller has caused a 400, and every other error a 503.
func wrongAsk(err error) error {
	status := http.StatusServiceUnavailable
	var wrong *policy.AskError
	if errors.As(err, &wrong) {
		status = http.StatusBadRequest
	}
	return caddy.APIError{HTTPStatus: status, Err: err}
}

var _ caddy.AdminRouter = adminAPI{}
