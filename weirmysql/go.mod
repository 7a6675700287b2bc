module github.com/weirflow/weir/weirmysql

go 1.26.0

replace github.com/weirflow/weir => ../

require (
	github.com/go-sql-driver/mysql v1.10.1
	github.com/weirflow/weir v0.0.0
)

require filippo.io/edwards25519 v1.2.0 // indirect
