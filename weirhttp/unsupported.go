package weirhttp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weirflow/weir/policy"
)

// wrongOptions returns an error for each option that a policy has a setting for.
func wrongOptions(s settings) (wrong []error) {
	for _, name := range s.given {
		if !slices.Contains([]string{"Refused", "RefusedByDefault", "Observe", "InContext", "Log", "PassUnmatched", "Client", "Values", "Route"}, name) {
			wrong = append(wrong, fmt.Errorf("weirhttp: %s is no option of Policy: the policy says it", name))
		}
	}
	return wrong
}

// CheckPolicy returns what Policy would refuse in a policy with these options, before there are an
// engine and stores. nil means that it would accept all of it.
func CheckPolicy(p *policy.Policy, options ...Option) error {
	s := newSettings(options)
	return errors.Join(append(wrongOptions(s), notForHandlers(p, &s)...)...)
}

// notInMemory returns an error for each limit whose store the engine has not.
func notInMemory(e *policy.Engine) (wrong []error) {
	for _, name := range e.KeptInMemory() {
		wrong = append(wrong, fmt.Errorf("weirhttp: limits.%s: its store is not in policy.Options.Stores, so each process would count by itself: add the store, or remove store", name))
	}
	return wrong
}

// notForHandlers returns an error for each setting of a policy that a handler cannot carry out.
// Leaving them out in silence would change who is limited, or what the refused get.
func notForHandlers(p *policy.Policy, s *settings) (wrong []error) {
	add := func(is bool, where, why string) {
		if is {
			wrong = append(wrong, fmt.Errorf("weirhttp: %s: %s", where, why))
		}
	}
	const noFace = "a handler opens no address: serve the policy by weir serve, or remove it"
	add(len(p.Listen.FaceNames()) > 0, "listen", noFace)
	add(p.Admin != policy.Admin{}, "admin", noFace)
	add(p.Warnings != policy.Warnings{}, "warnings", "a handler calls no webhook: set policy.Options.Warn, and remove it")
	add(p.SnapshotFile != "", "snapshot_file", "a handler writes no file: call Engine.WriteSnapshot and ReadSnapshot, and remove it")
	add(p.AccessLog != policy.AccessLog{}, "access_log", "a handler writes no access log: use Observe, and remove it")
	add(p.DecisionLog.On, "decision_log", "a handler logs no decisions: use Observe, and remove it")
	add(len(p.Rooms) > 0, "waiting_rooms", "a waiting room needs the gateway: use weir serve, or remove it")
	const otherClient = "the option Client says who the client is: remove it"
	add(s.client != nil && len(p.TrustedProxies) > 0, "trusted_proxies", otherClient)
	add(s.client != nil && p.ClientHeader != "", "client_header", otherClient)
	for i := range p.Limits {
		add(p.Limits[i].Log != "" && s.log == nil, "limits."+p.Limits[i].Name+".log", "there is no logger: pass the option Log, or remove it")
	}
	for i := range p.Routes {
		r := &p.Routes[i]
		at := fmt.Sprintf("routes.%d (%s)", i, r.Match)
		add(r.Upstream != "", at+".upstream", "the handler takes the place of the upstream: remove it")
		add(r.UpstreamPath != "", at+".upstream_path", "the handler gets the request as it is: use http.StripPrefix, and remove it")
		add(r.Respond.IsSet(), at+".respond", "the handler responds: write the response there, and remove it")
		add(len(r.AddHeaders) > 0, at+".add_headers", "the handler sets its headers: set them there, and remove it")
		add(len(r.Address) > 0, at+".address", "a handler does not know its listener: remove it")
		add(r.Refused.Stale > 0, at+".refused.stale", "a handler stores no responses: remove it")
		add(r.Refused.Upstream != "", at+".refused.upstream", "use the option Refused with a handler, and remove it")
		add(r.Refused.File != "", at+".refused.file", "a handler reads no files: use body, or the option Refused")
		add(r.Failed != policy.Refused{}, at+".failed", "no upstream can fail: remove it")
		add(r.UnderscoreHeaders != "", at+".underscore_headers", "a handler reads headers by their own names, X_Api_Key is not X-Api-Key: remove it")
		add(r.BufferRequest != policy.Buffer{}, at+".buffer_request", "the handler reads the body itself: remove it")
		add(r.Hold == policy.HoldUntilUpstreamEnds, at+".hold", "a place is held until the handler has returned, whether the client leaves or not: remove it")
	}
	return wrong
}
