module github.com/weirflow/weir/proof

go 1.26.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/redis/go-redis/v9 v9.23.0
	github.com/redis/rueidis v1.0.79
	github.com/weirflow/weir v0.0.0
	github.com/weirflow/weir/weirgoredis v0.0.0
	github.com/weirflow/weir/weirrueidis v0.0.0
	pgregory.net/rapid v1.3.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
)

replace (
	github.com/weirflow/weir => ../
	github.com/weirflow/weir/weirgoredis => ../weirgoredis
	github.com/weirflow/weir/weirrueidis => ../weirrueidis
)
