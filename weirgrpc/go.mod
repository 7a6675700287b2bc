module github.com/weirflow/weir/weirgrpc

go 1.26.0

replace github.com/weirflow/weir => ../

require (
	github.com/grpc-ecosystem/go-grpc-middleware/v2 v2.3.4
	github.com/weirflow/weir v0.0.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)
