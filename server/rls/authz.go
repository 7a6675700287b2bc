package rls

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	rpc "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirflow/weir/server/hook"
)

// authorization is Envoy's external authorization (ext_authz) over gRPC: the routes and limits of the
// policy decide about a request that Envoy describes.
type authorization struct {
	auth.UnimplementedAuthorizationServer
	face *Face
}

// waitTime bounds how long a request waits in the queue of a limit. Envoy's own timeout ends it, too.
const waitTime = 10 * time.Second

// Check decides about a request. One that no route matches may go on.
func (a authorization) Check(ctx context.Context, req *auth.CheckRequest) (*auth.CheckResponse, error) {
	p := a.face.policy.Now()
	request, err := describe(req.GetAttributes()).Request(&p.File.Policy)
	if err != nil {
		return a.answer("invalid", denied(&hook.Response{Status: http.StatusBadRequest, Body: []byte(err.Error() + "\n")})), nil
	}
	switch decided, err := a.face.hook.Decide(ctx, p, request); {
	case err != nil:
		return nil, status.FromContextError(err).Err()
	case decided.Admitted:
		return a.answer("ok", admitted(decided.Header)), nil
	case decided.Status == http.StatusBadRequest && !decided.Limited:
		return a.answer("invalid", denied(decided)), nil
	default:
		return a.answer("refused", denied(decided)), nil
	}
}

// answer counts a response.
func (a authorization) answer(outcome string, r *auth.CheckResponse) *auth.CheckResponse {
	a.face.metrics.checks.WithLabelValues(outcome).Inc()
	return r
}

// describe returns what Envoy says of a request.
func describe(a *auth.AttributeContext) hook.Description {
	h := a.GetRequest().GetHttp()
	fields := http.Header{}
	for name, value := range h.GetHeaders() {
		if !strings.HasPrefix(name, ":") {
			fields.Set(name, value)
		}
	}
	for _, f := range h.GetHeaderMap().GetHeaders() { // where Envoy sends each field as it came
		if !strings.HasPrefix(f.GetKey(), ":") {
			fields.Add(f.GetKey(), string(slices.Concat([]byte(f.GetValue()), f.GetRawValue())))
		}
	}
	peer := a.GetSource().GetAddress().GetSocketAddress()
	target := h.GetPath()
	if q := h.GetQuery(); q != "" && !strings.Contains(target, "?") {
		target += "?" + q
	}
	return hook.Description{Method: h.GetMethod(), Host: h.GetHost(), Target: target, Header: fields, Length: h.GetSize(),
		From: &http.Request{Header: fields, RemoteAddr: net.JoinHostPort(peer.GetAddress(), strconv.Itoa(int(peer.GetPortValue())))}}
}

// admitted lets a request go on. The fields are for its client.
func admitted(fields http.Header) *auth.CheckResponse {
	return &auth.CheckResponse{Status: &rpc.Status{Code: int32(codes.OK)}, HttpResponse: &auth.CheckResponse_OkResponse{OkResponse: &auth.OkHttpResponse{ResponseHeadersToAdd: options(fields)}}}
}

// denied is the response to the client of a refused request.
func denied(r *hook.Response) *auth.CheckResponse {
	grpcCode := codes.PermissionDenied
	if r.Status == http.StatusTooManyRequests {
		grpcCode = codes.ResourceExhausted
	}
	return &auth.CheckResponse{Status: &rpc.Status{Code: int32(grpcCode)}, HttpResponse: &auth.CheckResponse_DeniedResponse{DeniedResponse: &auth.DeniedHttpResponse{
		Status: &typev3.HttpStatus{Code: typev3.StatusCode(r.Status)}, Headers: options(r.Header), Body: string(r.Body),
	}}}
}

// options are header fields as Envoy takes them: each replaces those of that name.
func options(fields http.Header) (all []*core.HeaderValueOption) {
	for name, values := range fields {
		for i, value := range values {
			action := core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
			if i > 0 {
				action = core.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
			}
			all = append(all, &core.HeaderValueOption{Header: &core.HeaderValue{Key: strings.ToLower(name), Value: value}, AppendAction: action})
		}
	}
	slices.SortStableFunc(all, func(a, b *core.HeaderValueOption) int { return strings.Compare(a.Header.Key, b.Header.Key) })
	return all
}
