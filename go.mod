module github.com/weirflow/weir

go 1.26.0
