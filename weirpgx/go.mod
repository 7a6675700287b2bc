module github.com/weirflow/weir/weirpgx

go 1.26.0

replace github.com/weirflow/weir => ../

require (
	github.com/jackc/pgx/v5 v5.11.0
	github.com/weirflow/weir v0.0.0
)

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.2 // indirect
	golang.org/x/sync v0.17.0 // indirect
	golang.org/x/text v0.29.0 // indirect
)
