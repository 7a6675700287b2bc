package weirgrpc

import (
	"errors"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirflow/weir"
)

// adviceOf reads what a server says with an error. If it says it twice, the longer wait counts.
func adviceOf(err error, trailer metadata.MD) (a advice) {
	var ours *refused
	if errors.As(err, &ours) {
		return a // another interceptor of this client has refused the call: the server says nothing
	}
	a.sent = true
	st := status.Convert(err)
	if c := st.Code(); c != codes.ResourceExhausted && c != codes.Unavailable {
		return a
	}
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok && info.GetRetryDelay().CheckValid() == nil {
			a.pause, a.refused = max(a.pause, info.GetRetryDelay().AsDuration(), time.Millisecond), true
		}
	}
	if values := trailer[pushback]; len(values) > 0 {
		ms, err := strconv.ParseUint(values[0], 10, 32)
		if a.never = err != nil || len(values) > 1; !a.never { // gRFC A6: what is no number means not to retry
			a.pause, a.refused = max(a.pause, time.Duration(ms)*time.Millisecond, time.Millisecond), true
		}
	}
	return a
}

// outcomeOf is how a call with that result has ended.
func outcomeOf(err error) weir.Outcome {
	switch status.Code(err) {
	case codes.ResourceExhausted, codes.Unavailable, codes.DeadlineExceeded:
		return weir.Dropped
	case codes.Canceled:
		return weir.Ignore
	}
	return weir.OK
}
