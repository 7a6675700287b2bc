module github.com/weirflow/weir/weirrueidis

go 1.26.0

require (
	github.com/redis/rueidis v1.0.79
	github.com/weirflow/weir v0.0.0
)

require golang.org/x/sys v0.47.0 // indirect

replace github.com/weirflow/weir => ../
