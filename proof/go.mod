module github.com/weirflow/weir/proof

go 1.26.0

require (
	github.com/weirflow/weir v0.0.0
	pgregory.net/rapid v1.3.0
)

require github.com/anishathalye/porcupine v1.3.1

replace github.com/weirflow/weir => ../
