module github.com/weirflow/weir/server

go 1.26.0

require (
	github.com/goccy/go-yaml v1.19.2
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3
	github.com/weirflow/weir v0.0.0
)

require golang.org/x/text v0.42.0 // indirect

replace github.com/weirflow/weir => ../
