module github.com/weirflow/weir/proof

go 1.26.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/weirflow/weir v0.0.0-00010101000000-000000000000
	pgregory.net/rapid v1.3.0
)

replace github.com/weirflow/weir => ../
