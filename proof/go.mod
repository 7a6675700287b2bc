module github.com/weirflow/weir/proof

go 1.26.0

require github.com/weirflow/weir v0.0.0-00010101000000-000000000000

replace github.com/weirflow/weir => ../
