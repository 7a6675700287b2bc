module github.com/weirflow/weir/bench

go 1.26.0

replace github.com/weirflow/weir => ../

require (
	github.com/weirflow/weir v0.0.0-00010101000000-000000000000
	github.com/weirflow/weir/proof v0.0.0-00010101000000-000000000000
	golang.org/x/time v0.16.0
)

replace github.com/weirflow/weir/proof => ../proof
