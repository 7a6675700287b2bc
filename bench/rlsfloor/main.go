// Command rlsfloor answers requests of Envoy's rate limit service without deciding: the least that any
// such server has to do. It prints its address.
package main

import (
	"context"
	"fmt"
	"net"
	"os"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
)

type floor struct {
	pb.UnimplementedRateLimitServiceServer
}

func (floor) ShouldRateLimit(context.Context, *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	return &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OK, Statuses: []*pb.RateLimitResponse_DescriptorStatus{{
		Code: pb.RateLimitResponse_OK, LimitRemaining: 999_999_999, DurationUntilReset: durationpb.New(1800e9),
		CurrentLimit: &pb.RateLimitResponse_RateLimit{RequestsPerUnit: 1_000_000_000, Unit: pb.RateLimitResponse_RateLimit_HOUR},
	}}}, nil
}

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		fmt.Fprintln(os.Stdout, l.Addr())
		s := grpc.NewServer()
		pb.RegisterRateLimitServiceServer(s, floor{})
		err = s.Serve(l)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
