package weirgrpc

import (
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirflow/weir"
)

// pushback is the metadata by which a server says when to retry, in milliseconds; a negative number
// means not to retry (gRFC A6).
const pushback = "grpc-retry-pushback-ms"

// refused is the error of a call that a limit refused. It names the limit, and not the client.
type refused struct{ m Response }

func (r *refused) Error() string { return r.GRPCStatus().String() }

// Unwrap makes errors.Is find weir.ErrLimited, and context.DeadlineExceeded if the deadline was too
// near to wait.
func (r *refused) Unwrap() error {
	return &weir.LimitedError{Decision: r.m.Decision, Deadline: r.m.late}
}

// GRPCStatus is RESOURCE_EXHAUSTED with google.rpc.QuotaFailure, and with google.rpc.RetryInfo if a
// wait helps.
func (r *refused) GRPCStatus() *status.Status {
	d, text := r.m.Decision, r.m.text()
	violation := &errdetails.QuotaFailure_Violation{Subject: "limit:" + d.By, Description: text}
	details := []protoadapt.MessageV1{&errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{violation}}}
	if d.RetryAfter != weir.Never {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(d.RetryAfter)})
	}
	st := status.New(codes.ResourceExhausted, text)
	if with, err := st.WithDetails(details...); err == nil {
		return with
	}
	return st
}

// notSent begins what a client says itself about a call, so that it differs from what servers say.
const notSent = "the call was not sent: "

// text says which limit refused the call. That of a client says that the server never got it.
func (m *Response) text() string {
	limit := "a rate limit"
	if m.Decision.By != "" {
		limit = "the limit " + strconv.Quote(m.Decision.By)
	}
	switch {
	case m.unsent != "":
		return notSent + m.unsent
	case m.paused && m.late:
		return notSent + "the server has asked to wait for longer than the deadline"
	case m.paused:
		return notSent + "too many calls wait already"
	case m.client && m.Missing:
		return notSent + "it lacks what it is counted by"
	case m.client && m.late:
		return notSent + limit + " admits it only after its deadline"
	case m.client:
		return notSent + limit + " was exceeded"
	case m.Missing:
		return "the call lacks what it is counted by"
	}
	return limit + " was exceeded"
}

// trailer returns the metadata that says when to retry. It is empty if the time is not known.
func (r *refused) trailer() metadata.MD {
	switch d := r.m.Decision.RetryAfter; {
	case d != weir.Never:
		ms := int64(d / time.Millisecond)
		if d%time.Millisecond > 0 {
			ms++
		}
		return metadata.Pairs(pushback, strconv.FormatInt(ms, 10))
	case r.m.hopeless:
		return metadata.Pairs(pushback, "-1")
	}
	return nil
}
