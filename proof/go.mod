module github.com/weirflow/weir/proof

go 1.26.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/redis/rueidis v1.0.79
	github.com/weirflow/weir v0.0.0
	github.com/weirflow/weir/weirrueidis v0.0.0
	pgregory.net/rapid v1.3.0
)

require golang.org/x/sys v0.47.0 // indirect

replace github.com/weirflow/weir => ../

replace github.com/weirflow/weir/weirrueidis => ../weirrueidis
